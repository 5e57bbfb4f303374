// finish_kda_sm90.cu -- KDA: launches the finishing kernel; scratch memory.
// Book: chapter 18c.
#include "finish_kda.cuh"
#include "core/paths.h"
#include "cuda/host/split.h"

static int finish_blocks(const struct kcp_backward *a, int processors)
{
    return kcp_finish_blocks(a->NC, a->H, a->K, processors);
}

// The scratch has the sums of each block over the value heads of a query/key head.
static size_t kda_finish_scratch(const struct kcp_backward *a, int processors)
{
    const int64_t bytes = 16 * 2 * a->K * sizeof(float4); // per block
    return a->HV > a->H ? finish_blocks(a, processors) * bytes : 0;
}

static int kda_finish(const struct backward_params *x, int processors)
{
    const int blocks = finish_blocks(&x->a, processors);
    if (!x->a.NC) return KCP_OK;
    if (x->a.g_type == KCP_TYPE_F32) return kda_finish_f32(x, blocks);
    if (x->a.g_type == KCP_TYPE_F16) return kda_finish_f16(x, blocks);
    return x->a.K == 128 ? finish_of_K<128, KCP_TYPE_BF16>(x, blocks)
                         : finish_of_K<64, KCP_TYPE_BF16>(x, blocks);
}

size_t backward_finish_scratch(const struct kcp_backward *a)
{
    struct kcp_device here;
    if (a->KG == 1) return 0;
    return kda_finish_scratch(a, kcp_device_here(&here) ? 1 : here.sms);
}

int backward_finish(const struct backward_params *x, int processors)
{
    return x->a.KG == 1 ? gdn_finish(x, processors) : kda_finish(x, processors);
}
