/* strips.c -- the figure of chapter 08: one head's segment whole, and cut into strips.
 *
 * Lengths are the operations that chapter 08 counts, in millions. */
#include "svg.h"

enum { C = 64, K = 128, V = 128, STRIPS = 4, HEADS = 32, SMS = 132 };

static double x(double operations) { return 76 + 13.2 * operations; }

/* Draws one step of `operations` millions, and returns where the step ends. */
static double bar(double from, double y, double operations, const char *ink,
                  const char *name)
{
    svg_box(x(from), y, 13.2 * operations - 2, 24, ink, name);
    return from + operations;
}

static void processors(double y, int busy)
{
    for (int i = 0; i < SMS; i++)
        svg_rect(76 + 4.6 * i, y, 4, 10,
                 i < busy ? "fill:var(--c)" : "fill:var(--line)");
    svg_text(76, y + 26, "start", "soft", "%d heads, %d of %d processors busy", HEADS,
             busy, SMS);
}

int main(void)
{
    const double factors = (4.0 * C * C * K + 2.0 * C * C * (K + V)) / 1e6;
    const double map = 4.0 * C * K * (K + V) / 1e6;
    const double scan = (6.0 * C * K * V + 2.0 * C * C * V) / 1e6;
    svg_begin(720, 306, "One segment whole, and cut into four strips",
              "A whole segment takes the steps of its four chunks one after another. "
              "Its four strips make factors and maps at the same time, fold, and then "
              "scan at the same time.");
    svg_text(70, 41, "end", "", "whole");
    double t = bar(0, 24, STRIPS * factors, "d", "2 factors");
    t = bar(t, 24, STRIPS * scan, "c", "5 scan");
    svg_text(x(t) - 2, 82, "end", "mono", "%.1f", t);
    processors(56, HEADS);
    for (int s = 0; s < STRIPS; s++) {
        const double y = 104 + 38 * s;
        svg_text(70, y + 17, "end", "", "strip %d", s);
        t = bar(0, y, factors, "d", "2");
        t = bar(t, y, map, "a", "3 map");
        if (s < STRIPS - 1)
            svg_arrow(x(t) - 1, y + 24, x(t) - 1, y + 38, "var(--b)");
        t = bar(t, y, scan, "c", "5 scan");
    }
    svg_text(x(t) + 8, 121, "start", "mono", "%.1f", t);
    processors(264, STRIPS * HEADS);
}
