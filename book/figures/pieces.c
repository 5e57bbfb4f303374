/* pieces.c -- chapter T: the nine products of two numbers of three bf16 pieces each. */
#include "svg.h"

int main(void)
{
    svg_begin(720, 212, "Nine products of pieces, of which six are formed",
              "A grid of three by three: the pieces of S along the columns, those of M "
              "along the rows. The product of pieces i and j has the size 2 to the "
              "power -8 (i + j - 2). The three smallest are left out.");
    for (int i = 0; i < 3; i++) {
        svg_text(250 + 80 * i, 24, "middle", "", "piece %d of S", i + 1);
        svg_text(196, 60 + 50 * i, "end", "", "piece %d of M", i + 1);
        for (int j = 0; j < 3; j++) {
            svg_box(212 + 80 * j, 34 + 50 * i, 76, 44, i + j <= 2 ? "a" : "line",
                    i + j ? "2^-%d" : "1", 8 * (i + j));
        }
    }
    svg_text(470, 60, "start", "", "blue: formed, the smallest first");
    svg_text(470, 160, "start", "soft", "not filled: left out");
}
