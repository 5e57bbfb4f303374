/* log.c -- the figure of appendix B: how far each outcome was from its prediction.
 *
 * book/tables.py writes the input, build/book/results/log.tsv. Columns: 1 for backward,
 * 1 for GDN, measured / predicted time, the row's text. */
#include "plot.h"

enum { MOST_PAIRS = 96 };

struct pair { double ratio; int backward, gdn; char what[40]; };

/* Prints a summary of the rows of one pass, forward or backward. */
static void sum_up(const struct pair *pairs, int n, int backward, double x)
{
    int all = 0, near = 0, faster = 0;
    for (int i = 0; i < n; i++) {
        if (pairs[i].backward != backward) continue;
        all++;
        if (fabs(log(pairs[i].ratio)) <= log(1.1)) near++;
        else if (pairs[i].ratio < 1) faster++;
    }
    svg_text(x, 34, "start", "", "%s: %d predictions",
             backward ? "backward" : "forward", all);
    svg_text(x, 52, "start", "soft", "%d within a tenth, %d slower, %d faster", near,
             all - near - faster, faster);
}

int main(void)
{
    static struct pair pairs[MOST_PAIRS];
    FILE *in = fopen("build/book/results/log.tsv", "r");
    int n = 0;
    for (struct pair *p = pairs; in && n < MOST_PAIRS; p++, n++)
        if (fscanf(in, "%d %d %lf %39[^\n]%*[^\n]", &p->backward, &p->gdn, &p->ratio,
                   p->what) != 4)
            break;
    const struct frame f = { 0, 1, log10(0.75), log10(7.5), 46, 708, 64, 300 };
    const double step = (f.x1 - f.x0 - 24) / (n > 1 ? n - 1 : 1);
    static const double at[] = { 1, 1.5, 2, 3, 5, 7 };
    svg_begin(720, 346, "Measured time divided by the predicted one, row by row",
              "Most outcomes are slower than predicted. The first prediction of all "
              "was off by the most; of the later ones half are right to a tenth.");
    svg_text(4, 14, "start", "soft", "measured / predicted");
    for (int i = 0; i < 6; i++) {
        const double y = frame_y(&f, at[i]);
        svg_line(f.x0, y, f.x1, y,
                 i ? "stroke:var(--line)"
                   : "stroke:var(--ink);stroke-dasharray:5 4");
        svg_text(f.x0 - 8, y + 4, "end", "soft", "%g", at[i]);
    }
    int first = 0;
    while (first < n && !pairs[first].backward) first++;
    const double cut = f.x0 + 12 + (first - 0.5) * step;
    svg_line(cut, 22, cut, f.y1, "stroke:var(--line)");
    sum_up(pairs, n, 0, f.x0 + 110);
    sum_up(pairs, n, 1, cut + 8);
    for (int i = 0; i < n; i++) {
        const double x = f.x0 + 12 + i * step, y = frame_y(&f, pairs[i].ratio);
        svg_dot(x, y, 3.4, pairs[i].gdn ? "var(--b)" : "var(--a)");
        if (pairs[i].ratio > 1.6)
            svg_text(x + 9, y + (y < f.y0 + 30 ? 12 : 4), "start", "", "%s",
                     pairs[i].what);
    }
    svg_text((f.x0 + f.x1) / 2, f.y1 + 20, "middle", "soft",
             "the rows of the tables that name both times, in their order");
    svg_rect(f.x0 + 12, f.y1 + 32, 10, 10, "fill:var(--a)");
    svg_text(f.x0 + 28, f.y1 + 41, "start", "soft", "one gate per channel (KDA)");
    svg_rect(f.x0 + 212, f.y1 + 32, 10, 10, "fill:var(--b)");
    svg_text(f.x0 + 228, f.y1 + 41, "start", "soft", "one gate per head (GDN)");
}
