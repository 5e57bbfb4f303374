/* proposals.c -- what some of the sources' optimisations would cost, measured.
 *
 * Book: chapter 20, which shows what this prints.  Checked by: make book.
 * Next: book/figures/roofline.c.
 *
 * Tokens are drawn as chapter 05's figure draws them: random
 * unit keys, gates of a given mean, beta = sigmoid(N(b,1)); K = V = 64. */
#include "tests/random.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { K = 64, V = 64, W = V + K, RANKS = 8, SHARD = 512 };
struct regime { const char *name; double strength, beta; };
static const struct regime regimes[] = {
    { "no decay, small beta", 0, -7 }, { "mean gate 1/1024", 1.25 / 1024, -3 },
    { "mean gate 1/128", 1.25 / 128, -3 }, { "strong gates", -1, 0 } };
enum { REGIMES = sizeof regimes / sizeof *regimes };

static uint64_t seed;

static double normal(void) { return random_normal(&seed); }

/* X = [h | M] <- the map of one token after it; writes with beta under `least` are
 * skipped. How many were is counted. */
static void token(const struct regime *g, double least, double X[K][W], int *skipped)
{
    double k[K], v[V], e[W] = { 0 }, length = 0;
    for (int i = 0; i < K; i++) {
        k[i] = normal();
        length += k[i] * k[i];
    }
    for (int j = 0; j < V; j++)
        v[j] = normal();
    const double beta = 1 / (1 + exp(-g->beta - normal())), unit = 1 / sqrt(length);
    for (int i = 0; i < K; i++) {
        const double z = normal();
        const double own = g->strength < 0 ? -log1p(exp(-z)) : -g->strength * fabs(z);
        const double fade = exp(own);
        k[i] *= unit;
        for (int j = 0; j < W; j++) {
            X[i][j] *= fade;
            e[j] -= k[i] * X[i][j];
        }
    }
    *skipped += beta < least;
    for (int i = 0; i < K && beta >= least; i++)
        for (int j = 0; j < W; j++)
            X[i][j] += beta * k[i] * (e[j] + (j < V ? v[j] : 0));
}

static int stretch(const struct regime *g, int tokens, double least, double X[K][W])
{
    int skipped = 0;
    memset(X, 0, sizeof(double) * K * W);
    for (int i = 0; i < K; i++)
        X[i][V + i] = 1;
    for (int t = 0; t < tokens; t++)
        token(g, least, X, &skipped);
    return skipped;
}

/* Singular values by one-sided Jacobi: columns are turned until they are orthogonal. */
static void singular(double A[K][K], double s[K])
{
    for (int sweep = 0; sweep < 12; sweep++)
        for (int p = 0; p < K; p++)
            for (int q = p + 1; q < K; q++) {
                double a = 0, b = 0, c = 0;
                for (int i = 0; i < K; i++) {
                    a += A[i][p] * A[i][p];
                    b += A[i][q] * A[i][q];
                    c += A[i][p] * A[i][q];
                }
                if (fabs(c) <= 1e-14 * sqrt(a * b) || c == 0)
                    continue;
                const double z = (b - a) / (2 * c);
                const double t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z));
                const double co = 1 / sqrt(1 + t * t), si = co * t;
                for (int i = 0; i < K; i++) {
                    const double x = A[i][p], y = A[i][q];
                    A[i][p] = co * x - si * y;
                    A[i][q] = si * x + co * y;
                }
            }
    for (int p = 0; p < K; p++) {
        s[p] = 0;
        for (int i = 0; i < K; i++)
            s[p] += A[i][p] * A[i][p];
        s[p] = sqrt(s[p]);
    }
}

/* The least rank whose best approximation is off by 1 % at most. */
static int rank_for_a_percent(double A[K][K])
{
    double s[K], all = 0, left = 0;
    int n = K;
    singular(A, s);
    for (int p = 0; p < K; p++) {
        for (int q = p; q > 0 && s[q] > s[q - 1]; q--) {
            const double x = s[q];
            s[q] = s[q - 1];
            s[q - 1] = x;
        }
        all += s[p] * s[p];
    }
    for (int p = K - 1; p >= 0 && (left += s[p] * s[p]) <= 1e-4 * all; p--)
        n = p;
    return n;
}

