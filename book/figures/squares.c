/* squares.c -- the second figure of chapter 03: a triangle cut into squares. */
#include "svg.h"

static const double SIDE = 6.2, X0 = 60, Y0 = 34;

/* Cuts the triangle of rows [from, from + 2n): draws the n x n square below its
 * diagonal, then cuts the two triangles that remain. */
static void cut(int from, int n)
{
    static const char *const ink[] = { "var(--d)", "var(--c)", "var(--b)", "var(--a)" };
    const int size = (n >= 8) + (n >= 16) + (n >= 32);     /* n = 4, 8, 16 or 32 */
    svg_rect(X0 + from * SIDE, Y0 + (from + n) * SIDE, n * SIDE, n * SIDE,
             "fill:var(--wash-%c);stroke:%s;stroke-width:.8", "dcba"[size], ink[size]);
    if (n >= 8)
        svg_text(X0 + (from + n / 2.0) * SIDE, Y0 + (from + n * 1.5) * SIDE + 4,
                 "middle", "mono", "%d", n);
    if (n >= 4)
        svg_dot(X0 + (from + n) * SIDE - 3, Y0 + (from + n) * SIDE + 3,
                n >= 8 ? 2.6 : 1.6, ink[size]);
    if (n > 1) {
        cut(from, n / 2);
        cut(from + n, n / 2);
    }
}

int main(void)
{
    svg_begin(720, 460, "The strict lower triangle of a chunk as squares",
              "A triangle of 64 rows: one square of 32, two of 16, four of 8, eight of "
              "4, sixteen of 2 and thirty-two of 1. In each the rows are later than "
              "the columns.");
    svg_rect(X0, Y0, 64 * SIDE, 64 * SIDE, "fill:none;stroke:var(--line)");
    for (int t = 0; t <= 64; t += 16) {
        svg_text(X0 - 8, Y0 + t * SIDE + 4, "end", "soft", "%d", t);
        svg_text(X0 + t * SIDE, Y0 - 8, "middle", "soft", "%d", t);
    }
    cut(0, 32);
    svg_text(X0 - 8, Y0 + 250, "end", "", "row i");
    svg_text(X0 + 250, Y0 - 8, "middle", "", "column j");
    svg_text(480, 70, "start", "", "The square of 32:");
    svg_text(480, 92, "start", "", "rows 32 to 63 are later than");
    svg_text(480, 112, "start", "", "the anchor a, row 32,");
    svg_text(480, 132, "start", "", "columns 0 to 31 are earlier.");
    svg_text(480, 166, "start", "mono", "G_i - a  <= 0");
    svg_text(480, 186, "start", "mono", "a - G_j  <= 0");
    svg_text(480, 220, "start", "", "so both factors are at most 1,");
    svg_text(480, 240, "start", "", "and the square is a product");
    svg_text(480, 260, "start", "", "of two small matrices.");
}
