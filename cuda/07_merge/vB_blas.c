/* vB_blas.c -- the fold, one OpenBLAS matrix product per rank and head, on the host.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c's judge.  Next: v1_column.cu.
 * Bound: a product reads K^2 + 2 K V numbers for 2 K^2 V flops, so at K = V = 128 a
 * laptop is compute-bound. The product's argument beta = 1 adds h_ext at no cost. */
#include "kcp.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

static int v07_blas_run(void *args)
{
    const struct kcp_merge *a = args;
    const int HV = a->HV, K = a->K, V = a->V, ld = V + K, *range = a->range;
    const int backward = a->pass == KCP_BACKWARD, count = range[1] - range[0];
    const double *maps = a->maps;
    double *S = a->S, *next = malloc(sizeof(double) * K * V);

    if (!next)
        return KCP_NO_MEMORY;
    if (count <= 0)
        memset(S, 0, sizeof(double) * HV * K * V);
    for (int e = 0; e < count; e++)
        for (int n = 0; n < HV; n++) {
            const int64_t j = backward ? range[1] - 1 - e : range[0] + e;
            const double *map = maps + (j * HV + n) * K * ld;
            double *S_n = S + (int64_t)n * K * V;
            for (int i = 0; i < K; i++)                  /* next = h_ext */
                memcpy(next + i * V, map + (int64_t)i * ld, sizeof(double) * V);
            if (e > 0)                                   /* next += op(M) S */
                cblas_dgemm(CblasRowMajor, backward ? CblasTrans : CblasNoTrans,
                            CblasNoTrans, K, V, K, 1, map + V, ld, S_n, V, 1, next, V);
            memcpy(S_n, next, sizeof(double) * K * V);
        }
    free(next);
    return KCP_OK;
}

KCP_VARIANT(v07_blas) = { "07_merge",   "vB_blas", "a matrix product per rank and head",
                          KCP_F64,      KCP_HOST,  "any shape",
                          v07_blas_run, NULL };
