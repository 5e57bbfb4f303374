/* rounding.h -- applies a chunk to [h | M] in the number formats of a tensor core.
 * Book: chapter 19.
 * A unit rounds factors to a number format and adds in float; BF16 also rounds X. */
#pragma once

#include "base/random.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { K = 32, V = 32, C = 32, W = V + K, CHUNKS = 256 };
enum unit { FP32, TF32X3, TF32, BF16, UNITS };

/* A chunk's w, kg [C,K], u [C,V] and G_last [K] of chapter 03, in double. */
struct chunk { double w[C][K], kg[C][K], u[C][V], last[K]; };

/* Rounds to `bits` bits of fraction, to nearest even. */
static inline float keep(float x, int bits)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    const int drop = 23 - bits;
    u += ((1u << (drop - 1)) - 1) + ((u >> drop) & 1);
    u &= ~((1u << drop) - 1);
    memcpy(&x, &u, 4);
    return x;
}

static inline float factor(enum unit f, float x)
{
    if (f == FP32) return x;
    return keep(x, f == BF16 ? 7 : 10);
}

/* Returns the product a b, computed by unit f. Unit TF32X3 also adds the products of
 * one factor and the other factor's rounding error. */
static inline float times(enum unit f, float a, float b)
{
    const float a1 = factor(f, a), b1 = factor(f, b);
    if (f != TF32X3) return a1 * b1;
    return factor(f, a - a1) * b1 + a1 * factor(f, b - b1) + a1 * b1;
}

/* exact() (in double) and rounded() (in a unit) replace X = [h | M] by
 * Lambda X + kg^T ([u | 0] - w X), where Lambda = diag(2^G_last). */
static inline void exact(const struct chunk *c, double X[K][W])
{
    static double y[C][W];
    for (int t = 0; t < C; t++)
        for (int j = 0; j < W; j++) {
            y[t][j] = j < V ? c->u[t][j] : 0;
            for (int p = 0; p < K; p++) y[t][j] -= c->w[t][p] * X[p][j];
        }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++) {
            X[i][j] *= exp2(c->last[i]);
            for (int t = 0; t < C; t++) X[i][j] += c->kg[t][i] * y[t][j];
        }
}

static inline void rounded(const struct chunk *c, enum unit f, float X[K][W])
{
    static float y[C][W];
    for (int t = 0; t < C; t++)
        for (int j = 0; j < W; j++) {
            float s = 0;
            for (int p = 0; p < K; p++)
                s += times(f, (float)c->w[t][p], X[p][j]);
            y[t][j] = (j < V ? (float)c->u[t][j] : 0) - s;
        }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++) {
            float s = 0;
            for (int t = 0; t < C; t++)
                s += times(f, (float)c->kg[t][i], y[t][j]);
            X[i][j] = (float)exp2(c->last[i]) * X[i][j] + s;
            if (f == BF16) X[i][j] = keep(X[i][j], 7);
        }
}

static uint64_t chunk_seed;

static inline double chunk_normal(void) { return random_normal(&chunk_seed); }

/* Draws a random chunk with keys of norm 1. If `strong` is 1, gates decay the state to
 * about 0 within one chunk, otherwise by about half within CHUNKS chunks. */
static inline void chunk_draw(struct chunk *x, int strong)
{
    static double k[C][K], G[C][K], beta[C], L[C][C];
    for (int i = 0; i < C; i++) {
        double n = 0;
        for (int d = 0; d < K; d++) {
            const double z = chunk_normal();
            const double g = strong ? -log1p(exp(-z)) : -fabs(z) / (CHUNKS * C);
            k[i][d] = chunk_normal();
            n += k[i][d] * k[i][d];
            G[i][d] = (i ? G[i - 1][d] : 0) + g / log(2);
        }
        for (int d = 0; d < K; d++) k[i][d] /= sqrt(n);
        beta[i] = 1 / (1 + exp(7 - chunk_normal()));
        for (int v = 0; v < V; v++) x->u[i][v] = beta[i] * chunk_normal();
        for (int d = 0; d < K; d++)
            x->w[i][d] = beta[i] * exp2(G[i][d]) * k[i][d];
    }
    for (int i = 0; i < C; i++)
        for (int j = 0; j < i; j++) {
            L[i][j] = 0;
            for (int d = 0; d < K; d++)
                L[i][j] += beta[i] * k[i][d] * k[j][d] * exp2(G[i][d] - G[j][d]);
            for (int d = 0; d < K; d++) x->w[i][d] -= L[i][j] * x->w[j][d];
            for (int v = 0; v < V; v++) x->u[i][v] -= L[i][j] * x->u[j][v];
        }
    for (int d = 0; d < K; d++) x->last[d] = G[C - 1][d];
    for (int i = 0; i < C; i++)
        for (int d = 0; d < K; d++)
            x->kg[i][d] = exp2(x->last[d] - G[i][d]) * k[i][d];
}
