/* wrong.c -- defines two more mutants of chapter 10.
 * Book: chapter 10.
 * Each mutant calls the reference, then adds an error to the result. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

/* Adds `by` times each gradient of x to the same gradient of a. */
static void add(const struct kcp_wy_backward *a, const struct kcp_wy_backward *x,
                double by)
{
    const int64_t T = a->T, TK = T * a->H * a->K, TV = T * a->HV;
    const struct { double *y; const double *x; int64_t n; } part[] = {
        { a->dq, x->dq, TK }, { a->dk, x->dk, TK }, { a->dv, x->dv, TV * a->V },
        { a->dbeta, x->dbeta, TV }, { a->dg, x->dg, TV * a->KG } };
    for (int p = 0; p < 5; p++)
        for (int64_t i = 0; i < part[p].n; i++)
            part[p].y[i] += by * part[p].x[i];
}

/* Adds the error caused by a wrong dw, which is computed from h transposed. The error
 * is the gradient for h transposed minus the gradient for h. In both, dO,
 * dAqk and dh are set to 0, so that only dw depends on h. */
static int dw_turned(void *args)
{
    const struct kcp_wy_backward *a = args;
    const int64_t K = a->K, V = a->V, HV = a->HV, TV = a->T * HV, H = a->NC * HV;
    const int64_t grads = 2 * a->T * a->H * K + TV * (V + 1 + a->KG);
    const int64_t zeros = TV * (V + a->C) + H * K * V;
    int status = ref_wy_backward(args);
    double *p = calloc(grads + zeros + H * K * V + 1, sizeof *p), *z = p + grads;
    double *turned = z + zeros;
    if (!p) return KCP_NO_MEMORY;
    struct kcp_wy_backward x = *a;
    x.dq = p;
    x.dk = p + a->T * a->H * K;
    x.dv = p + 2 * a->T * a->H * K;
    x.dbeta = (double *)x.dv + TV * V;
    x.dg = (double *)x.dbeta + TV;
    x.do_ = z;
    x.dAqk = z + TV * V;
    x.dh = z + TV * (V + a->C);
    for (int64_t b = 0; b < H; b++)
        for (int64_t e = 0; e < K * V; e++)
            turned[b * K * V + e] =
                ((const double *)a->h)[b * K * V + e % K * V + e / K];
    for (int way = 0; way < 2 && !status; way++) {
        x.h = way ? a->h : turned;
        status = ref_wy_backward(&x);
        add(a, &x, way ? -1 : 1);
    }
    free(p);
    return status;
}
KCP_VARIANT(m10_dw_turned) = { "10_wy_backward", "mutant_dw_turned",
    "errata 30: dw = -dU S, because h is read as [V,K]", KCP_F64, KCP_HOST, "any shape",
    dw_turned, NULL };

/* Adds the error that dbeta has if G replaces exp2(G). The error is the sum over
 * channels of dkgb (G - exp2(G)) k, where dkgb = A^T dw. */
static int gate_for_factor(void *args)
{
    const struct kcp_wy_backward *a = args;
    const int HV = a->HV, K = a->K, V = a->V, C = a->C, kda = a->model == KCP_KDA;
    const int *cu = a->cu, *cn = a->cn, status = ref_wy_backward(args);
    const double (*A)[HV][C] = a->A, (*G)[HV][a->KG] = a->G, (*dU)[HV][V] = a->dU;
    const double (*k)[a->H][K] = a->k, (*h)[HV][K][V] = a->h;
    double (*dbeta)[HV] = a->dbeta;
    for (int s = 0; s < a->NS; s++)
        for (int64_t j = cu[s]; j < cu[s + 1]; j++)
            for (int n = 0; n < HV; n++) {
                const int64_t c = (j - cu[s]) / C, t0 = cu[s] + c * C;
                for (int64_t i = j; i < t0 + C && i < cu[s + 1]; i++)
                    for (int d = 0; d < K; d++) {
                        const double g = G[j][n][kda ? d : 0];
                        double dw = 0;
                        for (int v = 0; v < V; v++)
                            dw -= dU[i][n][v] * h[cn[s] + c][n][d][v];
                        dbeta[j][n] += A[i][n][j - t0] * dw * (g - exp2(g)) *
                                       k[j][n / (HV / a->H)][d];
                    }
            }
    return status;
}
KCP_VARIANT(m10_gate_for_factor) = { "10_wy_backward", "mutant_gate_for_factor",
    "errata 33: dbeta uses G k instead of exp2(G) k", KCP_F64, KCP_HOST, "any shape",
    gate_for_factor, NULL };
