// v1_stages.cu -- the whole backward from the v1 kernels.
// Book: chapter 13, "Code: kernels".
#include "program.cuh"

template <class X>
static int run(void *args)
{
    return backward_run<X>(args, stages_v1<X>("13_backward", args));
}

template <class X>
static size_t work(const void *args)
{
    return backward_work<X>(args, stages_v1<X>("13_backward", args));
}

KCP_VARIANT(backward_v1_stages) = {
    "13_backward", "v1_stages", "the v1 kernels of the stages in sequence",
    KCP_BF16, KCP_DEVICE, "K, V up to 256, C up to 64", run<bf16>, work<bf16> };
KCP_VARIANT(backward_v1_stages_f32) = {
    "13_backward", "v1_stages_f32", "the v1 kernels of the stages in sequence",
    KCP_F32, KCP_DEVICE, "K, V up to 256, C up to 64", run<float>, work<float> };
