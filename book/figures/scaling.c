/* scaling.c -- a figure of chapter 20: the time of a million tokens by ranks. */
#include "plot.h"

int main(void)
{
    static double rows[MOST_ROWS][MOST_COLS];
    const int n = printed_rows("19-levels", "tokens/rank", rows);
    const struct frame f = { -0.1, 3.7, -2.2, 1.7, 70, 560, 20, 320 };
    static const int column[] = { 2, 8, 5, 6 }, down[] = { 10, -2, 10, -6 };
    static const char *const names[] = { "main pass", "work: main + map",
                                         "exchange", "total" };
    static const char *const inks[] = { "var(--c)", "var(--a)", "var(--b)",
                                        "var(--ink)" };
    svg_begin(720, 366, "A million tokens on 1 to 4096 ranks",
              "Main pass and map's pass, together the work, fall as one over the "
              "ranks; the exchange on two levels grows slowly to half a millisecond; "
              "work and exchange meet between 128 and 256 ranks.");
    for (int i = 0; i < n; i++)
        rows[i][8] = rows[i][2] + rows[i][3];
    frame_rows(&f, 1);
    frame_powers(&f, 1, 4096, 4);
    for (int k = 0; k < 4; k++) {
        const int skip = k == 1 || k == 2;                  /* not with one rank */
        curve(&f, rows + skip, n - skip, 0, column[k], inks[k],
              k == 3 ? "6 4" : "none");
        frame_name(&f, rows[n - 1][column[k]], down[k], "", names[k]);
    }
    frame_axes(&f, "ranks, in nodes of 8 GPUs", "ms");
}
