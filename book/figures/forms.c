/* forms.c -- a figure of chapter 20: times of the four forms for 2 to 64 ranks. */
#include "plot.h"

static void panel(double left, const char *name, const char *after, const int *down)
{
    static double rows[MOST_ROWS][MOST_COLS];
    static const char *const names[] = { "all-gather", "chain", "pipelined", "scan" };
    static const char *const inks[] = { "var(--b)", "var(--d)", "var(--a)",
                                        "var(--c)" };
    const int n = printed_rows("19-forms", after, rows);
    const struct frame f = { 0.25, 1.85, 1, 4, left, left + 225, 40, 300 };
    svg_text(left + 112, 24, "middle", "", "%s", name);
    frame_rows(&f, 1);
    frame_powers(&f, 2, 64, 2);
    frame_axes(&f, "ranks", NULL);
    for (int k = 0; k < 4; k++) {
        curve(&f, rows, n, 0, k + 1, inks[k], "none");
        frame_name(&f, rows[n - 1][k + 1], down[k], "", names[k]);
    }
}

int main(void)
{
    svg_begin(720, 346, "Time of the exchange by form and ranks",
              "Two panels, inside a node and between nodes, for 2 to 64 ranks. "
              "All-gather and chain grow with the ranks, the scan with the logarithm. "
              "Between nodes the chain is below the all-gather everywhere.");
    panel(50, "inside a node", "inside a node", (const int[]){ 8, -2, 6, 6 });
    panel(410, "between nodes", "between nodes", (const int[]){ 0, 10, 6, 6 });
    svg_text(4, 14, "start", "soft", "microseconds");
}
