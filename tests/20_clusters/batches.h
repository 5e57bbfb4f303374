/* batches.h -- simulates micro-batches over ranks, from measured times of the parts.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/batches.c.  Next: book/parts.c.
 *
 * A layer's pass on one rank has four parts, as kcp-bench times them: the front end,
 * which needs no state; the sum, which computes the map; the exchange; the main
 * pass. */
#ifndef BOOK_BATCHES_H
#define BOOK_BATCHES_H

#include <math.h>

enum { MOST_BATCHES = 64, MOST_STAGES = 16 };
struct parts { double front, sum, exchange, main; };

/* One batch after another, without overlap. */
static inline double one_by_one(struct parts p, int n)
{
    return n * (p.front + p.sum + p.exchange + p.main);
}

/* The exchange of a batch overlaps the front and sum of the next one. All ranks have
 * the same times, so one is simulated. */
static inline double exchange_hidden(struct parts p, int n)
{
    double compute = 0, wire = 0;
    for (int b = 0; b <= n; b++) {
        const double arrived = wire;            /* the state of batch b - 1 */
        if (b < n) {
            compute += p.front + p.sum;
            wire = fmax(wire, compute) + p.exchange;
        }
        if (b > 0)
            compute = fmax(compute, arrived) + p.main;
    }
    return compute;
}

/* The state is sent from rank to rank and no map is computed: rank r begins the main
 * pass of a batch `hop` after rank r - 1 has finished it. While it waits it computes
 * the fronts of later batches; *held: most unused fronts on any rank. */
static inline double handed_over(struct parts p, double hop, int R, int n, int *held)
{
    double ready[MOST_BATCHES] = { 0 }, last = 0;
    *held = 0;
    for (int r = 0; r < R; r++) {
        double now = 0;
        for (int b = 0, fronts = 0; b < n;) {
            const int can = fronts > b && ready[b] <= now;
            if (!can && fronts < n) {
                now += p.front;
                fronts++;
                *held = fronts - b > *held ? fronts - b : *held;
                continue;
            }
            now = fmax(now, ready[b]) + p.main;
            ready[b++] = now + hop;
        }
        last = now;
    }
    return last;
}

#endif
