/* ladder_roles.c -- chapter 17: a trace of a producer, its copies and two warpgroups.
 *
 * book/data/ladder-trace.tsv was recorded by ladder_trace.cu. */
#include "svg.h"

enum { MOST = 16, STAGES = 4, FROM = -6000, TO = 26400 };

/* Cycles of one chunk: announced by the producer, all bytes in; for each group: wait
 * begins, wait ends, w S is computed, S is updated, the stage is released. */
struct chunk { int c; double announced, full, group[2][5]; };

static double x(double cycle)
{
    cycle = cycle < FROM ? FROM : cycle > TO ? TO : cycle;
    return 104 + (cycle - FROM) * 608 / (TO - FROM);
}

static void bar(double from, double to, double y, const char *ink, const char *fmt,
                int c)
{
    const double width = x(to) - x(from);
    if (to > FROM && from < TO)
        svg_box(x(from), y, width, 22, ink, width > 24 ? fmt : "", c);
}

int main(void)
{
    struct chunk k[MOST];
    char line[512];
    int n = 0;
    FILE *f = fopen("book/data/ladder-trace.tsv", "r");
    while (f && fgets(line, sizeof line, f) && n < MOST) {
        struct chunk *a = &k[n];
        double *g = a->group[0], *h = a->group[1];
        n += sscanf(line, "%d %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf", &a->c,
                    &a->announced, &a->full, g, g + 1, g + 2, g + 3, g + 4, h, h + 1,
                    h + 2, h + 3, h + 4) == 13;
    }
    if (!n) return 1;
    svg_begin(720, 282, "Trace of the eighth rung: copies and two warpgroups",
              "Four rows of copies, one per stage, each from its announcement to the "
              "arrival of its bytes; below two warpgroups. A copy is announced when "
              "both groups have released its stage.");
    for (int i = 0; i < n; i++) {
        const double y = 26 + 28 * (k[i].c % STAGES);
        bar(k[i].announced, k[i].full, y, "b", "copy %d", k[i].c);
        if (k[i].announced > FROM)
            svg_line(x(k[i].announced), y - 3, x(k[i].announced), y + 25,
                     "stroke:var(--d);stroke-width:3");
        for (int g = 0; g < 2; g++) {
            const double *t = k[i].group[g], at = 158 + 40 * g;
            bar(t[1], t[2], at, "a", "", k[i].c);
            bar(t[2], t[4], at, "c", "%d", k[i].c);
            if (t[4] < TO)
                svg_line(x(t[4]), at - 3, x(t[4]), at + 25,
                         "stroke:var(--d);stroke-width:3");
        }
    }
    svg_moves(104, 712, 20, 226, 8);
    for (int s = 0; s < STAGES; s++)
        svg_text(96, 42 + 28 * s, "end", "", "TMA, stage %d", s);
    svg_text(96, 173, "end", "", "group 0");
    svg_text(96, 213, "end", "", "group 1");
    for (int t = 0; t <= TO; t += 8000) {
        svg_line(x(t), 226, x(t), 232, "stroke:var(--ink)");
        svg_text(x(t), 246, "middle", "soft", "%d", t);
    }
    svg_text(96, 246, "end", "soft", "cycles");
    svg_text(104, 272, "start", "soft",
             "violet: announced, released; blue: w S; green: v_new and the state");
}
