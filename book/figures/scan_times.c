/* scan_times.c -- chapter 15: recorded times of the walk, scan and chunked forms.
 *
 * book/tables.py writes the input, build/book/results/15-forms.tsv. Columns: K, heads,
 * T, pass (1: backward), milliseconds of walk, scan and chunks (0: not timed). */
#include "svg.h"

#include <math.h>

enum { LEFT = 206, RIGHT = 700, TOP = 40, STEP = 20 };

static double x(double times)
{
    return LEFT + (log10(times) + 2) / 4.4 * (RIGHT - LEFT);
}

static void mark(double at, double y, int back, const char *ink)
{
    printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" style=\"fill:%s;stroke:%s;"
           "stroke-width:1.8\"/>\n", at, y, back ? "var(--paper)" : ink, ink);
}

static void key(double at, double y, int back, const char *ink, const char *name)
{
    mark(at, y - 4, back, ink);
    svg_text(at + 10, y, "start", "", "%s", name);
}

int main(void)
{
    FILE *f = fopen("build/book/results/15-forms.tsv", "r");
    int K, heads, T, back, wasK = 0, was_heads = 0, wasT = 0, n = 0;
    double walk, scan, chunks, y = TOP;
    svg_begin(720, 420, "Scan and chunks against the walk",
              "For each shape how many times as fast as the walk the scan and the "
              "chunked layer are, on a logarithmic scale: the scan wins for one small "
              "head and long tiles, the chunks for heads of 64 and 128 channels.");
    for (double t = 0.01; t < 200; t *= 10) {
        svg_line(x(t), TOP - 14, x(t), 384, t > 0.9 && t < 2 ?
                 "stroke:var(--ink);stroke-width:1.2" : "stroke:var(--line)");
        svg_text(x(t), 400, "middle", "soft", t < 0.9 ? "1/%.0f" : "%.0f",
                 t < 0.9 ? 1 / t : t);
    }
    while (f && fscanf(f, "%d %d %d %d %lf %lf %lf", &K, &heads, &T, &back, &walk,
                       &scan, &chunks) == 7) {
        const int group = K != wasK || heads != was_heads;
        if (group || T != wasT) {
            y += n++ ? STEP + 7 * group : 0;
            svg_line(LEFT, y, RIGHT, y, "stroke:var(--line);stroke-dasharray:1 4");
            svg_text(LEFT - 10, y + 4, "end", "", "%d", T);
            if (group)
                svg_text(8, y + 4, "start", "", "K = %d, %d head%s", K, heads,
                         heads > 1 ? "s" : "");
            wasK = K;
            was_heads = heads;
            wasT = T;
        }
        if (scan > 0)
            mark(x(walk / scan), y, back, "var(--a)");
        if (chunks > 0)
            mark(x(walk / chunks), y, back, "var(--b)");
    }
    svg_text(LEFT - 10, 16, "end", "soft", "tokens");
    key(LEFT + 8, 16, 0, "var(--a)", "scan");
    key(LEFT + 62, 16, 0, "var(--b)", "chunks");
    key(LEFT + 132, 16, 0, "var(--soft)", "forward");
    key(LEFT + 208, 16, 1, "var(--soft)", "backward");
    svg_text((LEFT + RIGHT) / 2.0, 417, "middle", "soft", "times as fast as the walk");
}
