/* vB_blas.c -- chapter 04 as matrix products, by OpenBLAS, on the host.
 *
 * Book: chapter 04.  Checked by: make check STAGE=04 VARIANT=vB_blas.
 * Next: v1_column.cu.
 * GDN's gate scales rows of q S and of v_new; gated k and q are not computed.
 */
#include "kcp.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Computes C [m,n] = x op(A) B + y C, with sums over k terms. */
static void gemm(int trans_a, int m, int n, int k, double x, const double *A, int lda,
                 const double *B, int ldb, double y, double *C, int ldc)
{
    cblas_dgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, CblasNoTrans, m, n,
                k, x, A, lda, B, ldb, y, C, ldc);
}

/* Processes a chunk of `rows` tokens, starting at t. S [K,V] is the state before the
 * chunk, and is replaced by the state after the chunk. `scratch` [C,V] holds the factor
 * that k^T multiplies. */
static void chunk(const struct kcp_chunk *a, int n, int64_t t, int rows, double *S,
                  double *scratch)
{
    const int K = a->K, V = a->V, HV = a->HV, kda = a->model == KCP_KDA;
    const int vo = HV * V, wk = HV * K, tri = HV * a->C, gate = HV * a->KG;
    const int heads = kda ? HV : a->H, qk = heads * K;
    const int64_t at_qk = t * qk + (int64_t)(kda ? n : n / (HV / a->H)) * K;
    const int64_t at_vo = t * vo + (int64_t)n * V;
    const double *q = (const double *)(kda ? a->qg : a->q) + at_qk;
    const double *k = (const double *)(kda ? a->kg : a->k) + at_qk;
    const double *w = (const double *)a->w + t * wk + (int64_t)n * K;
    const double *Aqk = (const double *)a->Aqk + t * tri + (int64_t)n * a->C;
    const double *u = (const double *)a->u + at_vo;
    const double *G = (const double *)a->G + t * gate + (int64_t)n * a->KG;
    const double *G_last = G + (int64_t)(rows - 1) * gate;
    double *o = (double *)a->o + at_vo, *v_new = (double *)a->v_new + at_vo;

    for (int i = 0; i < rows; i++)
        cblas_dcopy(V, u + (int64_t)i * vo, 1, v_new + (int64_t)i * vo, 1);
    gemm(0, rows, V, K, -1, w, wk, S, V, 1, v_new, vo);

    gemm(0, rows, V, K, a->scale, q, qk, S, V, 0, o, vo);
    for (int i = 0; i < rows; i++) {
        const double g = G[(int64_t)i * gate];
        cblas_dcopy(V, v_new + (int64_t)i * vo, 1, scratch + (int64_t)i * V, 1);
        if (!kda) {
            cblas_dscal(V, exp2(g), o + (int64_t)i * vo, 1);
            cblas_dscal(V, exp2(G_last[0] - g), scratch + (int64_t)i * V, 1);
        }
    }
    gemm(0, rows, V, rows, 1, Aqk, tri, v_new, vo, 1, o, vo);

    for (int i = 0; i < K; i++)
        cblas_dscal(V, exp2(G_last[kda ? i : 0]), S + (int64_t)i * V, 1);
    gemm(1, K, V, rows, 1, k, qk, scratch, V, 1, S, V);
}

static int v04_blas_run(void *args)
{
    const struct kcp_chunk *a = args;
    const int *cu = a->cu, *cn = a->cn;
    const size_t size = (size_t)a->K * a->V;
    double *scratch = malloc(sizeof(double) * a->C * a->V);

    if (!scratch) return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++)
        for (int n = 0; n < a->HV; n++) {
            const size_t sn = ((size_t)s * a->HV + n) * size;
            double *S = (double *)a->h_out + sn;
            memset(S, 0, sizeof(double) * size);
            if (a->h_in)
                memcpy(S, (const double *)a->h_in + sn, sizeof(double) * size);
            for (int c = cn[s]; c < cn[s + 1]; c++) {
                const int64_t t = cu[s] + (int64_t)(c - cn[s]) * a->C;
                const int64_t left = cu[s + 1] - t;
                memcpy((double *)a->h + ((size_t)c * a->HV + n) * size, S,
                       sizeof(double) * size);
                chunk(a, n, t, left < a->C ? (int)left : a->C, S, scratch);
            }
        }
    free(scratch);
    return KCP_OK;
}

KCP_VARIANT(v04_blas) = { "04_chunk",   "vB_blas", "four matrix products per chunk",
                          KCP_F64,      KCP_HOST,  "any shape",
                          v04_blas_run, NULL };
