/* vB_blas.c -- chapter 10 as matrix products, by OpenBLAS, on the host.
 *
 * Book: chapter 10.  Checked by: make check STAGE=10 VARIANT=vB_blas.
 * Next: v1_column.cu.
 * Off the diagonal, D_ij = exp2(G_i - a) exp2(a - G_j) with a the gate of the first
 * row of i's block; both exponents are <= 0. Within a block of B rows the pairs are
 * computed one by one. GDN has one D_ij for all of K, which multiplies dAqk and dL.
 */
#include "kcp.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = CblasNoTrans, T = CblasTrans, B = 16 };

static void gemm(int ta, int tb, int m, int n, int k, double x, const double *A,
                 int lda, const double *b, int ldb, double y, double *C, int ldc)
{
    if (m > 0 && n > 0 && k > 0)
        cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, x, A, lda, b, ldb, y, C, ldc);
}

/* One chunk of one value head in dense arrays: rows have K, V, C or KG numbers. */
struct cut {
    int H, HV, K, V, C, KG, kda, rows;
    double scale, *q, *k, *v, *G, *E, *beta, *A, *v_new, *dO, *dAqk, *dU;
    const double *h, *dS;
    double *dq1, *dks, *dw, *dkgb, *dvb, *dA, *X, *dL, *dq2, *dk2, *dkt, *P, *Q, *S;
};

static void copy(double *to, const void *from, int64_t t, int n, int heads, int width,
                 int rows)
{
    for (int i = 0; i < rows; i++)
        memcpy(to + (int64_t)i * width,
               (const double *)from + ((t + i) * heads + n) * width,
               sizeof(double) * width);
}

static double gate(const struct cut *x, int i, int d)
{
    return x->G[i * x->KG + (x->kda ? d : 0)];
}

/* Computes dq1, dk_s, dw, then dkgb, dvb, dA and dL by nine products. */
static void products(const struct cut *x)
{
    const int K = x->K, V = x->V, C = x->C, n = x->rows;
    double *E_k = x->P;

    gemm(N, T, n, K, V, x->scale, x->dO, V, x->h, V, 0, x->dq1, K);
    gemm(N, T, n, K, V, 1, x->v_new, V, x->dS, V, 0, x->dks, K);
    gemm(N, T, n, K, V, -1, x->dU, V, x->h, V, 0, x->dw, K);
    for (int i = 0; i < n; i++)
        for (int d = 0; d < K; d++) {
            x->E[i * K + d] = exp2(gate(x, i, d));
            x->dq1[i * K + d] *= x->E[i * K + d];
            x->dks[i * K + d] *= exp2(gate(x, n - 1, d) - gate(x, i, d));
            E_k[i * K + d] = x->E[i * K + d] * x->k[i * K + d];
        }
    gemm(T, N, n, K, n, 1, x->A, C, x->dw, K, 0, x->dkgb, K);
    gemm(T, N, n, V, n, 1, x->A, C, x->dU, V, 0, x->dvb, V);
    gemm(N, T, n, n, V, 1, x->dU, V, x->v, V, 0, x->dA, C);
    gemm(N, T, n, n, K, 1, x->dw, K, E_k, K, 1, x->dA, C);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            x->dA[i * C + j] *= j < i ? x->beta[j] : 0;
    gemm(N, T, n, n, n, 1, x->dA, C, x->A, C, 0, x->X, C);
    gemm(T, N, n, n, n, -1, x->A, C, x->X, C, 0, x->dL, C);
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            x->dL[i * C + j] = 0;
}

/* KDA: computes pairs of rows i0 .. i1-1 with rows j < i0, then pairs among i0 .. i1-1.
 * S holds a product before the multiplication by exp2(G_i - a) or exp2(a - G_j). */
