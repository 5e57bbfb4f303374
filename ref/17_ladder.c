/* 17_ladder.c -- the reference for the eight kernels of chapter 17, which compute two
 * equations of chapter 04: v_new = u - w S, and the next S.
 * Book: chapter 17. */
#include "checked.h"
#include "ref.h"
#include <string.h>

/* Computes v_new = u - w S, then S <- diag(decay) S + kg^T v_new, for tokens t0 ..
 * t0+c-1 of head n. On entry S [K,V] is the state before these tokens. On return S is
 * the state after these tokens. decay [K] is the decay over the chunk. */
static void one_chunk(const struct kcp_ladder *a, int64_t t0, int c, int n,
                      const double *decay, double S[a->K][a->V])
{
    const int HV = a->HV, K = a->K, V = a->V;
    const double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg;
    double (*v_new)[HV][V] = a->v_new;
    for (int64_t t = t0; t < t0 + c; t++)
        for (int v = 0; v < V; v++) {
            v_new[t][n][v] = u[t][n][v];
            for (int p = 0; p < K; p++) v_new[t][n][v] -= w[t][n][p] * S[p][v];
        }
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            S[i][v] *= decay[i];
            for (int64_t t = t0; t < t0 + c; t++)
                S[i][v] += kg[t][n][i] * v_new[t][n][v];
        }
}

/* Computes all chunks of all segments: v_new [T,HV,V], and h_out [NS,HV,K,V], the state
 * at each segment's end. A segment starts from its h_in, or from 0 if h_in is NULL. */
int ref_ladder(struct kcp_ladder *a)
{
    const int refused = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int HV = a->HV, K = a->K, V = a->V, *cu = a->cu, *cn = a->cn;
    const double (*h_in)[HV][K * V] = a->h_in, (*decay)[HV][K] = a->decay;
    double (*h_out)[HV][K * V] = a->h_out;
    const size_t state = sizeof(double) * K * V;
    for (int s = 0; s < a->NS; s++)
        for (int n = 0; n < HV; n++) {
            if (h_in) memcpy(h_out[s][n], h_in[s][n], state);
            else memset(h_out[s][n], 0, state);
            for (int c = cn[s]; c < cn[s + 1]; c++) {
                const int t0 = cu[s] + (c - cn[s]) * a->C, left = cu[s + 1] - t0;
                one_chunk(a, t0, left < a->C ? left : a->C, n, decay[c][n],
                          (void *)h_out[s][n]);
            }
        }
    return KCP_OK;
}
