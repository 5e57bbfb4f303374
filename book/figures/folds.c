/* folds.c -- the figure of chapter 11: the folds of forward and of backward. */
#include "svg.h"

enum { R = 5 };

static double left(int r) { return 60 + r * 132; }

static void fold(double y, int to, int from, const char *ink, const char *what,
                 const char *product)
{
    const int step = from < to ? 1 : -1;
    for (int r = from; r != to; r += step) {
        const double a = left(r) + 52, b = left(r + step) + 52;
        svg_arrow(a, y, b - 6 * step, y, ink);
        svg_text((a + b) / 2, y - 7, "middle", "mono", r == from ? what : product, r,
                 r);
    }
}

int main(void)
{
    svg_begin(720, 250, "The fold forward and backward on five ranks",
              "Forward, rank 3 folds from rank 0 towards itself, through the maps of "
              "ranks 1 and 2. Backward, rank 1 folds from rank 4 towards itself, "
              "through the transposed maps of ranks 3 and 2. Both read M2.");
    for (int r = 0; r < R; r++) {
        static const char *const read[R] = { "line", "a", "d", "b", "line" };
        svg_box(left(r), 96, 104, 44, read[r], "");
        svg_text(left(r) + 52, 115, "middle", "", "rank %d", r);
        svg_text(left(r) + 52, 132, "middle", "mono", "M%d, h%d, dh%d", r, r, r);
    }
    svg_text(60, 24, "start", "", "forward: the state that rank 3 begins with");
    fold(66, 3, 0, "var(--a)", "S = h%d", "M%d S + h%d");
    svg_text(60, 226, "start", "", "backward: the gradient that rank 1 ends with");
    fold(186, 1, 4, "var(--b)", "dS = dh%d", "M%d\u1d40 dS + dh%d");
}
