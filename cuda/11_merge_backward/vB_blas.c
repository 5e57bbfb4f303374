/* vB_blas.c -- chapter 11 as one augmented scan of matrix products, by OpenBLAS.
 *
 * Book: chapter 11.  Checked by: make check STAGE=11 VARIANT=vB_blas.
 * Next: v1_column.cu.
 * X = [dh_ext | M^T], K rows of V+K columns: three products compute
 * both parts. If only one part is required, the other's columns are skipped.
 */
#include "kcp.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

enum { N = CblasNoTrans, T = CblasTrans };

static void gemm(int ta, int tb, int m, int n, int k, double x, const double *A,
                 int lda, const double *B, int ldb, double y, double *C, int ldc)
{
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, x, A, lda, B, ldb, y, C, ldc);
}

/* Columns c0 .. c1-1 of X are processed; dU [C,V+K] and `row` [C,V] are scratch. */
struct columns {
    int n, c0, c1;
    double *X, *dU, *row;
};

/* Computes dU = kg X + [dv_local | 0], then X <- Lambda X + scale qg^T [dO | 0] - w^T
 * dU. */
static void merge_backward(const struct kcp_merge_backward *a, const struct columns *x,
                           int64_t t0, int rows)
{
    const int K = a->K, V = a->V, ld = V + K, n = x->n, kda = a->model == KCP_KDA;
    const int heads = kda ? a->HV : a->H, m = kda ? n : n / (a->HV / a->H);
    const int64_t qk = (t0 * heads + m) * K;
    const double *q = (const double *)(kda ? a->qg : a->q) + qk;
    const double *k = (const double *)(kda ? a->kg : a->k) + qk;
    const double *w = (const double *)a->w + (t0 * a->HV + n) * K;
    const double (*G)[a->HV][a->KG] = a->G, *G_last = G[t0 + rows - 1][n];
    const double (*dO)[a->HV][V] = a->do_, (*dv_local)[a->HV][V] = a->dv_local;
    const int cols = x->c1 - x->c0, h = x->c0 == 0;
    double *X = x->X + x->c0, *dU = x->dU + x->c0;

    gemm(N, N, rows, cols, K, 1, k, heads * K, X, ld, 0, dU, ld);
    for (int i = 0; i < rows; i++) {
        const double e = kda ? 1 : exp2(G_last[0] - G[t0 + i][n][0]);
        const double eq = kda ? 1 : exp2(G[t0 + i][n][0]);
        cblas_dscal(cols, e, dU + (int64_t)i * ld, 1);
        for (int v = 0; v < V && h; v++) {
            dU[(int64_t)i * ld + v] += dv_local[t0 + i][n][v];
            x->row[i * V + v] = eq * dO[t0 + i][n][v];
        }
    }
    for (int i = 0; i < K; i++)
        cblas_dscal(cols, exp2(G_last[kda ? i : 0]), X + (int64_t)i * ld, 1);
    if (h)
        gemm(T, N, K, V, rows, a->scale, q, heads * K, x->row, V, 1, X, ld);
    gemm(T, N, K, cols, rows, -1, w, a->HV * K, dU, ld, 1, X, ld);
}

static void stretch(const struct kcp_merge_backward *a, const struct columns *x, int s)
{
    const int K = a->K, V = a->V, ld = V + K, *cu = a->cu, *cn = a->cn;
    const double (*dh_end)[a->HV][K][V] = a->dh_end;
    double (*dmap)[a->HV][K][ld] = a->dmap, (*X)[ld] = (double (*)[ld])x->X;

    for (int i = 0; i < K; i++) {
        for (int v = 0; v < V; v++)
            X[i][v] = dh_end ? dh_end[s][x->n][i][v] : 0;
        for (int p = 0; p < K; p++)
            X[i][V + p] = i == p;
    }
    for (int c = cn[s + 1] - 1; c >= cn[s]; c--) {
        const int64_t t = cu[s] + (int64_t)(c - cn[s]) * a->C;
        merge_backward(a, x, t, cu[s + 1] - t < a->C ? (int)(cu[s + 1] - t) : a->C);
    }
    for (int i = 0; i < K; i++) {
        for (int v = 0; v < V && x->c0 == 0; v++)
            dmap[s][x->n][i][v] = X[i][v];
        for (int p = 0; p < K && x->c1 > V; p++)
            dmap[s][x->n][i][V + p] = X[p][V + i];
    }
}

static int v11_blas_run(void *args)
{
    const struct kcp_merge_backward *a = args;
    const int K = a->K, V = a->V, *want = a->want;
    const int64_t ld = V + K;
    double *p = malloc(sizeof(double) * (K * ld + a->C * ld + (int64_t)a->C * V));

    if (!p)
        return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++) {
        const int M = want[s] & KCP_WANT_M && !a->reuse_M, h = want[s] & KCP_WANT_H;
        struct columns x = { .c0 = h ? 0 : V,
                             .c1 = M ? V + K : V,
                             .X = p,
                             .dU = p + K * ld,
                             .row = p + K * ld + a->C * ld };
        for (x.n = 0; x.n < a->HV && (h || M); x.n++)
            stretch(a, &x, s);
    }
    free(p);
    return KCP_OK;
}

KCP_VARIANT(v11_blas) = { "11_merge_backward",
                          "vB_blas",
                          "one augmented scan, three matrix products per chunk",
                          KCP_F64,
                          KCP_HOST,
                          "any shape",
                          v11_blas_run,
                          NULL };
