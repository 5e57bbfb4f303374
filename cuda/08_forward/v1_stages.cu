// v1_stages.cu -- the whole forward from the v1 kernels.
// Book: chapter 08, "Code: kernels".
#include "program.cuh"

template <class X>
static int run(void *args)
{
    return forward_run<X>(args, stages_v1<X>("08_forward", args));
}

template <class X>
static size_t work(const void *args)
{
    return forward_work<X>(args, stages_v1<X>("08_forward", args));
}

KCP_VARIANT(forward_v1_stages) = {
    "08_forward", "v1_stages", "the v1 kernels of the stages in sequence",
    KCP_BF16, KCP_DEVICE, "K, V up to 256, C up to 64", run<bf16>, work<bf16> };
KCP_VARIANT(forward_v1_stages_f32) = {
    "08_forward", "v1_stages_f32", "the v1 kernels of the stages in sequence",
    KCP_F32, KCP_DEVICE, "K, V up to 256, C up to 64", run<float>, work<float> };
