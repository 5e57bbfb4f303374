// chunk_prepare_f16_sm90.cu -- KDA: chunk_prepare for q and k of fp16.
// Book: chapter 18.
#include "prepare_kernel.cuh"

int kda_chunk_prepare_f16(const struct forward_params *x, int chunks)
{
    return x->a.K == 128 ? launch_kda_type<128, 1>(x, chunks)
                         : launch_kda_type<64, 1>(x, chunks);
}
