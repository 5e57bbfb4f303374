/* batches.h -- simulates micro-batches over ranks from measured times of parts.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/checks.c.  Next: book/parts.c.
 *
 * A layer's pass on one rank has four parts, which kcp-bench times separately: `front`
 * (needs no state), `sum` (computes the map), `exchange`, and `main`. */
#ifndef BOOK_BATCHES_H
#define BOOK_BATCHES_H

#include <math.h>

enum { MOST_BATCHES = 64, MOST_STAGES = 16 };
struct parts { double front, sum, exchange, main; };

/* Returns the time of n batches, one after another, without overlap. */
static inline double one_by_one(struct parts p, int n)
{
    return n * (p.front + p.sum + p.exchange + p.main);
}

/* Returns the time if the exchange of a batch overlaps front and sum of the next batch.
 * All ranks take the same time, so only one rank is simulated. */
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

/* Returns the time if no map is computed and the state goes from rank to rank: for
 * each batch, rank r begins its main part a time `hop` after rank r - 1 has finished
 * its main part. A waiting rank computes the fronts of later batches; *held is the
 * maximum of unused fronts on any rank. */
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