static void block(const struct cut *x, int i0, int i1)
{
    const int K = x->K, C = x->C, m = i1 - i0;
    double *in[2] = { x->dAqk + i0 * C, x->dL + i0 * C }, *out[2] = { x->dq2, x->dk2 };

    for (int j = 0; j < i0; j++)
        for (int d = 0; d < K; d++)
            x->Q[j * K + d] = exp2(gate(x, i0, d) - gate(x, j, d));
    for (int two = 0; two < 2; two++) {
        for (int j = 0; j < i0 * K; j++)
            x->P[j] = x->Q[j] * x->k[j];
        gemm(N, N, m, K, i0, 1, in[two], C, x->P, K, 0, x->S, K);
        for (int i = i0; i < i1; i++)
            for (int d = 0; d < K; d++) {
                const double e = exp2(gate(x, i, d) - gate(x, i0, d));
                const int at = i * K + d;
                out[two][at] += i0 ? e * x->S[(i - i0) * K + d] : 0;
                x->P[(i - i0) * K + d] = e * (two ? x->beta[i] * x->k[at] : x->q[at]);
            }
        gemm(T, N, i0, K, m, 1, in[two], C, x->P, K, 0, x->S, K);
        for (int j = 0; j < i0 * K; j++)
            x->dkt[j] += x->Q[j] * x->S[j];
    }
    for (int i = i0; i < i1; i++)
        for (int j = i0; j < i; j++)
            for (int d = 0; d < K; d++) {
                const double D = exp2(gate(x, i, d) - gate(x, j, d));
                const double s = x->dAqk[i * C + j] * D, l = x->dL[i * C + j] * D;
                x->dq2[i * K + d] += s * x->k[j * K + d];
                x->dk2[i * K + d] += l * x->k[j * K + d];
                x->dkt[j * K + d] += s * x->q[i * K + d]
                                   + l * x->beta[i] * x->k[i * K + d];
            }
}

/* GDN: computes P = dAqk D and Q = dL D element by element for i > j, then products
 * with P and Q. */
static void scalar(const struct cut *x)
{
    const int K = x->K, C = x->C, n = x->rows;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const double D = j < i ? exp2(x->G[i] - x->G[j]) : 0;
            x->P[i * C + j] = x->dAqk[i * C + j] * D;
            x->Q[i * C + j] = x->dL[i * C + j] * D;
        }
    gemm(N, N, n, K, n, 1, x->P, C, x->k, K, 0, x->dq2, K);
    gemm(N, N, n, K, n, 1, x->Q, C, x->k, K, 0, x->dk2, K);
    for (int i = 0; i < n; i++)
        cblas_dscal(n, x->beta[i], x->Q + i * C, 1);
    gemm(T, N, n, K, n, 1, x->P, C, x->q, K, 0, x->dkt, K);
    gemm(T, N, n, K, n, 1, x->Q, C, x->k, K, 1, x->dkt, K);
}

/* Computes row i of every output and dG [KG] of row i, and adds the row's part of
 * dG_last to `last`. */
static void row(const struct cut *x, const struct kcp_wy_backward *a, int i, int n,
                int64_t t, double *dG, double *last)
{
    const int K = x->K, V = x->V, m = n / (x->HV / x->H);
    double *dq = (double *)a->dq + (t * x->H + m) * K;
    double *dk = (double *)a->dk + (t * x->H + m) * K;
    double *dv = (double *)a->dv + (t * x->HV + n) * V;
    const double b = x->beta[i], ii = x->dAqk[i * x->C + i];
    double dbeta = cblas_ddot(V, x->dvb + i * V, 1, x->v + i * V, 1);

    for (int v = 0; v < V; v++)
        dv[v] = b * x->dvb[i * V + v];
    for (int d = 0; d < K; d++) {
        const int at = i * K + d, e = x->kda ? d : 0;
        const double q = x->q[at], k = x->k[at], through = x->E[at] * x->dkgb[at];
        const double star = i < x->rows - 1 ? k * x->dks[at] : 0;
        dq[d] += x->dq1[at] + x->dq2[at] + ii * k;
        dk[d] += x->dks[at] + b * (through + x->dk2[at]) + x->dkt[at] + ii * q;
        dbeta += (through + x->dk2[at]) * k;
        dG[e] += q * (x->dq1[at] + x->dq2[at]) - star
               + k * (b * (through + x->dk2[at]) - x->dkt[at]);
        last[e] += star;
    }
    ((double *)a->dbeta)[t * x->HV + n] = dbeta;
}

