/* inverse.c -- chapter T: four inverses of 16 rows become one of 64. */
#include "svg.h"

enum { SIDE = 144, BLOCK = SIDE / 4 };

/* Draws one step: triangles of `n` blocks are inverted; `corner` names what is new. */
static void step(double x, int n, const char *title, const char *corner)
{
    svg_text(x + SIDE / 2, 20, "middle", "", "%s", title);
    svg_rect(x, 32, SIDE, SIDE, "fill:none;stroke:var(--line)");
    for (int I = 0; I < 4; I++)
        for (int J = 0; J <= I; J++) {
            const int known = I / n == J / n;
            const int fresh = known && n > 1 && I / (n / 2) != J / (n / 2);
            const char *ink = known ? "a" : "line";
            svg_box(x + J * BLOCK, 32 + I * BLOCK, BLOCK, BLOCK, fresh ? "b" : ink, "");
        }
    svg_text(x + SIDE / 2, 196, "middle", "soft", "%s", corner);
}

int main(void)
{
    svg_begin(720, 208, "The inverse by blocks",
              "Three steps on a lower triangle of four by four blocks of 16: the "
              "diagonal blocks, then two corners of 16 by 16, then one of 32 by 32.");
    step(40, 1, "four blocks of 16", "by substitution");
    step(288, 2, "two of 32", "corners: two products each");
    step(536, 4, "one of 64", "one corner, 32 by 32");
    svg_arrow(200, 104, 272, 104, "var(--ink)");
    svg_arrow(448, 104, 520, 104, "var(--ink)");
}
