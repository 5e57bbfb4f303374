/* vB_blas.c -- chapter 09 as matrix products, by OpenBLAS, on the host.
 *
 * Book: chapter 09.  Checked by: make check STAGE=09 VARIANT=vB_blas.
 * Next: v1_column.cu.
 * For GDN the gate scales rows of k dS and of dO; gated k and q are not computed.
 */
#include "kcp.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = CblasNoTrans, T = CblasTrans };

/* Computes C = x op(A) op(B) + y C. */
static void gemm(int ta, int tb, int m, int n, int k, double x, const double *A,
                 int lda, const double *B, int ldb, double y, double *C, int ldc)
{
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, x, A, lda, B, ldb, y, C, ldc);
}

/* One chunk of one value head: pointers to the chunk's first row, and row strides. */
struct cut {
    int rows, vo, wk, qk, tri, gate;      /* doubles from row to row */
    const double *q, *k, *w, *Aqk, *v_new, *G, *dO;
    double *dAqk, *dv_local, *dU;
};

static struct cut at(const struct kcp_chunk_backward *a, int n, int64_t t, int rows)
{
    const int kda = a->model == KCP_KDA, m = n / (a->HV / a->H);
    struct cut x = { .rows = rows, .vo = a->HV * a->V, .wk = a->HV * a->K,
                     .qk = (kda ? a->HV : a->H) * a->K, .tri = a->HV * a->C,
                     .gate = a->HV * a->KG };
    const int64_t qk = t * x.qk + (kda ? n : m) * a->K, vo = t * x.vo + n * a->V;
    x.q = (const double *)(kda ? a->qg : a->q) + qk;
    x.k = (const double *)(kda ? a->kg : a->k) + qk;
    x.w = (const double *)a->w + t * x.wk + n * a->K;
    x.Aqk = (const double *)a->Aqk + t * x.tri + n * a->C;
    x.dAqk = (double *)a->dAqk + t * x.tri + n * a->C;
    x.G = (const double *)a->G + t * x.gate + n * a->KG;
    x.v_new = (const double *)a->v_new + vo;
    x.dO = (const double *)a->do_ + vo;
    x.dv_local = (double *)a->dv_local + vo;
    x.dU = (double *)a->dU + vo;
    return x;
}

/* Computes dAqk = scale tril(dO v_new^T) and dv_local = Aqk^T dO; Aqk is 0 above its
 * diagonal. */
static void local_gradients(const struct kcp_chunk_backward *a, const struct cut *x)
{
    gemm(N, T, x->rows, x->rows, a->V, a->scale, x->dO, x->vo, x->v_new, x->vo, 0,
         x->dAqk, x->tri);
    for (int i = 0; i < x->rows; i++)
        for (int j = i + 1; j < a->C; j++)
            x->dAqk[(int64_t)i * x->tri + j] = 0;
    gemm(T, N, x->rows, a->V, x->rows, 1, x->Aqk, x->tri, x->dO, x->vo, 0, x->dv_local,
         x->vo);
}

/* Computes dU = kg dS + dv_local, then dS <- Lambda dS + scale qg^T dO - w^T dU. `row`
 * [C,V] is scratch. */
static void reverse(const struct kcp_chunk_backward *a, const struct cut *x, double *dS,
                    double *row)
{
    const int K = a->K, V = a->V, kda = a->model == KCP_KDA, last = x->rows - 1;
    const double *G_last = x->G + (int64_t)last * x->gate;

    gemm(N, N, x->rows, V, K, 1, x->k, x->qk, dS, V, 0, x->dU, x->vo);
    for (int i = 0; i < x->rows; i++) {
        const double G = x->G[(int64_t)i * x->gate];
        const double ek = kda ? 1 : exp2(G_last[0] - G), eq = kda ? 1 : exp2(G);
        for (int64_t v = 0, at = (int64_t)i * x->vo; v < V; v++) {
            x->dU[at + v] = ek * x->dU[at + v] + x->dv_local[at + v];
            row[i * V + v] = eq * x->dO[at + v];
        }
    }
    for (int i = 0; i < K; i++)
        cblas_dscal(V, exp2(G_last[kda ? i : 0]), dS + (int64_t)i * V, 1);
    gemm(T, N, K, V, x->rows, a->scale, x->q, x->qk, row, V, 1, dS, V);
    gemm(T, N, K, V, x->rows, -1, x->w, x->wk, x->dU, x->vo, 1, dS, V);
}

static int v09_blas_run(void *args)
{
    const struct kcp_chunk_backward *a = args;
    const int *cu = a->cu, *cn = a->cn;
    const int64_t size = (int64_t)a->K * a->V;
    const double *dh_out = a->dh_out;
    double *row = malloc(sizeof(double) * a->C * a->V), *dh = a->dh;

    if (!row)
        return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++)
        for (int n = 0; n < a->HV; n++) {
            const int64_t sn = ((int64_t)s * a->HV + n) * size;
            double *dS = (double *)a->dh_in + sn;
            if (a->part & KCP_REVERSE && dh_out)
                memcpy(dS, dh_out + sn, sizeof(double) * size);
            else if (a->part & KCP_REVERSE)
                memset(dS, 0, sizeof(double) * size);
            for (int c = cn[s + 1] - 1; c >= cn[s]; c--) {
                const int64_t t = cu[s] + (int64_t)(c - cn[s]) * a->C;
                const struct cut x = at(a, n, t, cu[s + 1] - t < a->C
                                                     ? (int)(cu[s + 1] - t) : a->C);
                if (a->part & KCP_LOCAL) local_gradients(a, &x);
                if (!(a->part & KCP_REVERSE))
                    continue;
                memcpy(dh + ((int64_t)c * a->HV + n) * size, dS, sizeof(double) * size);
                reverse(a, &x, dS, row);
            }
        }
    free(row);
    return KCP_OK;
}

KCP_VARIANT(v09_blas) = { "09_chunk_backward",
                          "vB_blas",
                          "five matrix products per chunk",
                          KCP_F64,
                          KCP_HOST,
                          "any shape",
                          v09_blas_run,
                          NULL };
