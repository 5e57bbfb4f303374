/* mutants.c -- computes the recurrence with one deliberate error per flag.
 * Book: chapter 01, appendix A.
 * The code is a copy of the reference, because mutants must not call it. For brevity,
 * the backward pass stores the state of every token.
 */
#include "kcp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(undecayed, UNDECAYED,                                                      \
           "errata 1, 3: the delta rule uses the undecayed state")                    \
    MUTANT(not_vector, NOT_VECTOR,                                                    \
           "errata 2: uses one gate per head, not per channel")                       \
    MUTANT(no_scale, NO_SCALE, "errata 27: q is not scaled")                          \
    MUTANT(wrong_head, WRONG_HEAD, "value head n reads q and k of head n % H")        \
    MUTANT(no_h0, NO_H0, "ignores h0")                                                \
    MUTANT(no_dht, NO_DHT, "ignores dht")                                             \
    MUTANT(no_cu, NO_CU, "a sequence starts from the previous sequence's last state") \
    MUTANT(stale_gate, STALE_GATE, "uses the previous token's gate")                  \
    MUTANT(before, BEFORE,                                                            \
           "o reads the state before the token's update, not after it")               \
    MUTANT(swapped, SWAPPED, "swaps the layouts [K,V] and [V,K] of all states")       \
    MUTANT(base_2, BASE_2, "errata 14: uses exp2(g) for exp(g)")                      \
    MUTANT(no_delta, NO_DELTA, "writes v instead of v - S^T k")                       \
    MUTANT(dg_short, DG_SHORT,                                                        \
           "dg omits the gradient through S^T k of the delta rule")                   \
    MUTANT(overwrites, OVERWRITES,                                                    \
           "dq has the terms of one value head, not the sum over its group")          \
    MUTANT(writes_nothing, NOTHING, "returns at once")                                \
    MUTANT(one_nan, ONE_NAN, "writes one NaN")
#include "tests/mutants.h"

static double decay_of(const struct kcp_step *a, int64_t t, int n, int i, int flags)
{
    const double (*g)[a->HV][a->KG] = a->g;
    const int64_t from = flags & STALE_GATE && t > 0 ? t - 1 : t;
    const double x = g[from][n][a->KG == 1 || flags & NOT_VECTOR ? 0 : i];
    return flags & BASE_2 ? exp2(x) : exp(x);
}

/* From S_prev [K,V], computes the decayed state Sd, e = v - Sd^T k, and the state S. */
static void token(const struct kcp_step *a, int64_t t, int n, int m, int flags,
                  const double *S_prev, double *S, double *Sd, double *e)
{
    const int K = a->K, V = a->V;
    const double *k = (const double *)a->k + (t * a->H + m) * K;
    const double *x = (const double *)a->v + (t * a->HV + n) * V;
    const double beta = ((const double *)a->beta)[t * a->HV + n];
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++)
            Sd[i * V + v] = decay_of(a, t, n, i, flags) * S_prev[i * V + v];
    const double *seen = flags & UNDECAYED ? S_prev : Sd;
    for (int v = 0; v < V; v++) {
        e[v] = x[v];
        for (int i = 0; i < K && !(flags & NO_DELTA); i++)
            e[v] -= seen[i * V + v] * k[i];
    }
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) S[i * V + v] = Sd[i * V + v] + beta * k[i] * e[v];
}

static size_t at(const struct kcp_step *a, int i, int v, int flags)
{
    const int vk = (a->layout == KCP_VK) != ((flags & SWAPPED) != 0);
    return vk ? (size_t)v * a->K + i : (size_t)i * a->V + v;
}

static void token_back(const struct kcp_step *a, int64_t t, int n, int m, int flags,
                       const double *S, const double *Sd, const double *e, double *dS,
                       double *de)
{
    const int K = a->K, V = a->V;
    const double *q = (const double *)a->q + (t * a->H + m) * K;
    const double *k = (const double *)a->k + (t * a->H + m) * K;
    const double *dO = (const double *)a->do_ + (t * a->HV + n) * V;
    const double beta = ((const double *)a->beta)[t * a->HV + n];
    const double scale = flags & NO_SCALE ? 1 : a->scale;
    const int64_t row = (t * a->H + m) * K;
    double *dq = (double *)a->dq + row, *dk = (double *)a->dk + row;
    double *dg = (double *)a->dg + (t * a->HV + n) * a->KG, dbeta = 0;
    if (flags & OVERWRITES) memset(dq, 0, sizeof(double) * K);
    memset(de, 0, sizeof(double) * V);
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            dq[i] += scale * S[i * V + v] * dO[v];
            dS[i * V + v] += scale * q[i] * dO[v];
            de[v] += dS[i * V + v] * k[i];
        }
    for (int v = 0; v < V; v++) {
        dbeta += e[v] * de[v];
        de[v] *= beta;
    }
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            const double full = dS[i * V + v];
            dk[i] += beta * full * e[v] -
                     (flags & NO_DELTA ? 0 : Sd[i * V + v] * de[v]);
            dS[i * V + v] -= flags & NO_DELTA ? 0 : k[i] * de[v];
            dg[a->KG == 1 ? 0 : i] += (flags & DG_SHORT ? full : dS[i * V + v])
                * Sd[i * V + v];
            dS[i * V + v] *= decay_of(a, t, n, i, flags);
        }
    memcpy((double *)a->dv + (t * a->HV + n) * V, de, sizeof(double) * V);
    ((double *)a->dbeta)[t * a->HV + n] = dbeta;
}

