/* growth.c -- the figure of chapter 19: the error of M against the number of chunks. */
#include "plot.h"

int main(void)
{
    static double rows[MOST_ROWS][MOST_COLS];
    const int n = printed_rows("18-growth", "live gates", rows);
    const struct frame f = { 0, 2.45, -8.2, 0, 70, 570, 30, 330 };
    static const char *const names[] = { "fp32, tf32x3", "tf32", "bf16" };
    static const char *const inks[] = { "var(--a)", "var(--c)", "var(--b)" };
    svg_begin(720, 376, "The error of M against the length of its chain",
              "Over 1 to 256 chunks fp32 and tf32x3 grow from 2e-8 to 6e-7, tf32 from "
              "5e-7 to 2e-5 and bf16 from 5e-4 to a fifth of M. A dashed line shows "
              "growth with the square root.");
    frame_rows(&f, 1);
    frame_powers(&f, 1, 256, 4);
    for (int k = 0; k < 3; k++) {
        const int column = k ? k + 3 : 2;
        curve(&f, rows, n, 0, column, inks[k], "none");
        frame_name(&f, rows[n - 1][column], 4, "", names[k]);
    }
    svg_line(frame_x(&f, 1), frame_y(&f, rows[0][4]), frame_x(&f, 256),
             frame_y(&f, 16 * rows[0][4]), "stroke:var(--soft);stroke-dasharray:4 4");
    frame_axes(&f, "chunks in the chain", "relative error of M");
}
