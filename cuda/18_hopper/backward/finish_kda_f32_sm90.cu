// finish_kda_f32_sm90.cu -- KDA: the finishing kernel for gates of fp32.
// Book: chapter 18c.
#include "finish_kda.cuh"

int kda_finish_f32(const struct backward_params *x, int blocks)
{
    return x->a.K == 128 ? finish_of_K<128, KCP_TYPE_F32>(x, blocks)
                         : finish_of_K<64, KCP_TYPE_F32>(x, blocks);
}
