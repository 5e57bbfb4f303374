/* ladder_times.c -- chapter 17: the recorded time of each rung, and its floor.
 *
 * Book: chapter 17.  Checked by: make book-lint.  Next: none.
 * build/book/results/ladder.tsv is made of the record: first "floor us", then a rung's
 * name and microseconds. */
#include "svg.h"

#include <math.h>

static double x(double us)
{
    return 130 + (log10(us) - 2) * 190;
}

int main(void)
{
    FILE *f = fopen("build/book/results/ladder.tsv", "r");
    char name[64];
    double us, before = 0, floor_us = 0;
    int n = 0;
    svg_begin(720, 290, "The time of each rung",
              "Bars on a logarithmic scale, from the first rung, a thread a column, to "
              "the eighth, with TMA and roles, beside the floor that memory sets.");
    for (double t = 100; t <= 1e5; t *= 10) {
        svg_line(x(t), 24, x(t), 250, "stroke:var(--line)");
        svg_text(x(t), 268, "middle", "soft", t < 1000 ? "%.1f ms" : "%.0f ms",
                 t / 1000);
    }
    while (f && fscanf(f, "%63s %lf", name, &us) == 2) {
        if (!floor_us) {
            floor_us = us;
            continue;
        }
        const double y = 30 + 27 * n++;
        svg_rect(x(100), y, x(us) - x(100), 20, "fill:var(--wash-a);stroke:var(--a)");
        svg_text(122, y + 15, "end", "mono", "%s", name);
        if (before > 0)
            svg_text(x(us) + 8, y + 15, "start", "soft", "%.2f times as fast",
                     before / us);
        before = us;
    }
    if (f) fclose(f);
    if (floor_us)
        svg_line(x(floor_us), 18, x(floor_us), 250,
                 "stroke:var(--b);stroke-width:1.5;stroke-dasharray:5 3");
    svg_text(x(floor_us ? floor_us : 100) + 4, 16, "start", "soft",
             "what memory needs");
    svg_end();
    return 0;
}
