// finish_kda_f16_sm90.cu -- KDA: the finishing kernel for gates of fp16.
// Book: chapter 18c.
#include "finish_kda.cuh"

int kda_finish_f16(const struct backward_params *x, int blocks)
{
    return x->a.K == 128 ? finish_of_K<128, KCP_TYPE_F16>(x, blocks)
                         : finish_of_K<64, KCP_TYPE_F16>(x, blocks);
}
