/* vB_blas.c -- chapter 03 by OpenBLAS products and triangular solves, on the host.
 *
 * Book: chapter 03.  Checked by: make check STAGE=03 VARIANT=vB_blas.
 * Next: v1_pairs.cu.
 * KDA's exp2(G_i - G_j) is factored with one anchor per 16 rows, the first row of the
 * query block, so both exponents are <= 0 for any gate. Within a diagonal block of 16
 * rows no anchor is safe, so the pairs are computed one by one.
 */
#include "kcp.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16 };

/* One chunk of one value head: pointers to row 0, and row strides in doubles. */
struct cut {
    int rows, qk, vo, wk, tri, gate, one;
    const double *q, *k, *v, *G, *beta;
    double *Aqk, *A, *u, *w, *kg, *qg;
};

static struct cut cut_at(const struct kcp_wy *a, int n, int64_t t, int rows)
{
    const int m = n / (a->HV / a->H);
    struct cut x = { .rows = rows, .qk = a->H * a->K, .vo = a->HV * a->V,
                     .wk = a->HV * a->K, .tri = a->HV * a->C, .gate = a->HV * a->KG,
                     .one = a->HV };
    const int64_t qk = t * x.qk + m * a->K, vo = t * x.vo + n * a->V;
    const int64_t wk = t * x.wk + n * a->K, tri = t * x.tri + n * a->C;
    x.q = (const double *)a->q + qk;
    x.k = (const double *)a->k + qk;
    x.v = (const double *)a->v + vo;
    x.u = (double *)a->u + vo;
    x.G = (const double *)a->G + t * x.gate + n * a->KG;
    x.beta = (const double *)a->beta + t * x.one + n;
    x.Aqk = (double *)a->Aqk + tri;
    x.A = (double *)a->A + tri;
    x.w = (double *)a->w + wk;
    if (a->model == KCP_KDA) {
        x.kg = (double *)a->kg + wk;
        x.qg = (double *)a->qg + wk;
    }
    return x;
}

/* Computes C [m,n] = x A B^T. */
static void product_t(int m, int n, int k, double x, const double *A, int lda,
                      const double *B, int ldb, double *C, int ldc)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, x, A, lda, B, ldb, 0,
                C, ldc);
}

/* GDN: computes q k^T and k k^T, then scales the products by the gate, which all
 * channels share. */
static void scores_gdn(const struct kcp_wy *a, const struct cut *x, double *L)
{
    product_t(x->rows, x->rows, a->K, a->scale, x->q, x->qk, x->k, x->qk, x->Aqk,
              x->tri);
    product_t(x->rows, x->rows, a->K, 1, x->k, x->qk, x->k, x->qk, L, a->C);
    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j <= i; j++) {
            const double D = exp2(x->G[i * x->gate] - x->G[j * x->gate]);
            x->Aqk[(int64_t)i * x->tri + j] *= D;
            L[i * a->C + j] *= D;
        }
}

/* KDA: computes the pairs of rows i0..i1 with rows 0..i0, as two products with one
 * anchor. `scratch` is [2 ROWS + C, K]. */
static void scores_below(const struct kcp_wy *a, const struct cut *x, int i0, int i1,
                         double *L, double *scratch)
{
    const int K = a->K;
    const double *anchor = x->G + (int64_t)i0 * x->gate;
    double *q = scratch, *k = q + ROWS * K, *past = k + ROWS * K;

    for (int i = i0; i < i1; i++)
        for (int p = 0; p < K; p++) {
            const double E = exp2(x->G[(int64_t)i * x->gate + p] - anchor[p]);
            q[(i - i0) * K + p] = x->q[(int64_t)i * x->qk + p] * E;
            k[(i - i0) * K + p] = x->k[(int64_t)i * x->qk + p] * E;
        }
    for (int j = 0; j < i0; j++)
        for (int p = 0; p < K; p++)
            past[j * K + p] = x->k[(int64_t)j * x->qk + p] *
                              exp2(anchor[p] - x->G[(int64_t)j * x->gate + p]);
    product_t(i1 - i0, i0, K, a->scale, q, K, past, K, x->Aqk + (int64_t)i0 * x->tri,
              x->tri);
    product_t(i1 - i0, i0, K, 1, k, K, past, K, L + i0 * a->C, a->C);
}

/* KDA: computes the pairs within rows i0..i1. `row` [K] is scratch for k_j exp2(G_i -
 * G_j). */
