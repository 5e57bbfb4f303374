/* straight.c -- a figure of chapter 19: bf16 turns a diagonal into straight lines. */
#include "base/bf16.h"
#include "svg.h"

#include <math.h>

static double px(double n) { return 60 + n * 2.1; }
static double py(double m) { return 290 - 260 * m; }

static void curve(int rounded, const char *ink)
{
    double m = 1;
    printf("<path d=\"");
    for (int n = 0; n <= 256; n++) {
        printf("%c%.1f %.1f", n ? 'L' : 'M', px(n), py(m));
        m *= exp(-0.0046);
        m = rounded ? bf16_value(bf16_of(m)) : m;
    }
    printf("\" style=\"fill:none;stroke:%s;stroke-width:2\"/>\n", ink);
    svg_text(px(256) + 8, py(m) + (rounded ? 10 : -2), "start", "", "%s",
             rounded ? "bf16" : "exact");
}

int main(void)
{
    svg_begin(720, 336, "An element of the diagonal over 256 chunks",
              "The exact element falls as an exponential to 0.31. Rounded to bf16 "
              "in every chunk it falls along a straight line to one half at 128, "
              "then along a flatter one to a quarter at 256.");
    for (int e = 0; e <= 4; e++) {
        svg_line(px(0), py(e / 4.0), px(256), py(e / 4.0), "stroke:var(--line)");
        svg_text(px(0) - 8, py(e / 4.0) + 4, "end", "soft", "%.2f", e / 4.0);
        svg_line(px(64 * e), py(0), px(64 * e), py(1), "stroke:var(--line)");
        svg_text(px(64 * e), py(0) + 18, "middle", "soft", "%d", 64 * e);
    }
    curve(0, "var(--a)");
    curve(1, "var(--b)");
    svg_text(px(68), py(0.93), "start", "soft", "one unit, 1/256,");
    svg_text(px(68), py(0.87), "start", "soft", "per chunk");
    svg_text(px(132), py(0.33), "start", "soft", "below one half");
    svg_text(px(132), py(0.27), "start", "soft", "a unit is 1/512");
    svg_text(px(128), py(0) + 38, "middle", "soft", "chunks");
    svg_text(4, 14, "start", "soft", "element of the diagonal of M");
}
