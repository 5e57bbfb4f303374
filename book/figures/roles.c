/* roles.c -- a figure of chapter 18: the warp roles of the scan and of the one kernel.
 *
 * Shows in which order each warp works on two chunks or steps; not to scale. */
#include "svg.h"

static void lane(double y, const char *name, const char *more)
{
    svg_text(4, y + 12, "start", "", "%s", name);
    svg_text(4, y + 27, "start", "soft", "%s", more);
    svg_line(150, y + 15, 712, y + 15, "stroke:var(--line)");
}

/* Draws a box of one lane from `from` to `to`; `step` is the %d of its text. */
static void doing(double y, double from, double to, const char *ink, const char *what,
                  int step)
{
    svg_box(150 + from, y, to - from - 1, 30, ink, what, step);
}

static void consumer(double y, double at, int chunk)
{
    doing(y, at, at + 78, "b", "y=v-k~S %d", chunk);
    doing(y, at + 78, at + 136, "b", "A beta y", 0);
    doing(y, at + 136, at + 222, "b", "\u039bS + kg'v", 0);
    if (chunk)
        doing(y + 33, at + 36, at + 92, "c", "o 0 out", 0);
    doing(y + 33, at + 92, at + 222, "b", "qg S, Aqk v: o", 0);
}

static void scan(double y)
{
    static const char *const names[] = { "Aqk %d", "qg %d", "A beta, kg %d",
                                         "k~ and v %d" };
    svg_text(4, y, "start", "", "scan of two kernels: four pipelines, two chunks");
    for (int p = 0; p < 4; p++) {
        const double lag[] = { 60, 60, 30, 0 };
        lane(y + 12 + 36 * p, p ? "" : "4 producer warps", "");
        for (int c = 0; c < 3; c++)
            doing(y + 12 + 36 * p, lag[p] + c * 160, lag[p] + c * 160 + 110, "d",
                  names[p], c);
    }
    lane(y + 162, "consumer", "warpgroups");
    consumer(y + 162, 112, 0);
    consumer(y + 162, 336, 1);
    svg_arrow(262, y + 144, 268, y + 160, "var(--ink)");
    svg_line(294, y + 100, 294, y + 153, "stroke:var(--ink);stroke-width:1.5");
    svg_arrow(294, y + 153, 338, y + 161, "var(--ink)");
    svg_arrow(350, y + 160, 466, y + 146, "var(--soft)");
    svg_text(500, y + 246, "start", "soft", "strong arrows: full; pale: released");
}

/* Draws a barrier: an arrow from the role that arrives to the role that waits. */
static void barrier(double x0, double y0, double x1, double y1, const char *name)
{
    svg_arrow(150 + x0, y0, 150 + x1, y1, "var(--ink)");
    svg_text(150 + x1 + 5, y1 - 3, "start", "soft", "%s", name);
}

static void triangles(double y, double at, int step)
{
    doing(y + 92, at, at + 62, "a", "factor %d", step);
    doing(y + 136 + 44 * step, at, at + 150, "b", "L, A beta %d", step);
    doing(y + 224, at, at + 100, "b", "Aqk %d", step);
}

static void walk(double y, double at, int step)
{
    doing(y, at, at + 86, "b", "qf S, kf S %d", step);
    doing(y, at + 86, at + 144, "b", "A beta y", 0);
    doing(y, at + 144, at + 184, "b", "o, S", 0);
}

static void one_kernel(double y)
{
    svg_text(4, y - 10, "start", "", "one kernel: six stages, two steps");
    lane(y + 4, "loads", "1 warp");
    lane(y + 48, "gates", "8 warps");
    lane(y + 92, "decay", "the warp that loads");
    lane(y + 136, "inverse", "warp 0: even steps");
    lane(y + 180, "", "warp 1: odd steps");
    lane(y + 224, "queries", "1 warp");
    lane(y + 268, "scan", "8 warps");
    barrier(46, y + 34, 54, y + 47, "raw");
    barrier(112, y + 78, 122, y + 91, "gated");
    barrier(182, y + 122, 190, y + 267, "");
    barrier(268, y + 166, 276, y + 267, "");
    barrier(222, y + 254, 300, y + 267, "scored");
    svg_text(150 + 192, y + 134, "start", "soft", "decayed");
    svg_text(150 + 277, y + 178, "start", "soft", "inverted");
    svg_arrow(150 + 440, y + 267, 150 + 452, y + 35, "var(--soft)");
    svg_text(150 + 456, y + 126, "start", "soft", "empty: stage read,");
    svg_text(150 + 456, y + 142, "start", "soft", "o 0 has left");
    for (int i = 0; i < 4; i++)
        doing(y + 4, i < 3 ? 52 * i : 448, i < 3 ? 52 * i + 52 : 500, "d", "rows %d",
              i < 3 ? i : 6);
    for (int i = 0; i < 2; i++)
        doing(y + 48, 54 + 64 * i, 118 + 64 * i, "a", "gate %d", i);
    triangles(y, 122, 0);
    triangles(y, 224, 1);
    walk(y + 268, 188, 0);
    walk(y + 268, 374, 1);
}

int main(void)
{
    svg_begin(720, 600, "Warp roles of the scan and of the forward in one kernel",
              "Scan: four producer warps copy factors ahead; consumer warpgroups "
              "make three products in series per chunk; the output leaves beside the "
              "next. One kernel: loads, gates, inverse, queries and decay work on "
              "later steps while the scan multiplies; barriers raw, gated, decayed, "
              "inverted, scored and empty join them.");
    scan(18);
    one_kernel(292);
}
