/* halo_back.c -- the second figure of chapter 14: on the way back the halo turns round.
 *
 * Book: chapter 14.  Checked by: make book-lint.  Next: book/figures/family.c. */
#include "svg.h"

enum { RANKS = 5, W = 4 };
static const int cuts[RANKS + 1] = { 0, 5, 6, 6, 7, 12 };

/* As in halo.c: ranks stand apart; an empty one keeps a place. */
static double x(int r, int t) { return 20 + 37 * t + 54 * r; }

static int holder(int t)
{
    int r = 0;
    while (cuts[r + 1] <= t) r++;
    return r;
}

int main(void)
{
    const int at[] = { 0, 1, 3 };
    const char *const inks[] = { "var(--b)", "var(--c)", "var(--d)" };
    svg_begin(720, 226, "Halos of the way back across five ranks",
              "Ranks hold 5, 1, 0, 1 and 5 tokens of one sequence. The first rank "
              "needs the gradients dp of the three tokens after its last one: they "
              "come from three ranks.");
    for (int r = 0; r < RANKS; r++) {
        svg_text(x(r, cuts[r]), 24, "start", "", "rank %d", r);
        if (cuts[r] == cuts[r + 1])
            svg_text(x(r, cuts[r]), 42, "start", "soft", "empty");
        for (int t = cuts[r]; t < cuts[r + 1]; t++) {
            svg_rect(x(r, t), 56, 33, 30, "fill:var(--wash-d);stroke:var(--d)");
            svg_text(x(r, t) + 16, 76, "middle", "mono", "%d", t);
        }
    }
    for (int k = 0; k < 3; k++) {
        const int r = at[k], last = cuts[r + 1];
        const double left = x(r, last - 1) - 62, y = 192 - 34 * k;
        for (int t = last; t < last + W - 1; t++)
            svg_arrow(x(holder(t), t) + 16, 88, left + 98, y + 5 + 6 * (t - last),
                      inks[k]);
        svg_rect(left, y, 95, 22, "fill:var(--paper);stroke:var(--line)");
        svg_text(left + 48, y + 15, "middle", "mono", "dp %d %d %d", last, last + 1,
                 last + 2);
    }
    svg_end();
    return 0;
}
