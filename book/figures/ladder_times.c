/* ladder_times.c -- chapter 17: recorded times and the floor of each kernel version.
 *
 * book/tables.py writes the input build/book/results/ladder.tsv: first "floor us", then
 * the name and the microseconds of each kernel version. */
#include "svg.h"

#include <math.h>

static double x(double us)
{
    return 130 + (log10(us) - 2) * 122;
}

int main(void)
{
    FILE *f = fopen("build/book/results/ladder.tsv", "r");
    char name[64];
    double us, first = 0, before = 0, last = 0, floor_us = 0;
    int n = 0;
    svg_begin(720, 310, "The time of each rung",
              "Dots on a logarithmic scale, from the first rung, a thread per column, "
              "to the eighth, with TMA and roles, each with its milliseconds and how "
              "many times as fast as the first it is, and the floor of memory.");
    svg_text(560, 16, "end", "soft", "ms");
    svg_text(632, 16, "end", "soft", "step");
    svg_text(712, 16, "end", "soft", "in all");
    for (double t = 100; t <= 1e5; t *= 10) {
        svg_line(x(t), 24, x(t), 270, "stroke:var(--line)");
        svg_text(x(t), 288, "middle", "soft", t < 1000 ? "%.1f ms" : "%.0f ms",
                 t / 1000);
    }
    while (f && fscanf(f, "%63s %lf", name, &us) == 2) {
        if (!floor_us) {
            floor_us = us;
            svg_line(x(us), 24, x(us), 270,
                     "stroke:var(--b);stroke-width:1.5;stroke-dasharray:5 3");
            svg_text(x(us) + 6, 16, "start", "soft", "what memory needs: %.3f ms",
                     us / 1000);
            continue;
        }
        const double y = 44 + 30 * n++;
        first = first ? first : us;
        if (before)
            svg_line(x(before), last, x(us), y, "stroke:var(--a);stroke-width:1.5");
        svg_dot(x(us), y, 5, "var(--a)");
        svg_text(122, y + 4, "end", "mono", "%s", name);
        svg_text(560, y + 4, "end", "mono", "%.3f", us / 1000);
        if (before) svg_text(632, y + 4, "end", "mono", "\u00d7 %.2f", before / us);
        if (before)
            svg_text(712, y + 4, "end", "mono", "\u00d7 %.*f", us * 10 < first ? 0 : 1,
                     first / us);
        before = us;
        last = y;
    }
}
