/* spectrum.c -- a figure of chapter 20: the error of the best rank-r parts of M and S.
 *
 * Book: chapter 20.  Checked by: make book-lint.  Next: book/figures/pipeline.c. */
#include "plot.h"

int main(void)
{
    static double rows[MOST_ROWS][MOST_COLS];
    const int n = printed_rows("20-spectrum", "   r", rows);
    const struct frame f = { 0, 5, -3.6, 0.4, 70, 570, 20, 330 };
    static const char *const names[] = { "0.0", "0.1", "1.0", "1.1" };
    svg_begin(720, 376, "What is left beyond rank r, trained keys",
              "Of M less the product of the decays one per cent of M is left beyond "
              "rank 3 to 17 of 64; of the states one per cent is left only beyond rank "
              "19 to 37.");
    frame_rows(&f, 1);
    for (int h = 0; h < 4; h++)
        for (int what = 0; what < 2; what++) {
            double x = 0, y = 0;
            for (int i = 0; i < n; i++) {
                const double left = rows[i][1 + 2 * h + what];
                const double r = 70 + 500. * rows[i][0] / 48;
                if (rows[i][0] > 48 || left < 3e-4)
                    break;
                const double at = frame_y(&f, left);
                if (i)
                    svg_line(x, y, r, at, what ? "stroke:var(--b);stroke-width:1.5"
                                               : "stroke:var(--a);stroke-width:1.5");
                x = r;
                y = at;
            }
            const int off = what && h == 3 ? 10 : -2 - 6 * (h % 2);
            svg_text(x + 4, y + off, "start", "soft", "%s", names[h]);
        }
    svg_line(70, frame_y(&f, 1e-2), 570, frame_y(&f, 1e-2),
             "stroke:var(--soft);stroke-dasharray:4 4");
    svg_text(578, frame_y(&f, 1e-2) + 4, "start", "soft", "one per cent");
    for (int r = 0; r <= 48; r += 8)
        svg_text(70 + 500. * r / 48, 348, "middle", "soft", "%d", r);
    svg_text(320, 368, "middle", "soft", "rank r, of 64");
    svg_text(80, 14, "start", "soft", "left out, of |M| and of |S|");
    svg_text(590, 60, "start", "", "S");
    svg_line(578, 56, 587, 56, "stroke:var(--b);stroke-width:3");
    svg_text(590, 80, "start", "", "M less D");
    svg_line(578, 76, 587, 76, "stroke:var(--a);stroke-width:3");
    svg_end();
    return 0;
}
