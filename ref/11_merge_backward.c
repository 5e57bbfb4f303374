/* 11_merge_backward.c -- computes each segment's affine map for gradients of states.
 * Book: chapter 11. */
#include "checked.h"
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens t0 .. t0+rows-1 of one chunk of value head n, and scratch for one segment and
 * head. In this file Λ = diag(exp2(G_last)), the decay over the chunk. */
struct reverse_scan {
    const struct kcp_merge_backward *a;
    int n, rows;
    int64_t t0;
    void *d, *dU, *N;          /* [K, max(K,V)], [max(K,V)], [K,K] */
};

/* X <- Λ X + d, where rows of X [K,cols] are `pitch` numbers apart */
static void decay_add(const struct reverse_scan *x, int cols, int pitch, void *X_)
{
    const int K = x->a->K, KG = x->a->KG, kda = x->a->model == KCP_KDA;
    const double (*G)[x->a->HV][KG] = x->a->G;
    const double *G_last = G[x->t0 + x->rows - 1][x->n];
    const double (*d)[cols] = x->d;
    double (*X)[pitch] = X_;

    for (int i = 0; i < K; i++) {
        const double decay = exp2(G_last[kda ? i : 0]);
        for (int v = 0; v < cols; v++) X[i][v] = decay * X[i][v] + d[i][v];
    }
}

/* Computes dh_ext at the chunk's start from dh_ext at the chunk's end:
 *   dU      = kg dh_ext + dv_local
 *   dh_ext <- Λ dh_ext + scale qg^T dO - w^T dU.
 * Neither h nor v_new is read, so the map does not depend on states. The buffer dU
 * holds one token's row, and d holds the sum over tokens. */
static void back_h(const struct reverse_scan *x, int pitch, void *dh_)
{
    const struct kcp_merge_backward *a = x->a;
    const int HV = a->HV, K = a->K, V = a->V, n = x->n, m = n / (HV / a->H);
    const int kda = a->model == KCP_KDA;
    const double (*w)[HV][K] = a->w, (*dO)[HV][V] = a->do_;
    const double (*dv_local)[HV][V] = a->dv_local, (*G)[HV][a->KG] = a->G;
    const double (*q)[a->H][K] = a->q, (*k)[a->H][K] = a->k;
    const double (*qg)[HV][K] = a->qg, (*kg)[HV][K] = a->kg;
    const double *G_last = G[x->t0 + x->rows - 1][n];
    double (*dh)[pitch] = dh_, (*d)[V] = x->d, *dU = x->dU;

    memset(d, 0, sizeof(double) * K * V);
    //> back
    for (int64_t t = x->t0; t < x->t0 + x->rows; t++) {
        const double *kt = kda ? kg[t][n] : k[t][m], *qt = kda ? qg[t][n] : q[t][m];
        const double ek = kda ? 1 : exp2(G_last[0] - G[t][n][0]);  /* kg = ek kt */
        const double eq = a->scale * (kda ? 1 : exp2(G[t][n][0]));
        memcpy(dU, dv_local[t][n], sizeof(double) * V);
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) dU[v] += ek * kt[i] * dh[i][v];
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++)
                d[i][v] += eq * qt[i] * dO[t][n][v] - w[t][n][i] * dU[v];
    }
    decay_add(x, V, pitch, dh_);
    //< back
}

/* Updates N = M^T by one chunk: N <- Λ N - w^T (kg N) */
static void back_M(const struct reverse_scan *x)
{
    const struct kcp_merge_backward *a = x->a;
    const int HV = a->HV, K = a->K, n = x->n, kda = a->model == KCP_KDA;
    const double (*w)[HV][K] = a->w, (*G)[HV][a->KG] = a->G;
    const double (*k)[a->H][K] = a->k, (*kg)[HV][K] = a->kg;
    const double *G_last = G[x->t0 + x->rows - 1][n];
    double (*N)[K] = x->N, (*d)[K] = x->d, *kN = x->dU;

    memset(d, 0, sizeof(double) * K * K);
    for (int64_t t = x->t0; t < x->t0 + x->rows; t++) {
        const double *kt = kda ? kg[t][n] : k[t][n / (HV / a->H)];
        const double ek = kda ? 1 : exp2(G_last[0] - G[t][n][0]);
        memset(kN, 0, sizeof(double) * K);
        for (int p = 0; p < K; p++)
            for (int i = 0; i < K; i++) kN[i] += ek * kt[p] * N[p][i];
        for (int p = 0; p < K; p++)
            for (int i = 0; i < K; i++) d[p][i] -= w[t][n][p] * kN[i];
    }
    decay_add(x, K, K, x->N);
}

/* Sets `out` [K,V+K] to [dh_ext | M] of one segment and value head, from the last chunk
 * to the first. */
static void stretch(struct reverse_scan *x, int s, int want, void *out_)
{
    const struct kcp_merge_backward *a = x->a;
    const int K = a->K, V = a->V, *cu = a->cu, *cn = a->cn;
    const double (*dh_end)[a->HV][K][V] = a->dh_end;
    double (*out)[V + K] = out_, (*N)[K] = x->N;

    for (int i = 0; i < K; i++) {
        for (int v = 0; v < V && (want & KCP_WANT_H); v++)
            out[i][v] = dh_end ? dh_end[s][x->n][i][v] : 0;
        for (int p = 0; p < K; p++) N[i][p] = i == p;
    }
    for (int c = cn[s + 1] - 1; c >= cn[s]; c--) {
        x->t0 = cu[s] + (int64_t)(c - cn[s]) * a->C;
        x->rows = cu[s + 1] - x->t0 < a->C ? cu[s + 1] - x->t0 : a->C;
        if (want & KCP_WANT_H) back_h(x, V + K, out_);
        if (want & KCP_WANT_M) back_M(x);
    }
    for (int i = 0; i < K && (want & KCP_WANT_M); i++)
        for (int p = 0; p < K; p++) out[i][V + p] = N[p][i];
}

/* Computes dmap [NS,HV,K,V+K] = [dh_ext | M] per segment. If dS is the gradient of the
 * state at the segment's end, M^T dS + dh_ext is the gradient of the state at the
 * segment's start. dh_ext starts from dh_end (NULL: 0), which is dht where a sequence
 * ends and 0 elsewhere. M, the matrix of chapter 05, is computed as M^T and then
 * transposed, so that both passes store maps in one format. want [s] selects dh_ext by
 * the bit KCP_WANT_H and M by the bit KCP_WANT_M. With reuse_M, M is not computed,
 * because the saved block contains M. */
int ref_merge_backward(struct kcp_merge_backward *a)
{
    const int refused = kcp_begin("11_merge_backward", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int K = a->K, V = a->V, most = K > V ? K : V;
    const int *want = a->want;
    double (*dmap)[a->HV][K][V + K] = a->dmap;
    const size_t numbers = (size_t)K * most + most + (size_t)K * K;
    const int wanted = a->reuse_M ? KCP_WANT_H : KCP_WANT_H | KCP_WANT_M;
    double *scratch = malloc(sizeof(double) * numbers);

    if (!scratch) return KCP_NO_MEMORY;
    struct reverse_scan x = { .a = a, .d = scratch, .dU = scratch + (size_t)K * most,
                              .N = scratch + numbers - (size_t)K * K };
    for (int s = 0; s < a->NS; s++)
        for (x.n = 0; x.n < a->HV; x.n++)
            stretch(&x, s, want[s] & wanted, &dmap[s][x.n][0][0]);
    free(scratch);
    return KCP_OK;
}
