/* batches.h -- micro-batches over ranks: who computes what when, from measured parts.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/batches.c.  Next: book/parts.c.
 *
 * A layer's pass on one rank is four parts, as kcp-bench times them: the front end,
 * which needs no state; the sum, which makes the map; the exchange; the main pass. */
#ifndef BOOK_BATCHES_H
#define BOOK_BATCHES_H

#include <math.h>

enum { MOST_BATCHES = 64, MOST_STAGES = 16 };
struct parts { double front, sum, exchange, main; };

/* One batch after another, nothing overlaps. */
static inline double one_by_one(struct parts p, int n)
{
    return n * (p.front + p.sum + p.exchange + p.main);
}

/* The exchange of a batch runs while the next one's front and sum are computed. All
 * ranks do the same, so one stands for all. */
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

/* The state itself goes from rank to rank, and nobody makes a map: rank r begins the
 * main pass of a batch when rank r - 1 has ended it, `hop` later. While it waits it
 * makes the fronts of batches to come; *held: how many it had made and not yet used, at
 * most, on any rank. */
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
