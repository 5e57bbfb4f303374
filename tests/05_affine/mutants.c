/* mutants.c -- computes a segment's affine map with one deliberate error per flag.
 * Book: chapter 05, appendix A.
 * Unlike the reference, the code computes M as a product of the chunks' K x K
 * matrices. */
#include "kcp.h"
#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(decay_first, DECAY_FIRST,                                                  \
           "errata 7: computes w S after S decays, not before")                       \
    MUTANT(in_reverse, IN_REVERSE,                                                    \
           "errata 17: applies the maps of chunks from last to first")                \
    MUTANT(ungated, UNGATED, "errata 9, 10: k omits exp2(G_last - G)")                \
    MUTANT(no_decay, NO_DECAY, "M_c = I - kg^T w omits the decay")                    \
    MUTANT(adds, ADDS, "M_c = diag + kg^T w")                                         \
    MUTANT(turned, TURNED, "M_c is transposed")                                       \
    MUTANT(no_start, NO_START, "h_ext starts from 0 even if the sequence has an h0")  \
    MUTANT(wants_all, WANTS_ALL, "writes h_ext and M even if only one is requested")  \
    MUTANT(wrong_head, WRONG_HEAD, "GDN: value head n reads k of head n % H")         \
    MUTANT(stale_gate, STALE_GATE,                                                    \
           "decays the map by G of the chunk's second-last row")                      \
    MUTANT(last_chunk, LAST_CHUNK,                                                    \
           "writes the map of the last chunk, not of all chunks")                     \
    MUTANT(first_h, NO_H, "only the first chunk adds kg^T u to h_ext")                \
    MUTANT(minus_i, M_MINUS_I, "writes M - I instead of M")                           \
    MUTANT(bf16_M, HALF, "errata 11: rounds M to bf16")                               \
    MUTANT(writes_nothing, NOTHING, "returns at once")                                \
    MUTANT(one_nan, ONE_NAN, "writes one NaN")
#include "tests/mutants.h"

struct cut { int64_t t0; int rows, n, m; };

static double key(const struct kcp_affine *a, struct cut x, int64_t t, int i, int flags)
{
    const double (*G)[a->HV][a->KG] = a->G;
    const double g = G[x.t0 + x.rows - 1][x.n][a->KG > 1 ? i : 0] -
                     G[t][x.n][a->KG > 1 ? i : 0];
    if (a->model == KCP_KDA)
        return ((const double (*)[a->HV][a->K])a->kg)[t][x.n][i] /
               (flags & UNGATED ? exp2(g) : 1);
    return ((const double (*)[a->H][a->K])a->k)[t][x.m][i] *
           (flags & UNGATED ? 1 : exp2(g));
}

/* Computes decay [K], Mc = diag(decay) - kg^T w [K,K] and hc = kg^T u [K,V]. */
static void chunk(const struct kcp_affine *a, struct cut x, int flags, double *Mc,
                  double *hc,
                  double *decay)
{
    const int K = a->K, V = a->V;
    const double (*u)[a->HV][V] = a->u, (*w)[a->HV][K] = a->w;
    const double (*G)[a->HV][a->KG] = a->G;
    const int64_t last = x.t0 + x.rows - (flags & STALE_GATE && x.rows > 1 ? 2 : 1);
    memset(Mc, 0, sizeof *Mc * K * K);
    memset(hc, 0, sizeof *hc * K * V);
    for (int i = 0; i < K; i++) {
        const double own = exp2(G[last][x.n][a->KG > 1 ? i : 0]);
        decay[i] = flags & NO_DECAY ? 1 : own;
    }
    for (int64_t t = x.t0; t < x.t0 + x.rows; t++)
        for (int i = 0; i < K; i++) {
            const double kg = key(a, x, t, i, flags);
            for (int p = 0; p < K; p++)
                Mc[i * K + p] -= (flags & ADDS ? -1 : 1) * kg * w[t][x.n][p];
            for (int v = 0; v < V; v++) hc[i * V + v] += kg * u[t][x.n][v];
        }
    for (int i = 0; i < K; i++)           /* DECAY_FIRST scales w by decay */
        for (int p = 0; p < K; p++) {
            if (flags & DECAY_FIRST) Mc[i * K + p] *= decay[p];
            if (i == p) Mc[i * K + p] += decay[i];
        }
    for (int i = 0; i < K && flags & TURNED; i++)
        for (int p = 0; p < i; p++) {
            const double y = Mc[i * K + p];
            Mc[i * K + p] = Mc[p * K + i];
            Mc[p * K + i] = y;
        }
}

/* Computes Y = M_c X + [h_c | 0] for X and Y [K,V+K]. */
static void compose(int K, int V, const double *Mc, const double *hc, const double *X,
                    double *Y)
{
    const int W = V + K;
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++) {
            double s = j < V ? hc[i * V + j] : 0;
            for (int p = 0; p < K; p++) s += Mc[i * K + p] * X[p * W + j];
            Y[i * W + j] = s;
        }
}

static void stretch(const struct kcp_affine *a, int s, int n, int flags,
                    double *workspace)
{
    const int K = a->K, V = a->V, W = V + K, *cu = a->cu, *want = a->want;
    const double *h = flags & NO_START ? NULL : a->h_start;
    double *X = workspace, *Y = X + K * W, *Mc = Y + K * W, *hc = Mc + K * K;
    double *decay = hc + K * V;
    double *to = (double *)a->map + ((size_t)s * a->HV + n) * K * W;
    const int chunks = (cu[s + 1] - cu[s] + a->C - 1) / a->C;
    const int m = flags & WRONG_HEAD ? n % a->H : n / (a->HV / a->H);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++) {
            X[i * W + j] = j - V == i;
            if (h && j < V)
                X[i * W + j] = h[((size_t)s * a->HV + n) * K * V + i * V + j];
        }
    for (int c = flags & LAST_CHUNK ? chunks - 1 : 0; c < chunks; c++) {
        const int at = flags & IN_REVERSE ? chunks - 1 - c : c;
        const int64_t t0 = cu[s] + (int64_t)at * a->C, left = cu[s + 1] - t0;
        chunk(a, (struct cut){ t0, left < a->C ? (int)left : a->C, n, m }, flags, Mc,
              hc, decay);
        if (flags & NO_H && c) memset(hc, 0, sizeof *hc * K * V);
        compose(K, V, Mc, hc, X, Y);
        memcpy(X, Y, sizeof *X * K * W);
    }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++)
            if (flags & WANTS_ALL || (want[s] & (j < V ? KCP_WANT_H : KCP_WANT_M)))
                to[i * W + j] = X[i * W + j] - (flags & M_MINUS_I && j - V == i) ;
    for (int i = 0; i < K * W && flags & HALF; i++)
        if (i % W >= V) to[i] = bf16_value(bf16_of(to[i]));
}

static int wrong(void *args, int flags)
{
    const struct kcp_affine *a = args;
    const int K = a->K, V = a->V;
    const int numbers = 2 * K * (V + K) + K * K + K * V + K;
    double *workspace = malloc(sizeof *workspace * numbers);
    if (!workspace) return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS && !(flags & NOTHING); s++)
        for (int n = 0; n < a->HV; n++) stretch(a, s, n, flags, workspace);
    free(workspace);
    if (flags & ONE_NAN) ((double *)a->map)[0] = NAN;
    return KCP_OK;
}

#define MUTANT_STAGE m05, "05_affine", "any", wrong
MUTANTS(MUTANT)
MUTANT_TWIN
