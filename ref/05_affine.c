/* 05_affine.c -- the affine map of a segment: S_out = M S_in + h_ext.
 * Book: chapter 05.
 *
 * The scan of chapter 04 computes the map if the state [h_ext | M] starts from
 * [h_start | I] and the input is [u | 0]. Columns of the state are independent, so the
 * same code computes h_ext and M. */
#include "checked.h"
#include "ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Computes columns j0 .. j1-1 of X [K,V+K] for one chunk of one value head:
 *   y <- [u | 0] - w X        X <- Λ X + kg^T y        (Λ = diag(exp2(G_last))).
 * y [c,V+K] is scratch. All rows of y are computed before X changes, because w X uses X
 * before the decay. */
static void chunk_map(const struct kcp_affine *a, int64_t t0, int c, int n, int j0,
                      int j1, void *X_, void *y_)
{
    const int H = a->H, HV = a->HV, K = a->K, V = a->V, KG = a->KG, W = V + K;
    const int m = n / (HV / H);
    const double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w, (*G)[HV][KG] = a->G;
    const double *last = G[t0 + c - 1][n];
    const double (*k)[H][K] = a->k, (*keys)[HV][K] = a->kg;
    double (*X)[W] = X_, (*y)[W] = y_;
    //> chunk-map
    for (int t = 0; t < c; t++) {
        for (int j = j0; j < j1; j++) y[t][j] = j < V ? u[t0 + t][n][j] : 0;
        for (int p = 0; p < K; p++)
            for (int j = j0; j < j1; j++) y[t][j] -= w[t0 + t][n][p] * X[p][j];
    }
    for (int i = 0; i < K; i++) {
        const double decay = exp2(last[KG > 1 ? i : 0]);
        for (int j = j0; j < j1; j++) X[i][j] *= decay;
    }
    //< chunk-map
    for (int t = 0; t < c; t++) {
        const int kda = a->model == KCP_KDA;      /* GDN: kg = f k */
        const double *kg = kda ? keys[t0 + t][n] : k[t0 + t][m];
        const double f = kda ? 1 : exp2(last[0] - G[t0 + t][n][0]);
        for (int i = 0; i < K; i++)
            for (int j = j0; j < j1; j++) X[i][j] += f * kg[i] * y[t][j];
    }
}

/* X <- [h_start | I] in columns j0 .. j1-1. If h_start is NULL, 0 replaces h_start. */
static void start(const struct kcp_affine *a, int s, int n, int j0, int j1, void *X_)
{
    const int HV = a->HV, K = a->K, V = a->V;
    const double (*h)[HV][K][V] = a->h_start;
    double (*X)[V + K] = X_;
    for (int i = 0; i < K; i++)
        for (int j = j0; j < j1; j++)
            if (j < V) X[i][j] = h ? h[s][n][i][j] : 0;
            else X[i][j] = j - V == i;
}

/* Computes map [NS,HV,K,V+K] = [h_ext | M]. Per segment, `want` [NS] selects h_ext, M
 * or both. h_ext starts from h_start [NS,HV,K,V] (NULL: 0), and M starts from I. M
 * costs 2 C K^2 multiply-adds per chunk and head. No K x K matrices are multiplied. */
int ref_affine(struct kcp_affine *a)
{
    const int refused = kcp_begin("05_affine", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int HV = a->HV, K = a->K, V = a->V, C = a->C, *cu = a->cu, *want = a->want;
    double (*map)[HV][K][V + K] = a->map;
    double *y = malloc(sizeof(double) * C * (V + K));
    if (!y) return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++) {
        const int j0 = want[s] & KCP_WANT_H ? 0 : V;
        const int j1 = want[s] & KCP_WANT_M ? V + K : V;
        for (int n = 0; n < HV && j0 < j1; n++) {
            start(a, s, n, j0, j1, &map[s][n][0][0]);
            for (int t0 = cu[s]; t0 < cu[s + 1]; t0 += C)
                chunk_map(a, t0, cu[s + 1] - t0 < C ? cu[s + 1] - t0 : C, n, j0, j1,
                          &map[s][n][0][0], y);
        }
    }
    free(y);
    return KCP_OK;
}
