/* 03_wy.c -- the WY form: a chunk of delta-rule steps as one triangular solve.
 * Book: chapter 03.
 *
 * All exponents G_i - G_j have i >= j and are <= 0, so exp2 cannot overflow. Each
 * value of exp2 is computed once, for both Aqk and L. */
#include "checked.h"
#include "ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens t0 .. t0+c-1 of value head n: one chunk. m is the query/key head of n. */
struct block { int64_t t0; int c, n, m; };

/* Aqk_ij = scale sum_p q_i k_j exp2(G_i - G_j)   i >= j        (0 elsewhere)
 * L_ij   = beta_i sum_p k_i k_j exp2(G_i - G_j)  i >  j        (0 elsewhere)
 * L is [C,C]. For GDN, G does not depend on p, so exp2 is outside the sum. */
static void scores(const struct kcp_wy *a, struct block b, void *L_)
{
    const int H = a->H, HV = a->HV, K = a->K, C = a->C, KG = a->KG;
    const double (*q)[H][K] = a->q, (*k)[H][K] = a->k, (*G)[HV][KG] = a->G;
    const double (*beta)[HV] = a->beta;
    double (*Aqk)[HV][C] = a->Aqk, (*L)[C] = L_;
    for (int i = 0; i < b.c; i++) {
        const double *qi = q[b.t0 + i][b.m], *ki = k[b.t0 + i][b.m];
        const double *Gi = G[b.t0 + i][b.n];
        for (int j = 0; j < C; j++) Aqk[b.t0 + i][b.n][j] = L[i][j] = 0;
        //> scores
        for (int j = 0; j <= i; j++) {
            const double *kj = k[b.t0 + j][b.m], *Gj = G[b.t0 + j][b.n];
            double qk = 0, kk = 0;
            for (int p = 0; p < K; p++) {
                const double D = KG > 1 ? exp2(Gi[p] - Gj[p]) : 1;
                qk += qi[p] * kj[p] * D;
                kk += ki[p] * kj[p] * D;
            }
            const double D = KG > 1 ? 1 : exp2(Gi[0] - Gj[0]);
            Aqk[b.t0 + i][b.n][j] = a->scale * qk * D;
            L[i][j] = j < i ? beta[b.t0 + i][b.n] * kk * D : 0;
        }
        //< scores
    }
}

/* A = (I + L)^-1 by forward substitution, row by row (e_i is row i of I):
 *   A_i = e_i - sum_{p<i} L_ip A_p */
static void invert(const struct kcp_wy *a, struct block b, const void *L_)
{
    const int HV = a->HV, C = a->C;
    const double (*L)[C] = L_;
    double (*all)[HV][C] = a->A, (*A)[HV][C] = all + b.t0;
    //> invert
    for (int i = 0; i < b.c; i++) {
        for (int j = 0; j < C; j++) A[i][b.n][j] = i == j;
        for (int p = 0; p < i; p++)
            for (int j = 0; j <= p; j++) A[i][b.n][j] -= L[i][p] * A[p][b.n][j];
    }
    //< invert
}

/* u = A (beta v)        w = A (beta exp2(G) k) */
static void solve(const struct kcp_wy *a, struct block b)
{
    const int H = a->H, HV = a->HV, K = a->K, V = a->V, C = a->C, KG = a->KG;
    const double (*k)[H][K] = a->k, (*x)[HV][V] = a->v, (*G)[HV][KG] = a->G;
    const double (*beta)[HV] = a->beta, (*A)[HV][C] = a->A;
    double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w;
    u += b.t0;
    w += b.t0;
    for (int i = 0; i < b.c; i++) {
        for (int v = 0; v < V; v++) u[i][b.n][v] = 0;
        for (int p = 0; p < K; p++) w[i][b.n][p] = 0;
    }
    for (int j = 0; j < b.c; j++) {
        const int64_t t = b.t0 + j;
        double gated_k[K];
        for (int p = 0; p < K; p++)
            gated_k[p] = beta[t][b.n] * exp2(G[t][b.n][KG > 1 ? p : 0]) * k[t][b.m][p];
        for (int i = j; i < b.c; i++) {
            const double Aij = A[b.t0 + i][b.n][j];
            for (int v = 0; v < V; v++)
                u[i][b.n][v] += Aij * (beta[t][b.n] * x[t][b.n][v]);
            for (int p = 0; p < K; p++) w[i][b.n][p] += Aij * gated_k[p];
        }
    }
}

/* For KDA: kg = exp2(G_last - G) k, and qg = exp2(G) q without the factor `scale` */
static void gated(const struct kcp_wy *a, struct block b)
{
    const int H = a->H, HV = a->HV, K = a->K, KG = a->KG;
    const double (*q)[H][K] = a->q, (*k)[H][K] = a->k, (*G)[HV][KG] = a->G;
    const double *last = G[b.t0 + b.c - 1][b.n];
    double (*kg)[HV][K] = a->kg, (*qg)[HV][K] = a->qg;
    for (int64_t t = b.t0; t < b.t0 + b.c; t++)
        for (int p = 0; p < K; p++) {
            kg[t][b.n][p] = exp2(last[p] - G[t][b.n][p]) * k[t][b.m][p];
            qg[t][b.n][p] = exp2(G[t][b.n][p]) * q[t][b.m][p];
        }
}

/* Returns the chunk of segment s that begins at token t0, for value head n. */
static struct block block_at(const struct kcp_wy *a, int s, int t0, int n)
{
    const int left = a->cu[s + 1] - t0;
    return (struct block){ t0, left < a->C ? left : a->C, n, n / (a->HV / a->H) };
}

/* Computes the second half of the stage from a given A: u [T,HV,V], w [T,HV,K] and, for
 * KDA, kg and qg [T,HV,K]. Chapter 13 calls this function with the saved A. */
int ref_wy_factors(struct kcp_wy *a)
{
    const int refused = kcp_begin("03_wy", KCP_HOST, a, "q Aqk");
    if (refused) return refused;
    const int *cu = a->cu;
    for (int s = 0; s < a->NS; s++)
        for (int t0 = cu[s]; t0 < cu[s + 1]; t0 += a->C)
            for (int n = 0; n < a->HV; n++) {
                const struct block b = block_at(a, s, t0, n);
                solve(a, b);
                if (a->model == KCP_KDA) gated(a, b);
            }
    return KCP_OK;
}

/* Computes Aqk and A [T,HV,C], u [T,HV,V], w [T,HV,K] and, for KDA, kg and qg
 * [T,HV,K]. */
int ref_wy(struct kcp_wy *a)
{
    const int refused = kcp_begin("03_wy", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int *cu = a->cu;
    double *L = malloc(sizeof(double) * a->C * a->C);
    if (!L) return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++)
        for (int t0 = cu[s]; t0 < cu[s + 1]; t0 += a->C)
            for (int n = 0; n < a->HV; n++) {
                const struct block b = block_at(a, s, t0, n);
                scores(a, b, L);
                invert(a, b, L);
            }
    free(L);
    return ref_wy_factors(a);
}
