/* vB_blas.c -- chapter 05 as matrix products, by OpenBLAS, on the host.
 *
 * Book: chapter 05.  Checked by: make check STAGE=05 VARIANT=vB_blas.
 * Next: v1_column.cu.
 * h_ext (K x V) and M (K x K) are computed by two separate scans of the same chunks. A
 * stretch that needs only h_ext or only M runs only that scan.
 */
#include "kcp.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One part of a stretch's map, h_ext or M: X has n columns, row stride `ld`. Each chunk
 * computes y = u - w X (u = 0 for M), y [C,n], then X <- Lambda X + kg^T y. */
struct map_part {
    double *X;
    const double *u;
    int n, ld, ld_u;
};

static void chunk(const struct kcp_affine *a, int head, int64_t t, int rows,
                  const struct map_part *x, double *y)
{
    const int K = a->K, HV = a->HV, kda = a->model == KCP_KDA, gate = HV * a->KG;
    const int heads = kda ? HV : a->H, n = x->n;
    const double *k = (const double *)(kda ? a->kg : a->k) + t * heads * K +
                      (int64_t)(kda ? head : head / (HV / a->H)) * K;
    const double *w = (const double *)a->w + (t * HV + head) * K;
    const double *G = (const double *)a->G + (t * HV + head) * a->KG;
    const double *G_last = G + (int64_t)(rows - 1) * gate;

    memset(y, 0, sizeof(double) * rows * n);
    for (int i = 0; i < rows && x->u; i++)
        cblas_dcopy(n, x->u + (t + i) * x->ld_u, 1, y + (int64_t)i * n, 1);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, n, K, -1, w, HV * K,
                x->X, x->ld, 1, y, n);
    for (int i = 0; i < rows && !kda; i++)
        cblas_dscal(n, exp2(G_last[0] - G[(int64_t)i * gate]), y + (int64_t)i * n, 1);
    for (int i = 0; i < K; i++)
        cblas_dscal(n, exp2(G_last[kda ? i : 0]), x->X + (int64_t)i * x->ld, 1);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, K, n, rows, 1, k, heads * K, y,
                n, 1, x->X, x->ld);
}

static void affine_stretch(const struct kcp_affine *a, int s, int head,
                           const struct map_part *x, double *y)
{
    const int *cu = a->cu, C = a->C;
    for (int64_t t = cu[s]; t < cu[s + 1]; t += C)
        chunk(a, head, t, cu[s + 1] - t < C ? (int)(cu[s + 1] - t) : C, x, y);
}

static int v05_blas_run(void *args)
{
    const struct kcp_affine *a = args;
    const int K = a->K, V = a->V, W = V + K, HV = a->HV, *want = a->want;
    const double *start = a->h_start, *u = a->u;
    double *y = malloc(sizeof(double) * a->C * (K > V ? K : V));

    if (!y)
        return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++)
        for (int head = 0; head < HV; head++) {
            const size_t sn = (size_t)s * HV + head;
            double *map = (double *)a->map + sn * K * W;
            const struct map_part h = { map, u + (size_t)head * V, V, W, HV * V };
            const struct map_part M = { map + V, NULL, K, W, 0 };
            for (int i = 0; i < K; i++) {
                if (want[s] & KCP_WANT_H)
                    for (int v = 0; v < V; v++)
                        map[i * W + v] = start ? start[(sn * K + i) * V + v] : 0;
                if (want[s] & KCP_WANT_M)
                    for (int p = 0; p < K; p++)
                        map[i * W + V + p] = i == p;
            }
            if (want[s] & KCP_WANT_H) affine_stretch(a, s, head, &h, y);
            if (want[s] & KCP_WANT_M) affine_stretch(a, s, head, &M, y);
        }
    free(y);
    return KCP_OK;
}

KCP_VARIANT(v05_blas) = {
    "05_affine",  "vB_blas", "two scans, each two matrix products per chunk",
    KCP_F64,      KCP_HOST,  "any shape",
    v05_blas_run, NULL
};
