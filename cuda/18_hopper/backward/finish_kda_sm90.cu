// finish_kda_sm90.cu -- KDA's finishing kernels for K = V = 128, and their launcher.
// Book: chapter 18, "Code: kernels".
// Checked by: bench/finish.cu, tests/13_backward/checks.c.
// Next: finish_kda_64_sm90.cu.
#include "finish_kda.cuh"
#include "core/paths.h"

// Pairs of a chunk and query/key head, and the blocks that take them by turns.
static int finish_blocks(const struct kcp_backward *a, int processors)
{
    const int64_t pairs = (int64_t)a->NC * a->H;
    const int most = a->K == 128 ? processors : 2 * processors;
    return pairs < most ? (int)pairs : most;
}

// The scratch: a mark a pair, then sums a block.
static int64_t bytes_of_marks(const struct kcp_backward *a)
{
    return ((int64_t)a->NC * a->H + 255) / 256 * 256;
}

static size_t kda_finish_scratch(const struct kcp_backward *a, int processors)
{
    const int64_t bytes = 16 * 2 * a->K * sizeof(float4); // of a block
    return bytes_of_marks(a)
           + (a->HV > a->H ? finish_blocks(a, processors) * bytes : 0);
}

// Kernels of another K are an object of their own: nvcc takes seconds for each.
static int kda_finish(const struct backward_params *x, int processors)
{
    const int blocks = finish_blocks(&x->a, processors);
    unsigned char *marks = (unsigned char *)x->scratch;
    if (!x->a.NC) return KCP_OK;
    if (x->a.gate != KCP_GATE_BOUNDED)
        cudaMemsetAsync(marks, 0, bytes_of_marks(&x->a), x->a.stream);
    return x->a.K == 128 ? finish_of_K<128>(x, marks, blocks)
                         : kda_finish_64(x, marks, blocks);
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
