/* timelines.c -- the figure of chapter 07: four forms of the exchange on four ranks.
 *
 * Drawn to scale. Times were measured on four H200s (book/data/exchange.tsv). */
#include "svg.h"

#include <stdlib.h>
#include <string.h>

enum { R = 4, BLOCKS = 4, ARROWS = 64 };

/* Microseconds: messages with a state, a map and a block of a state take state_us,
 * map_us and block_us; all-gather, applying and composing maps take gather_us, apply_us
 * and compose_us; the pass that computes maps takes `sum`, the main pass `rest`. */
static double state_us, map_us, block_us, gather_us, apply_us, compose_us, sum, rest;

static double x(double t) { return 92 + (t - sum + 60) * 1.62; }
static double larger(double p, double q) { return p > q ? p : q; }
static double lane(double y0, int r) { return y0 + 22 * r; }

/* Arrows are drawn last, above the bars. */
static struct { double x1, y1, x2, y2; int headless; } arrows[ARROWS];
static int narrows;

static void arrow(double y0, int from, double t0, int to, double t1)
{
    arrows[narrows].x1 = x(t0);
    arrows[narrows].y1 = lane(y0, from) + 17;
    arrows[narrows].x2 = x(t1);
    arrows[narrows++].y2 = lane(y0, to) + 4;
}

static void bar(double y, double from, double to, const char *wash, const char *ink)
{
    from = larger(from, sum - 60);
    if (to > from)
        svg_rect(x(from), y + 3, x(to) - x(from), 14, "fill:%s;stroke:%s", wash, ink);
}

static double shown(void) { return sum + 325; }

static void head(double y0)
{
    for (int r = 0; r < R; r++) {
        svg_text(84, lane(y0, r) + 14, "end", "soft", "rank %d", r);
        svg_line(x(sum - 60), lane(y0, r) + 10, x(shown()), lane(y0, r) + 10,
                 "stroke:var(--line)");
        bar(lane(y0, r), 0, sum, "var(--wash-a)", "var(--a)");
    }
}

static void main_pass(double y0, int r, double from)
{
    bar(lane(y0, r), from, shown(), "var(--wash-c)", "var(--c)");
    svg_text(x(shown()) - 6, lane(y0, r) + 14, "end", "mono", "+%.0f \u00b5s",
             from - sum);
}

static void gather(double y0)
{
    const double got = sum + gather_us;
    head(y0);
    for (int r = 0; r < R; r++) {
        const int folds = r > 1 ? r - 1 : 0;
        bar(lane(y0, r), sum, got, "var(--wash-b)", "var(--b)");
        bar(lane(y0, r), got, got + folds * apply_us, "var(--b)", "var(--b)");
        main_pass(y0, r, got + folds * apply_us);
    }
}

/* Draws the chain with the columns of S cut into `blocks` messages, which do not wait
 * for one another. With one block this is the plain chain. */
static void chain(double y0, int blocks)
{
    const double message = blocks > 1 ? block_us : state_us;
    const double wire = (map_us - state_us) / blocks;        /* of one message */
    double ready[BLOCKS]; /* when the sender has block b of the state */
    head(y0);
    main_pass(y0, 0, sum);
    for (int b = 0; b < blocks; b++)
        ready[b] = sum;
    for (int r = 1; r < R; r++) {
        double free = sum, wire_free = 0;
        for (int b = 0; b < blocks; b++) {
            const double sent = larger(ready[b], wire_free), here = sent + message;
            wire_free = sent + wire;
            arrow(y0, r - 1, sent, r, here);       /* without arrow heads between */
            arrows[narrows - 1].headless = b > 0 && b < blocks - 1;
            const double start = larger(here, free);
            free = r < R - 1 ? start + apply_us / blocks : here;
            if (r < R - 1)
                bar(lane(y0, r), start, free, "var(--b)", "var(--b)");
            ready[b] = free;
        }
        main_pass(y0, r, free);
    }
}

/* Draws the scan of comm/form/scan.c. In the round with distance d, rank r sends W to
 * rank r + d; W composes map r and up to d - 1 maps before map r. X composes all maps
 * before map r; the h of X is the initial state of rank r. */
static void scan(double y0)
{
    double W[R], state[R], next[R];
    head(y0);
    for (int r = 0; r < R; r++)
        W[r] = state[r] = sum;
    for (int d = 1; d < R; d *= 2) {
        for (int r = 0; r < R; r++) {
            next[r] = W[r];
            if (r < d)
                continue;
            const double here = larger(W[r - d] + map_us, W[r]);
            arrow(y0, r - d, W[r - d], r, here);
            double t = here;
            if (2 * d <= R - 1 - r)                     /* W is sent again */
                t += compose_us;
            if (d > 1)                                  /* if d = 1, X is a copy of W */
                t += compose_us;
            bar(lane(y0, r), here, t, "var(--b)", "var(--b)");
            next[r] = state[r] = t;
        }
        for (int r = 0; r < R; r++)
            W[r] = next[r];
    }
    for (int r = 0; r < R; r++)
        main_pass(y0, r, state[r]);
}

static int measured(void)
{
    static const struct { const char *name; double *at; } want[] = {
        { "state", &state_us }, { "map", &map_us }, { "block", &block_us },
        { "gather", &gather_us }, { "apply", &apply_us }, { "compose", &compose_us },
        { "sum", &sum }, { "main", &rest } };
    char line[256], name[32];
    double us;
    int n = 0;
    FILE *f = fopen("book/data/exchange.tsv", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%31[^\t]\t%lf", name, &us) == 2)
            for (int i = 0; i < 8; i++)
                if (!strcmp(want[i].name, name)) {
                    *want[i].at = us;
                    n++;
                }
    if (f)
        fclose(f);
    return n == 8;
}

int main(void)
{
    if (!measured()) {
        fprintf(stderr, "timelines: book/data/exchange.tsv lacks a time\n");
        return 1;
    }
    svg_begin(720, 532, "Four forms of the exchange as timelines",
              "Four ranks under each form. All-gather: one collective on all ranks, "
              "then folds that grow with the rank. Chain: one hop after the other. "
              "Pipelined chain: the same in four overlapping blocks. Scan: two rounds "
              "of receiving and composing.");
    gather(26);
    chain(146, 1);
    chain(266, BLOCKS);
    scan(386);
    for (int i = 0; i < narrows; i++)
        if (arrows[i].headless)
            svg_line(arrows[i].x1, arrows[i].y1, arrows[i].x2, arrows[i].y2,
                     "stroke:var(--ink)");
        else
            svg_arrow(arrows[i].x1, arrows[i].y1, arrows[i].x2, arrows[i].y2,
                      "var(--ink)");
    svg_moves(x(sum - 60), 716, 16, 478, 12);
    svg_text(4, 20, "start", "", "All-gather and fold");
    svg_text(4, 140, "start", "", "Chain");
    svg_text(4, 260, "start", "", "Chain, pipelined over four blocks of V");
    svg_text(4, 380, "start", "", "Scan");
    svg_text(92, 496, "start", "soft",
             "Measured, in \u00b5s. To send a state: %.1f; a map: %.1f; a quarter of a "
             "state: %.1f; the all-gather: %.1f.",
             state_us, map_us, block_us, gather_us);
    svg_text(92, 514, "start", "soft",
             "To apply a map: %.1f; to compose two: %.1f. Cut off: the maps' "
             "pass, %.0f, and the main pass, %.0f.", apply_us, compose_us, sum, rest);
}