static double size(double A[K][K])
{
    double s = 0;
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++)
            s += A[i][j] * A[i][j];
    return sqrt(s / K);
}

/* M - I, M and S of one rank: how large, and of which rank to one per cent. */
static void low_rank(void)
{
    static double X[K][W], A[K][K];
    printf("== 19-low-rank\none rank of %d tokens, K = V = %d; sizes as |.|_F / "
           "sqrt(K);\nranks that keep the error under 1 %%\n\n", SHARD, K);
    printf("gates                   |M - I|       |M|   rank of M - I   rank of M   "
           "rank of S\n");
    for (int g = 0; g < REGIMES; g++) {
        int rank[3];
        double large[2];
        seed = 3;
        stretch(&regimes[g], SHARD, 0, X);
        for (int what = 0; what < 3; what++) {
            for (int i = 0; i < K; i++)
                for (int j = 0; j < K; j++)
                    A[i][j] = what == 2 ? X[i][j] : X[i][V + j] - (what == 0 && i == j);
            if (what < 2)
                large[what] = size(A);
            rank[what] = rank_for_a_percent(A);
        }
        printf("%-20s %10.1e %9.1e %15d %11d %11d\n", regimes[g].name, large[0],
               large[1], rank[0], rank[1], rank[2]);
    }
}

static double apart(double x[K][V], double y[K][V])
{
    double d = 0, n = 0;
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            d += (x[i][v] - y[i][v]) * (x[i][v] - y[i][v]);
            n += y[i][v] * y[i][v];
        }
    return sqrt(d / n);
}

/* S <- M_j S + h_j from rank `from` on. */
static void fold(double X[RANKS][K][W], int from, double S[K][V])
{
    static double T[K][V];
    memset(S, 0, sizeof(double) * K * V);
    for (int r = from; r < RANKS - 1; r++) {
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                T[i][v] = X[r][i][v];
                for (int p = 0; p < K; p++)
                    T[i][v] += X[r][i][V + p] * S[p][v];
            }
        memcpy(S, T, sizeof T);
    }
}

/* What the last rank begins with, when it listens to its nearest ranks only. */
static void truncated(void)
{
    static double X[RANKS][K][W], S[K][V], near[K][V];
    printf("== 19-truncated\nthe state with which rank %d of %d begins, ranks of %d "
           "tokens: error when only\nthe nearest ranks count\n\n", RANKS - 1, RANKS,
           SHARD);
    printf("gates                  nearest        two       four\n");
    for (int g = 1; g < REGIMES; g++) {
        seed = 4;
        for (int r = 0; r < RANKS; r++)
            stretch(&regimes[g], SHARD, 0, X[r]);
        fold(X, 0, S);
        printf("%-20s", regimes[g].name);
        for (int n = 1; n <= 4; n *= 2) {
            fold(X, RANKS - 1 - n, near);
            printf(" %10.1e", apart(near, S));
        }
        printf("\n");
    }
}

/* Writes with a small beta left out. */
static void skipped(void)
{
    static const double least[] = { 0.005, 0.01, 0.02, 0.05 };
    static double X[K][W], Y[K][W], x[K][V], y[K][V];
    printf("== 19-skipped\na rank of %d tokens, beta = sigmoid(N(-3,1)), mean gate "
           "1/1024\n\nbeta under   left out   error of S\n", SHARD);
    seed = 5;
    stretch(&regimes[1], SHARD, 0, X);
    for (int i = 0; i < 4; i++) {
        seed = 5;
        const int n = stretch(&regimes[1], SHARD, least[i], Y);
        for (int r = 0; r < K; r++) {
            memcpy(x[r], Y[r], sizeof x[r]);
            memcpy(y[r], X[r], sizeof y[r]);
        }
        printf("%10.3f %8.0f %% %12.1e\n", least[i], 100. * n / SHARD, apart(x, y));
    }
}

int main(void)
{
    low_rank();
    truncated();
    skipped();
    return 0;
}
