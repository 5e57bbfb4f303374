// v1_stages.cu -- the whole forward, of the first kernels.
// Book: chapter 08, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v2_stages.cu.
#include "program.cuh"

template <class X> static const char *name();
template <> const char *name<bf16>() { return "v1_stages"; }
template <> const char *name<float>() { return "v1_stages_f32"; }

template <class X>
static struct stages stages(const void *args)
{
    const enum kcp_storage storage = sizeof(X) == 4 ? KCP_F32 : KCP_BF16;
    return stages_v1<X>(name<X>(), kcp_path_of("08_forward", name<X>(), storage, args));
}

template <class X>
static int run(void *args) { return forward_run<X>(args, stages<X>(args)); }

template <class X>
static size_t work(const void *args) { return forward_work<X>(args, stages<X>(args)); }

KCP_VARIANT(forward_v1_stages) = {
    "08_forward", "v1_stages", "the first kernels of the stages, strung together",
    KCP_BF16, KCP_DEVICE, "K, V up to 256, C up to 64", run<bf16>, work<bf16> };
KCP_VARIANT(forward_v1_stages_f32) = {
    "08_forward", "v1_stages_f32", "the first kernels of the stages, strung together",
    KCP_F32, KCP_DEVICE, "K, V up to 256, C up to 64", run<float>, work<float> };
