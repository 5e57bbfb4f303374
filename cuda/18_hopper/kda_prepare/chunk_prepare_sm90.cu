// chunk_prepare_sm90.cu -- KDA: launches chunk_prepare.
// Book: chapter 18.
#include "cuda/host/split.h"
#include "prepare_kernel.cuh"

int kda_chunk_prepare(const struct forward_params *x, int processors)
{
    int chunks = kcp_prepare_chunks(launched_chunks(*x), x->a.HV, processors);
    // If few heads have deep steps, their blocks must not be on most of the SMs.
    if (x->deep && chunks < 5) chunks = 5;
    if (x->a.q_type == KCP_TYPE_F16) return kda_chunk_prepare_f16(x, chunks);
    return x->a.K == 128 ? launch_kda_type<128, 0>(x, chunks)
                         : launch_kda_type<64, 0>(x, chunks);
}