static void scores_diagonal(const struct kcp_wy *a, const struct cut *x, int i0, int i1,
                            double *L, double *row)
{
    const int K = a->K;
    for (int i = i0; i < i1; i++)
        for (int j = i0; j <= i; j++) {
            const double *Gi = x->G + (int64_t)i * x->gate;
            const double *Gj = x->G + (int64_t)j * x->gate;
            const double *kj = x->k + (int64_t)j * x->qk;
            for (int p = 0; p < K; p++)
                row[p] = kj[p] * exp2(Gi[p] - Gj[p]);
            x->Aqk[(int64_t)i * x->tri + j] =
                a->scale * cblas_ddot(K, x->q + (int64_t)i * x->qk, 1, row, 1);
            L[i * a->C + j] = cblas_ddot(K, x->k + (int64_t)i * x->qk, 1, row, 1);
        }
}

/* Computes A = (I + L)^-1. The solver assumes a diagonal of 1 and reads only the
 * part of L below the diagonal. */
static void inverse(const struct kcp_wy *a, const struct cut *x, double *L)
{
    for (int i = 0; i < x->rows; i++) {
        cblas_dscal(i, x->beta[i * x->one], L + i * a->C, 1);
        for (int j = 0; j < a->C; j++) {
            x->A[(int64_t)i * x->tri + j] = i == j;
            if (j > i)
                x->Aqk[(int64_t)i * x->tri + j] = 0;
        }
    }
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, x->rows,
                x->rows, 1, L, a->C, x->A, x->tri);
}

/* Computes u = A (beta v) and w = A (beta exp2(G) k) in place, and kg and qg row by
 * row. */
static void factors(const struct kcp_wy *a, const struct cut *x)
{
    const int K = a->K, V = a->V, kda = a->model == KCP_KDA;
    const double *last = x->G + (int64_t)(x->rows - 1) * x->gate;

    for (int i = 0; i < x->rows; i++) {
        const double beta = x->beta[i * x->one], *G = x->G + (int64_t)i * x->gate;
        const double *k = x->k + (int64_t)i * x->qk, *q = x->q + (int64_t)i * x->qk;
        const int64_t row = (int64_t)i * x->wk;
        for (int v = 0; v < V; v++)
            x->u[(int64_t)i * x->vo + v] = beta * x->v[(int64_t)i * x->vo + v];
        for (int p = 0; p < K; p++)
            x->w[row + p] = beta * k[p] * exp2(G[kda ? p : 0]);
        for (int p = 0; p < K && kda; p++) {
            x->kg[row + p] = k[p] * exp2(last[p] - G[p]);
            x->qg[row + p] = q[p] * exp2(G[p]);
        }
    }
    cblas_dtrmm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, x->rows,
                V, 1, x->A, x->tri, x->u, x->vo);
    cblas_dtrmm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, x->rows,
                K, 1, x->A, x->tri, x->w, x->wk);
}

static int v03_blas_run(void *args)
{
    const struct kcp_wy *a = args;
    const int *cu = a->cu, *cn = a->cn, *sc = a->sc, C = a->C;
    double *L = malloc(sizeof(double) * C * C);
    double *scratch = malloc(sizeof(double) * (2 * ROWS + C) * a->K);

    for (int c = 0; c < a->NC && L && scratch; c++)
        for (int n = 0; n < a->HV; n++) {
            const int64_t t = cu[sc[c]] + (int64_t)(c - cn[sc[c]]) * C;
            const int64_t left = cu[sc[c] + 1] - t;
            const struct cut x = cut_at(a, n, t, left < C ? (int)left : C);
            if (a->model == KCP_GDN)
                scores_gdn(a, &x, L);
            for (int i = 0; i < x.rows && a->model == KCP_KDA; i += ROWS) {
                const int end = i + ROWS < x.rows ? i + ROWS : x.rows;
                if (i > 0) scores_below(a, &x, i, end, L, scratch);
                scores_diagonal(a, &x, i, end, L, scratch);
            }
            inverse(a, &x, L);
            factors(a, &x);
        }
    const int ok = L && scratch;
    free(L);
    free(scratch);
    return ok ? KCP_OK : KCP_NO_MEMORY;
}

KCP_VARIANT(v03_blas) = {
    "03_wy",      "vB_blas", "products with one anchor per 16 rows, triangular solves",
    KCP_F64,      KCP_HOST,  "any shape",
    v03_blas_run, NULL
};
