/* ladder_stages.c -- chapter 17: when copies and products run, with and without stages.
 *
 * Simulates two timelines. A copy takes the time `copy`; the products of a chunk take
 * `work`; a stage is free when its products are done. */
#include "svg.h"

#include <math.h>

static const double copy = 60, work = 95;

/* Simulates a pipeline of `stages` stages; returns the time at which the last chunk is
 * done. */
static double play(double y, int stages, int chunks)
{
    double issued[8], done[8], now = 0;
    for (int c = 0; c < chunks; c++) {
        if (stages == 1) issued[c] = now; /* no overlap */
        else issued[c] = c < stages - 1 ? 0 : done[c - stages + 1] - work;
        const double here = issued[c] + copy;
        const double begin = fmax(now, here);
        const double row = stages == 1 ? 0 : c % stages;
        svg_box(90 + issued[c], y + 26 * row, copy, 22, "b", "%d", c);
        svg_box(90 + begin, y + 26 * stages + 4, work, 22, "a", "%d", c);
        done[c] = now = begin + work;
    }
    for (int s = 0; s < stages; s++)
        svg_text(82, y + 26 * s + 15, "end", "soft", stages == 1 ? "load" : "stage %d",
                 s);
    svg_text(82, y + 26 * stages + 19, "end", "soft", "products");
    svg_line(90 + now, y - 4, 90 + now, y + 26 * stages + 30,
             "stroke:var(--soft);stroke-dasharray:2 3");
    return now;
}

int main(void)
{
    svg_begin(
        720, 275, "Loads before products, and copies behind them",
        "Above: each chunk is loaded, then multiplied, then the next is loaded. "
        "Below: with three stages the copies of two chunks are under way while one "
        "is multiplied, and the products follow one another.");
    svg_text(20, 24, "start", "", "Fourth rung: load, barrier, multiply, barrier");
    play(40, 1, 4);
    svg_text(20, 138, "start", "", "Fifth rung: three stages, one barrier per chunk");
    play(154, 3, 4);
}