static void outputs(const struct cut *x, const struct kcp_wy_backward *a, int n,
                    int64_t t0)
{
    const int KG = x->KG, K = x->K, V = x->V, end = x->rows - 1;
    double *dG = x->P, *last = x->Q, (*dg)[x->HV][KG] = a->dg;

    memset(dG, 0, sizeof(double) * x->rows * KG);
    memset(last, 0, sizeof(double) * KG);
    for (int i = 0; i <= end; i++)
        row(x, a, i, n, t0 + i, dG + i * KG, last);
    for (int d = 0; d < K; d++)
        last[x->kda ? d : 0] += exp2(gate(x, end, d))
                              * cblas_ddot(V, x->h + (int64_t)d * V, 1,
                                           x->dS + (int64_t)d * V, 1);
    for (int d = 0; d < KG; d++)
        for (int i = end; i >= 0; i--)
            dg[t0 + i][n][d] = dG[i * KG + d]
                             + (i < end ? dg[t0 + i + 1][n][d] : last[d]);
}

static void chunk(struct cut *x, const struct kcp_wy_backward *a, int n, int c,
                  int64_t t)
{
    const int m = n / (x->HV / x->H), rows = x->rows;
    const int64_t state = ((int64_t)c * x->HV + n) * x->K * x->V;

    copy(x->q, a->q, t, m, x->H, x->K, rows);
    copy(x->k, a->k, t, m, x->H, x->K, rows);
    copy(x->v, a->v, t, n, x->HV, x->V, rows);
    copy(x->G, a->G, t, n, x->HV, x->KG, rows);
    copy(x->beta, a->beta, t, n, x->HV, 1, rows);
    copy(x->A, a->A, t, n, x->HV, x->C, rows);
    copy(x->v_new, a->v_new, t, n, x->HV, x->V, rows);
    copy(x->dO, a->do_, t, n, x->HV, x->V, rows);
    copy(x->dAqk, a->dAqk, t, n, x->HV, x->C, rows);
    copy(x->dU, a->dU, t, n, x->HV, x->V, rows);
    x->h = (const double *)a->h + state;
    x->dS = (const double *)a->dh + state;

    products(x);
    memset(x->dq2, 0, sizeof(double) * x->C * x->K);
    memset(x->dk2, 0, sizeof(double) * x->C * x->K);
    memset(x->dkt, 0, sizeof(double) * x->C * x->K);
    for (int i = 0; i < rows && x->kda; i += B)
        block(x, i, i + B < rows ? i + B : rows);
    if (!x->kda)
        scalar(x);
    outputs(x, a, n, t);
}

static int v10_blas_run(void *args)
{
    const struct kcp_wy_backward *a = args;
    const int *cu = a->cu, *cn = a->cn;
    const int64_t K = a->K, V = a->V, C = a->C, CK = C * (K > C ? K : C), CV = C * V;
    double *p = malloc(sizeof(double) * (14 * CK + 5 * CV + 5 * C * C + C)), *s = p;

    if (!p)
        return KCP_NO_MEMORY;
    struct cut x = { .H = a->H, .HV = a->HV, .K = a->K, .V = a->V, .C = a->C,
                     .KG = a->KG, .kda = a->model == KCP_KDA, .scale = a->scale };
    double **wide[] = { &x.q, &x.k, &x.E, &x.dq1, &x.dks, &x.dw, &x.dkgb, &x.dq2,
                        &x.dk2, &x.dkt, &x.P, &x.Q, &x.S, &x.G };
    double **tall[] = { &x.v, &x.v_new, &x.dO, &x.dU, &x.dvb };
    double **of_chunk[] = { &x.A, &x.dAqk, &x.dA, &x.X, &x.dL };
    for (int j = 0; j < 14; j++, s += CK)
        *wide[j] = s;
    for (int j = 0; j < 5; j++, s += CV)
        *tall[j] = s;
    for (int j = 0; j < 5; j++, s += C * C) *of_chunk[j] = s;
    x.beta = s;
    if (a->T > 0) {
        memset(a->dq, 0, sizeof(double) * a->T * a->H * K);
        memset(a->dk, 0, sizeof(double) * a->T * a->H * K);
    }
    for (int j = 0; j < a->NS; j++)
        for (int c = cn[j]; c < cn[j + 1]; c++) {
            const int64_t t = cu[j] + (c - cn[j]) * C;
            x.rows = cu[j + 1] - t < C ? (int)(cu[j + 1] - t) : (int)C;
            for (int n = 0; n < a->HV; n++)
                chunk(&x, a, n, c, t);
        }
    free(p);
    return KCP_OK;
}

KCP_VARIANT(v10_blas) = { "10_wy_backward",
                          "vB_blas",
                          "products with one anchor per 16 rows off the diagonal",
                          KCP_F64,
                          KCP_HOST,
                          "any shape",
                          v10_blas_run,
                          NULL };
