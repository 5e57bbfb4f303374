/* walks.c -- the figure of chapter 09: the forward scan and the reverse scan. */
#include "svg.h"

enum { CHUNKS = 4 };

static double left(int c) { return 96 + c * 156; }

static void walk(double y, int back)
{
    svg_text(4, y + 24, "start", "", back ? "backward" : "forward");
    for (int c = 0; c < CHUNKS; c++) {
        svg_box(left(c), y, 116, 40, back ? "b" : "a",
                back ? "\u039b - w\u1d40 kg" : "\u039b - kg\u1d40 w");
        svg_text(left(c) + 4, y + 56, "start", "mono", "w");
        svg_text(left(c) + 114, y + 56, "end", "mono", "kg");
        if (c)
            svg_text(left(c) - 20, y - 8, "middle", "mono", back ? "dS" : "S");
        if (!back && c)
            svg_arrow(left(c - 1) + 118, y + 20, left(c) - 2, y + 20, "var(--a)");
        if (back && c)
            svg_arrow(left(c) - 2, y + 20, left(c - 1) + 118, y + 20, "var(--b)");
        svg_text(left(c) + 34, y + 76, "middle", "mono", back ? "do" : "u");
        svg_arrow(left(c) + 34, y + 64, left(c) + 34, y + 42, "var(--soft)");
        svg_text(left(c) + 84, y + 76, "middle", "mono", back ? "dU" : "o, v");
        svg_arrow(left(c) + 84, y + 42, left(c) + 84, y + 64, "var(--soft)");
    }
}

int main(void)
{
    svg_begin(720, 262, "The scan and its mirror",
              "Forward, four chunks from left to right: each multiplies the state by "
              "Lambda minus kg transposed w. Backward, from right to left: each "
              "multiplies the gradient by the transpose.");
    for (int c = 0; c < CHUNKS; c++)
        svg_text(left(c) + 58, 18, "middle", "soft", "chunk %d", c);
    walk(42, 0);
    walk(158, 1);
    svg_text(96, 256, "start", "soft",
             "Here v is v_new. w belongs to the start of its chunk, kg to the end, in "
             "both directions.");
}
