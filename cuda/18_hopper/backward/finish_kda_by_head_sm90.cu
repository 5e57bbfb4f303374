// finish_kda_by_head_sm90.cu -- the finishing kernel for the heads with deep steps.
// Book: chapter 18c.
#include "finish_kda.cuh"

int kda_finish_by_head(const struct backward_params *x, int blocks)
{
    struct finish_maps from;
    const int status = make_finish_maps<128>(&from, x->a);
    if (status) return status;
    if (x->a.gate == KCP_GATE_RAW)
        return launch_finish<128, KCP_GATE_RAW, KCP_TYPE_BF16, 1>(x, from, blocks);
    return launch_finish<128, KCP_GATE_SOFTPLUS, KCP_TYPE_BF16, 1>(x, from, blocks);
}
