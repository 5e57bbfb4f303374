/* solve.c -- the figure of chapter 03: the triangular solve of a chunk. */
#include "svg.h"

/* Draws a lower triangle of n rows of cells of size s. If `unit`, the diagonal is 1. */
static void triangle(double x0, double y0, int n, double s, int unit, const char *wash)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const int in = j < i || (j == i && unit);
            const char *fill = i == j ? "var(--wash-c)" : wash;
            svg_rect(x0 + j * s, y0 + i * s, s, s, "fill:%s;stroke:var(--line)",
                     in ? fill : "none");
            if (i == j && unit)
                svg_text(x0 + j * s + s / 2, y0 + i * s + s / 2 + 4, "middle", "mono",
                         "1");
        }
}

static void column(double x0, double y0, int n, double s, double w, const char *name,
                   const char *wash, int known)
{
    for (int i = 0; i < n; i++) {
        svg_rect(x0, y0 + i * s, w, s, "fill:%s;stroke:var(--line)",
                 i < known ? wash : "none");
        svg_text(x0 + w / 2, y0 + i * s + s / 2 + 4, "middle", "mono", "%s%d", name, i);
    }
}

int main(void)
{
    const int n = 6;
    const double s = 30, y = 50;
    svg_begin(
        720, 290, "The triangular solve of one chunk",
        "A unit lower triangular matrix of six rows, I plus L, is multiplied by the "
        "unknowns x0 to x5. The product is the known right-hand side. Row 3 needs only "
        "x0, x1 and x2.");
    svg_text(20 + n * s / 2, 34, "middle", "", "I + L");
    triangle(20, y, n, s, 1, "var(--wash-a)");
    svg_rect(20, y + 3 * s, n * s, s, "fill:none;stroke:var(--b);stroke-width:2");
    column(220, y, n, s, 60, "x", "var(--wash-b)", 3);
    svg_text(250, 34, "middle", "", "unknown");
    svg_text(305, y + n * s / 2 + 4, "middle", "", "=");
    column(330, y, n, s, 60, "b", "var(--wash-d)", n);
    svg_text(360, 34, "middle", "", "known");
    svg_text(430, y + 30, "start", "", "Row 3 reads:");
    svg_text(430, y + 54, "start", "mono", "L30 x0 + L31 x1 + L32 x2 + x3 = b3");
    svg_text(430, y + 84, "start", "", "so x3 follows from the rows above it,");
    svg_text(430, y + 104, "start", "", "and no state is needed: L and b come");
    svg_text(430, y + 124, "start", "", "from this chunk alone.");
    svg_text(20, y + n * s + 34, "start", "soft",
             "L_ij: how strongly the key of token i reads what token j wrote. Red: "
             "already solved.");
}
