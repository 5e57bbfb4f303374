/* precision.c -- prints the error of composed maps in four kinds of arithmetic, by
 * emulation on the host.
 * Book: chapter 19, which shows the output. */
#include "tests/19_precision/rounding.h"

#include <stdio.h>
#include <string.h>

static const char *const unit_name[] = { "fp32", "tf32x3", "tf32", "bf16" };

/* Returns sum (x - y)^2 and sets *norm to sum y^2, both over columns j0..j1-1. */
static double distance(int j0, int j1, float x[K][W], double y[K][W], double *norm)
{
    double d = 0;
    *norm = 0;
    for (int i = 0; i < K; i++)
        for (int j = j0; j < j1; j++) {
            d += (x[i][j] - y[i][j]) * (x[i][j] - y[i][j]);
            *norm += y[i][j] * y[i][j];
        }
    return d;
}

static void identity(double X[K][W], float x[UNITS][K][W])
{
    memset(X, 0, sizeof(double) * K * W);
    memset(x, 0, sizeof(float) * UNITS * K * W);
    for (int i = 0; i < K; i++)
        for (int f = X[i][V + i] = 1, n = f - 1; n < UNITS; n++)
            x[n][i][V + i] = 1;
}

static void growth(int strong)
{
    static double X[K][W];
    static float x[UNITS][K][W];
    static struct chunk c;
    chunk_seed = 7;
    identity(X, x);
    printf("%s gates\nchunks   |M|/sqrt(K)", strong ? "strong" : "live");
    for (int f = 0; f < UNITS; f++) printf("   M %-7s", unit_name[f]);
    printf("  size of bf16 M\n");
    for (int n = 1; n <= (strong ? 4 : CHUNKS); n++) {
        double norm, size = 0;
        chunk_draw(&c, strong);
        exact(&c, X);
        for (int f = 0; f < UNITS; f++) rounded(&c, (enum unit)f, x[f]);
        if (n & (n - 1)) continue;
        printf("%6d", n);
        for (int f = 0; f < UNITS; f++) {
            const double d = distance(V, W, x[f], X, &norm);
            if (f == 0) printf("   %11.3e", sqrt(norm / K));
            printf("   %9.1e", sqrt(d / norm));
        }
        for (int i = 0; i < K; i++)
            for (int j = V; j < W; j++)
                size += (double)x[BF16][i][j] * x[BF16][i][j];
        printf("   %+10.1f %%\n", 100 * (sqrt(size / norm) - 1));
    }
}

/* Applies S <- M_j S + h_j in the order of ranks j; prints the error of S on ranks 3
 * and 7 if each rank sends h, M, both or neither in bf16. */
static void payload(void)
{
    enum { RANKS = 8, ROUND_H = 1, ROUND_M = 2 };
    static const char *const name[] = { "fp32", "h_ext in bf16", "M in bf16",
                                        "both in bf16" };
    static double X[RANKS][K][W];
    static float unused[UNITS][K][W];
    static struct chunk c;
    chunk_seed = 11;
    for (int r = 0; r < RANKS; r++) {
        identity(X[r], unused);
        for (int n = 0; n < CHUNKS / RANKS; n++) {
            chunk_draw(&c, 0);
            exact(&c, X[r]);
        }
    }
    printf("== 19-payload\n%-16s %12s   %20s   %9s\n", "payload", "bytes per head",
           "error of S on rank 3", "on rank 7");
    for (int way = 0; way < 4; way++) {
        static double S[K][V], T[K][V];
        static float s[K][V], t[K][V];
        printf("%-16s %12d", name[way], K * V * (way & ROUND_H ? 2 : 4) +
               K * K * (way & ROUND_M ? 2 : 4));
        memset(S, 0, sizeof S);
        memset(s, 0, sizeof s);
        for (int r = 0; r + 1 < RANKS; r++) {
            double d = 0, norm = 0;
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++) {
                    const float h = (float)X[r][i][v];
                    T[i][v] = X[r][i][v];
                    t[i][v] = way & ROUND_H ? keep(h, 7) : h;
                    for (int p = 0; p < K; p++) {
                        const float M = (float)X[r][i][V + p];
                        T[i][v] += X[r][i][V + p] * S[p][v];
                        t[i][v] += (way & ROUND_M ? keep(M, 7) : M) * s[p][v];
                    }
                }
            memcpy(S, T, sizeof S);
            memcpy(s, t, sizeof s);
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++) {
                    d += (s[i][v] - S[i][v]) * (s[i][v] - S[i][v]);
                    norm += S[i][v] * S[i][v];
                }
            if (r == 2 || r == RANKS - 2)
                printf(r == 2 ? "   %20.1e" : "   %9.1e", sqrt(d / norm));
        }
        printf("\n");
    }
}

/* Prints the judge's error limits; for ALIKE_* prints only bf16's. */
static void tolerances(void)
{
#define TOLERANCE(name, f64, f32, bf16)                                                \
    printf("@answer/19.%s %s\n", #name, #bf16);                                        \
    if (strncmp(#name, "ALIKE", 5))                                                    \
        printf("@answer/19.%s.f32 %s\n@answer/19.%s.f64 %s\n", #name, #f32, #name,     \
               #f64);
#include "tests/judge/tolerance.def"
#undef TOLERANCE
}

int main(void)
{
    tolerances();
    printf("== 19-growth\nK = %d, chunks of %d tokens; relative error of M\n\n", K, C);
    growth(0);
    printf("\n");
    growth(1);
    payload();
    return 0;
}
