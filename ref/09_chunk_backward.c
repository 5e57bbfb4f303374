/* 09_chunk_backward.c -- the backward pass of chapter 04's state scan and output.
 * Book: chapter 09. */
#include "checked.h"
#include "ref.h"

#include <math.h>
#include <string.h>

/* Computes, from dO, the gradients within a chunk:
 *   dAqk = scale tril(dO v_new^T)          dv_local = tril(Aqk)^T dO.
 * Row t of each array is token t. Column j of Aqk and dAqk is token j of the chunk. Aqk
 * already includes the factor `scale`. To the right of its diagonal, dAqk is 0. */
static void local(const struct kcp_chunk_backward *a, int n, int64_t t0, int rows)
{
    const int HV = a->HV, V = a->V, C = a->C;
    const double (*Aqk)[HV][C] = a->Aqk, (*v_new)[HV][V] = a->v_new;
    const double (*dO)[HV][V] = a->do_;
    double (*dAqk)[HV][C] = a->dAqk, (*dv_local)[HV][V] = a->dv_local;

    for (int j = 0; j < rows; j++)
        memset(dv_local[t0 + j][n], 0, sizeof(double) * V);
    //> local
    for (int i = 0; i < rows; i++) {
        memset(dAqk[t0 + i][n], 0, sizeof(double) * C);
        for (int j = 0; j <= i; j++) {
            double s = 0;
            for (int v = 0; v < V; v++) {
                s += dO[t0 + i][n][v] * v_new[t0 + j][n][v];
                dv_local[t0 + j][n][v] += Aqk[t0 + i][n][j] * dO[t0 + i][n][v];
            }
            dAqk[t0 + i][n][j] = a->scale * s;
        }
    }
    //< local
}

/* Computes dS at the start of one chunk from dS at the chunk's end:
 *   dU = kg dS + dv_local          (first, with dS before the decay)
 *   dS <- Λ dS + scale qg^T dO - w^T dU          (Λ = diag(exp2(G_last))).
 * For GDN, this function computes kg = exp2(G_last - G) k and qg = exp2(G) q. dS [K,V]
 * is updated in place. */
static void reverse(const struct kcp_chunk_backward *a, int n, int64_t t0, int rows,
                    void *dS_)
{
    const int HV = a->HV, K = a->K, V = a->V, KG = a->KG, m = n / (HV / a->H);
    const int kda = a->model == KCP_KDA;
    const double (*qg)[HV][K] = a->qg, (*kg)[HV][K] = a->kg, (*w)[HV][K] = a->w;
    const double (*q)[a->H][K] = a->q, (*k)[a->H][K] = a->k;
    const double (*G)[HV][KG] = a->G, (*dO)[HV][V] = a->do_;
    const double (*dv_local)[HV][V] = a->dv_local;
    const double *G_last = G[t0 + rows - 1][n];
    double (*dU)[HV][V] = a->dU, (*dS)[V] = dS_;

    //> reverse
    for (int64_t t = t0; t < t0 + rows; t++) {
        const double *kt = kda ? kg[t][n] : k[t][m];
        const double e = kda ? 1 : exp2(G_last[0] - G[t][n][0]);
        memcpy(dU[t][n], dv_local[t][n], sizeof(double) * V);
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) dU[t][n][v] += e * kt[i] * dS[i][v];
    }
    for (int i = 0; i < K; i++) {
        const double decay = exp2(G_last[kda ? i : 0]);
        for (int v = 0; v < V; v++) dS[i][v] *= decay;
    }
    for (int64_t t = t0; t < t0 + rows; t++) {
        const double *qt = kda ? qg[t][n] : q[t][m];
        const double e = a->scale * (kda ? 1 : exp2(G[t][n][0]));
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++)
                dS[i][v] += e * qt[i] * dO[t][n][v] - w[t][n][i] * dU[t][n][v];
    }
    //< reverse
}

/* If `part` has the bit KCP_LOCAL, computes dAqk and dv_local. Both need no exchange.
 * If `part` has the bit KCP_REVERSE, reads dv_local and scans the chunks in reverse,
 * starting from dh_out, the gradient of the state at each segment's end (NULL: 0):
 *   dh [c] = dS at the END of chunk c      dh_in [s] = dS at the start of segment s.
 * stages/09.def lists the shapes. Returns KCP_BAD if `part` is 0. */
int ref_chunk_backward(struct kcp_chunk_backward *a)
{
    const int refused = kcp_begin("09_chunk_backward", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int HV = a->HV, K = a->K, V = a->V;
    const int *cu = a->cu, *cn = a->cn;
    const size_t state = sizeof(double) * K * V;
    const double (*dh_out)[HV][K][V] = a->dh_out;
    double (*dh)[HV][K][V] = a->dh, (*dh_in)[HV][K][V] = a->dh_in;

    for (int s = 0; s < a->NS; s++)
        for (int n = 0; n < HV; n++) {
            double *dS = a->part & KCP_REVERSE ? &dh_in[s][n][0][0] : NULL;
            if (dS && dh_out) memcpy(dS, dh_out[s][n], state);
            else if (dS) memset(dS, 0, state);
            for (int c = cn[s + 1] - 1; c >= cn[s]; c--) {
                const int64_t t0 = cu[s] + (int64_t)(c - cn[s]) * a->C;
                const int rows = cu[s + 1] - t0 < a->C ? cu[s + 1] - t0 : a->C;
                if (a->part & KCP_LOCAL) local(a, n, t0, rows);
                if (dS) {
                    memcpy(dh[c][n], dS, state);
                    reverse(a, n, t0, rows, dS);
                }
            }
        }
    return KCP_OK;
}
