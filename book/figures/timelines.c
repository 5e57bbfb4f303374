/* timelines.c -- the figure of chapter 07: four forms of the exchange, four ranks.
 *
 * Book: chapter 07.  Checked by: make book-lint.  Next: book/figures/plan.c.
 * Events are simulated from the assumptions below, which the figure prints. */
#include "svg.h"

enum { R = 4, BLOCKS = 4 };

/* microseconds: delay of a message, 2 MiB at 380 GB/s, apply a map, compose two */
static const double a = 10, wire = 5.5, MS = 13, MM = 27;
static const double sum = 24, stop = 150;

static double x(double t) { return 92 + t * 4.1; }

static double larger(double p, double q) { return p > q ? p : q; }

static void bar(double y, double from, double to, const char *wash, const char *ink)
{
    char style[96];
    snprintf(style, sizeof style, "fill:%s;stroke:%s", wash, ink);
    if (to > from)
        svg_rect(x(from), y + 3, x(to) - x(from), 14, style);
}

static double lane(double y0, int r) { return y0 + 22 * r; }

static void head(double y0, const char *name)
{
    svg_text(4, y0 - 6, "start", "", "%s", name);
    for (int r = 0; r < R; r++) {
        svg_text(84, lane(y0, r) + 14, "end", "soft", "rank %d", r);
        svg_line(x(0), lane(y0, r) + 10, x(stop), lane(y0, r) + 10,
                 "stroke:var(--line)");
        bar(lane(y0, r), 0, sum, "var(--wash-a)", "var(--a)");
    }
}

static void main_pass(double y0, int r, double from)
{
    bar(lane(y0, r), from, stop, "var(--wash-c)", "var(--c)");
}

static void arrow(double y0, int from, double t0, int to, double t1)
{
    svg_arrow(x(t0), lane(y0, from) + 12, x(t1), lane(y0, to) + 8, "var(--b)");
}

static void gather(double y0)
{
    const double got = sum + a + (R - 1) * 2 * wire;
    head(y0, "All-gather and fold");
    for (int r = 0; r < R; r++) {
        const int folds = r > 1 ? r - 1 : 0;
        bar(lane(y0, r), sum, got, "var(--wash-b)", "var(--b)");
        bar(lane(y0, r), got, got + folds * MS, "var(--b)", "var(--b)");
        main_pass(y0, r, got + folds * MS);
    }
}

/* One block is the plain chain; the columns of S go on independently. */
static void chain(double y0, int blocks, const char *name)
{
    double ready[BLOCKS]; /* when the sender has block b of the state */
    head(y0, name);
    main_pass(y0, 0, sum);
    for (int b = 0; b < blocks; b++)
        ready[b] = sum;
    for (int r = 1; r < R; r++) {
        double free = sum, wire_free = 0;
        for (int b = 0; b < blocks; b++) {
            const double sent = larger(ready[b], wire_free);
            const double here = sent + a + wire / blocks;
            wire_free = sent + wire / blocks;
            arrow(y0, r - 1, sent, r, here);
            const double start = larger(here, free);
            free = r < R - 1 ? start + MS / blocks : here;
            if (r < R - 1)
                bar(lane(y0, r), start, free, "var(--b)", "var(--b)");
            ready[b] = free;
        }
        main_pass(y0, r, free);
    }
}

/* At distance d a rank hands on W, the composed maps that end with its own, and keeps
 * X, the same without its own: h of X is the state it waits for. comm/form/scan.c. */
static void scan(double y0)
{
    double W[R], state[R], next[R];
    head(y0, "Scan");
    for (int r = 0; r < R; r++)
        W[r] = state[r] = sum;
    for (int d = 1; d < R; d *= 2) {
        for (int r = 0; r < R; r++) {
            next[r] = W[r];
            if (r < d)
                continue;
            const double here = larger(W[r - d] + a + 2 * wire, W[r]);
            arrow(y0, r - d, W[r - d], r, here);
            double t = here;
            if (2 * d <= R - 1 - r)                     /* W will be asked for again */
                t += MM;
            if (d > 1)                                  /* the first X is only copied */
                t += MM;
            bar(lane(y0, r), here, t, "var(--b)", "var(--b)");
            next[r] = state[r] = t;
        }
        for (int r = 0; r < R; r++)
            W[r] = next[r];
    }
    for (int r = 0; r < R; r++)
        main_pass(y0, r, state[r]);
}

int main(void)
{
    svg_begin(720, 506, "Four forms of the exchange as timelines",
              "Four ranks under each form. All-gather: one collective on all ranks, "
              "then folds that grow "
              "with the rank. Chain: one hop after the other. Pipelined chain: the "
              "same in four "
              "overlapping blocks. Scan: two rounds of receiving and composing.");
    gather(26);
    chain(146, 1, "Chain");
    chain(266, BLOCKS, "Chain, pipelined over four blocks of V");
    scan(386);
    svg_text(
        92, 494, "start", "soft",
        "assumed, in us: a message %.0f, 2 MiB %.1f, applying a map %.0f, "
        "composing two %.0f; left, the map's pass",
        a, wire, MS, MM);
    svg_end();
    return 0;
}
