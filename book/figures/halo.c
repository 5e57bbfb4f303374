/* halo.c -- the figure of chapter 14: halos across short ranks, W = 4.
 *
 * Book: chapter 14.  Checked by: make book-lint.  Next: book/figures/family.c. */
#include "svg.h"

enum { RANKS = 5, W = 4 };
static const int cuts[RANKS + 1] = { 0, 5, 6, 6, 7, 12 };

/* Ranks stand apart; an empty one keeps a place. */
static double x(int r, int t) { return 20 + 37 * t + 54 * r; }

int main(void)
{
    svg_begin(720, 226, "Halos across five ranks",
              "Ranks hold 5, 1, 0, 1 and 5 tokens of one sequence. The last rank "
              "needs three rows before its first token: they come from three "
              "ranks.");
    for (int r = 0; r < RANKS; r++) {
        svg_text(x(r, cuts[r]), 24, "start", "", "rank %d", r);
        if (cuts[r] == cuts[r + 1])
            svg_text(x(r, cuts[r]), 42, "start", "soft", "empty");
        for (int t = cuts[r]; t < cuts[r + 1]; t++) {
            svg_rect(x(r, t), 56, 33, 30, "fill:var(--wash-a);stroke:var(--a)");
            svg_text(x(r, t) + 16, 76, "middle", "mono", "%d", t);
        }
    }
    const int at[] = { 1, 3, 4 };
    const char *const inks[] = { "var(--b)", "var(--c)", "var(--d)" };
    for (int k = 0; k < 3; k++) {
        const int r = at[k];
        for (int t = cuts[r] - W + 1; t < cuts[r]; t++) {
            int from = 0;
            while (cuts[from + 1] <= t)
                from++;
            svg_arrow(x(from, t) + 16, 88,
                      x(r, cuts[r]) + 8 + 9 * (t - cuts[r] + W - 1), 190 - 34 * k,
                      inks[k]);
        }
        svg_rect(x(r, cuts[r]), 192 - 34 * k, 96, 22, "fill:none;stroke:var(--line)");
        svg_text(x(r, cuts[r]) + 48, 207 - 34 * k, "middle", "mono", "rows %d %d %d",
                 cuts[r] - 3, cuts[r] - 2, cuts[r] - 1);
    }
    svg_end();
    return 0;
}
