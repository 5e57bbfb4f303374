/* leaveout.c -- the figure of chapter 10: the error of dg with and without the terms
 * that cancel. */
#include "plot.h"
#include "tests/judge/tolerance.h"

int main(void)
{
    static double rows[MOST_ROWS][MOST_COLS];
    const int n = printed_rows("10-leaveout", "left out", rows);
    const struct frame f = { -1.05, 1.75, -16.5, 1.2, 70, 560, 20, 320 };
    static const char *const gates[] = { "-0.1", "-1", "-2", "-5", "-10", "-20",
                                         "-50" };
    svg_begin(720, 366, "The error of dg against the gate",
              "Four curves over gates from -0.1 to -50. With the cancelling terms left "
              "out the error stays near 1e-15 in double and at a few thousandths in "
              "bf16; let in, it grows beyond one.");
    frame_rows(&f, 4);
    for (int i = 0; i < n && i < 7; i++)
        frame_column(&f, fabs(rows[i][0]), gates[i]);
    curve(&f, rows, n, 0, 2, "var(--a)", "none");
    curve(&f, rows, n, 0, 3, "var(--a)", "5 4");
    curve(&f, rows, n, 0, 4, "var(--b)", "none");
    curve(&f, rows, n, 0, 5, "var(--b)", "5 4");
    const double allowed = tolerance_of(TOLERANCE_GATES, KCP_BF16);
    svg_line(frame_x(&f, 0.09), frame_y(&f, allowed), 560, frame_y(&f, allowed),
             "stroke:var(--soft);stroke-dasharray:1 3");
    frame_name(&f, allowed, 4, "soft", "what is allowed");
    frame_name(&f, rows[n - 1][4], 18, "", "bf16, left out");
    frame_name(&f, rows[n - 1][2], 4, "", "double, left out");
    frame_name(&f, 10, 0, "", "dashed: let in");
    frame_axes(&f, "gate of every token", "error of dg");
}
