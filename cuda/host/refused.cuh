// refused.cuh -- sets all gradients except dh0 to NaN if `saved` does not fit the call.
// Book: chapter 13, "Code: kernels".
#ifndef KCP_REFUSED_CUH
#define KCP_REFUSED_CUH

#include "workspace.cuh"

static void nan_if_block_differs(const struct kcp_backward *a, const struct arena *r,
                          int *differs, int elem)
{
    const int64_t qk = a->T * a->H * a->K * elem, vo = a->T * a->HV * a->V * elem;
    const int64_t f = sizeof(float), gate = (int64_t)a->HV * a->KG * f;
    void *p[] = { a->dq_raw, a->dk_raw, a->dv, a->dg_raw, a->dbeta_raw, a->dA_log,
                  a->ddt_bias };
    const int64_t bytes[] = { qk, qk, vo, a->T * gate, a->T * a->HV * f, a->HV * f,
                              gate };
    struct nan_outputs out = {};
    for (int j = 0; j < 7; j++)
        if (p[j]) {
            out.p[out.count] = p[j];
            out.bytes[out.count++] = bytes[j];
        }
    compare_head<<<1, 256, 0, a->stream>>>(a->saved, r->head, differs);
    fill_nan<<<264, 256, 0, a->stream>>>(differs, out);
}

#endif