static void output(const struct kcp_step *a, int64_t t, int n, int m, int flags,
                   const double *S)
{
    const int K = a->K, V = a->V;
    const double *q = (const double *)a->q + (t * a->H + m) * K;
    double *o = (double *)a->o + (t * a->HV + n) * V;
    memset(o, 0, sizeof(double) * V);
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++)
            o[v] += S[i * V + v] * q[i] * (flags & NO_SCALE ? 1 : a->scale);
}

static int head(const struct kcp_step *a, int n_, int n, int flags)
{
    const int K = a->K, V = a->V, kv = K * V;
    const int m = flags & WRONG_HEAD ? n % a->H : n / (a->HV / a->H);
    const int64_t *cu = a->cu_seqlens, L = cu[n_ + 1] - cu[n_];
    const double *h0 = a->h0 && !(flags & NO_H0)
        ? (const double *)a->h0 + ((size_t)n_ * a->HV + n) * kv : NULL;
    const double *dht = a->dht && !(flags & NO_DHT)
        ? (const double *)a->dht + ((size_t)n_ * a->HV + n) * kv : NULL;
    double *S = calloc((L + 1) * kv + L * (kv + V) + kv + V, sizeof *S);
    if (!S) return KCP_NO_MEMORY;
    double *Sd = S + (L + 1) * kv, *e = Sd + L * kv, *dS = e + L * V, *de = dS + kv;
    static _Thread_local double last[256 * 256];     /* NO_CU starts from this state */
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            S[i * V + v] = h0 ? h0[at(a, i, v, flags)] : 0;
            if (flags & NO_CU && n_) S[i * V + v] = last[i * V + v];
        }
    for (int64_t t = 0; t < L; t++) {
        token(a, cu[n_] + t, n, m, flags, S + t * kv, S + (t + 1) * kv, Sd + t * kv,
              e + t * V);
        if (a->pass == KCP_FORWARD)
            output(a, cu[n_] + t, n, m, flags,
                   flags & BEFORE ? S + t * kv : S + (t + 1) * kv);
    }
    memcpy(last, S + L * kv, sizeof(double) * kv);
    double *to = (double *)(a->pass == KCP_FORWARD ? a->ht : a->dh0)
               + ((size_t)n_ * a->HV + n) * kv;
    if (a->pass == KCP_BACKWARD) {
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++)
                dS[i * V + v] = dht ? dht[at(a, i, v, flags)] : 0;
        for (int64_t t = L - 1; t >= 0; t--)
            token_back(a, cu[n_] + t, n, m, flags,
                       flags & BEFORE ? S + t * kv : S + (t + 1) * kv,
                       Sd + t * kv, e + t * V, dS, de);
    }
    const double *is = a->pass == KCP_FORWARD ? S + L * kv : dS;
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) to[at(a, i, v, flags)] = is[i * V + v];
    free(S);
    return KCP_OK;
}

static int wrong(void *args, int flags)
{
    const struct kcp_step *a = args;
    int status = KCP_OK;
    if (flags & NOTHING) return KCP_OK;
    if (a->pass == KCP_BACKWARD) {
        memset(a->dq, 0, sizeof(double) * a->T * a->H * a->K);
        memset(a->dk, 0, sizeof(double) * a->T * a->H * a->K);
        memset(a->dg, 0, sizeof(double) * a->T * a->HV * a->KG);
    }
    for (int n = 0; n < a->HV && !status; n++)
        for (int s = 0; s < a->N && !status; s++) status = head(a, s, n, flags);
    if (flags & ONE_NAN) {
        double *x = a->pass == KCP_FORWARD ? a->o : a->dv;
        x[(a->T - 1) * a->HV * a->V] = NAN;
    }
    return status;
}

#define MUTANT_STAGE m01, "01_step", "any", wrong
MUTANTS(MUTANT)
MUTANT_TWIN
