/* model.h -- simulates the events of an exchange, rank by rank.
 * Book: chapter 20.
 * Every assumption is a constant below and is printed with the results. */
#pragma once

#include <math.h>
#include <string.h>

/* Latency `a` is in us, bandwidth `bw` in bytes per us. `inside` is a message between
 * two GPUs of a node, `gathered` an all-gather: fits to times on four H200s, which
 * book/parts.py repeats. `between`, for GPUs of different nodes, is assumed, with one
 * 400 Gbit/s card per GPU. */
struct wire { double a, bw; };
static const struct wire inside = { 7.9, 165e3 }, gathered = { 25.6, 319e3 };
static const struct wire between = { 20, 45e3 };
static const double HV = 32, K = 128, V = 128;
static const double main_ns = 1.0, sum_ns = 0.6;              /* per token and head */

static inline double B(void) { return 4 * HV * K * V; }
static inline double BM(void) { return 4 * HV * K * K; }
/* Times to apply a map and to compose two, measured with 32 heads. Fewer heads take as
 * long, because all blocks run at once. */
static inline double t_MS(void) { return 11.2; }
static inline double t_MM(void) { return 10.7; }

/* gather(), chain() and scan() return the time at which the last of R ranks has its
 * state, if all ranks start at time 0. In scan(), a rank has 1/`share` of the heads. */
static inline double gather(struct wire w, int R)
{
    const double folds = (R > 2 ? R - 2 : 0) * t_MS();
    return R < 2 ? 0 : w.a + (R - 1) * (B() + BM()) / w.bw + folds;
}

static inline double chain(struct wire w, int R, int blocks)
{
    double last = 0, ready[64] = { 0 };
    for (int r = 1; r < R; r++) {
        double unit = 0, wire = 0;
        for (int b = 0; b < blocks; b++) {
            const double sent = fmax(ready[b], wire);
            wire = sent + B() / blocks / w.bw;
            ready[b] = fmax(wire + w.a, unit);
            if (r + 1 < R) unit = ready[b] += t_MS() / blocks;
        }
        last = ready[blocks - 1];
    }
    return last;
}

static inline double scan(struct wire w, int R, double share)
{
    static double W[4096], next[4096];
    double last = 0;
    for (int r = 0; r < R; r++) W[r] = 0;
    for (int d = 1; d < R; d *= 2) {
        for (int r = 0; r < R; r++) {
            next[r] = W[r];
            if (r < d) continue;
            const double got = W[r - d] + w.a + (B() + BM()) / share / w.bw;
            const int on = 2 * d <= R - 1 - r, after = d > 1;
            next[r] = fmax(got, W[r]) + (on + after) * t_MM();
            last = fmax(last, next[r]);
        }
        for (int r = 0; r < R; r++) W[r] = next[r];
    }
    return last;
}

/* Returns the time of an exchange in two levels: a scan in each node, a scan over nodes
 * (node j has the map of nodes 0..j at time node[j]), one state sent in each node. */
static inline double two_levels(int R, int g)
{
    static double node[4096], next[4096];
    double last = 0;
    if (R <= g) return scan(inside, R, 1);
    const int m = R / g;
    for (int j = 0; j < m; j++) node[j] = scan(inside, g, 1);
    for (int d = 1; d < m; d *= 2) {
        memcpy(next, node, sizeof next);
        for (int j = d; j < m; j++) {
            const double got = node[j - d] + between.a + (B() + BM()) / g / between.bw;
            const int on = 2 * d <= m - 1 - j, after = d > 1;
            next[j] = fmax(got, node[j]) + (on + after) * t_MM();
        }
        memcpy(node, next, sizeof node);
    }
    for (int j = 1; j < m; j++)             /* send one state, apply one map */
        last = fmax(last, node[j] + inside.a + B() / inside.bw + t_MS());
    return last;
}
