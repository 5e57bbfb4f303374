// v2_stages.cu -- the whole backward from the tensor-core kernels.
// Book: chapter 13, "Code: kernels".
#include "cuda/host/stages_v2.cuh"
#include "program.cuh"
#include "v2_stages_recompute.cuh"

KCP_VARIANT(backward_v2_stages) = {
    "13_backward", "v2_stages", "the tensor-core kernels of the stages in sequence",
    KCP_BF16, KCP_DEVICE, "K 64, 128, 256 (sm_90a), V a multiple of 64 up to 2 K, C 64",
    [](void *args) { return backward_run<bf16>(args, stages_v2_recompute(args)); },
    [](const void *args) {
        return backward_work<bf16>(args, stages_v2_recompute(args));
    } };

KCP_VARIANT(backward_v2_stages_f32) = {
    "13_backward", "v2_stages_f32", "fp32 kernels of tiles of the stages in sequence",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64",
    [](void *args) {
        return backward_run<float>(args, stages_v2_f32("13_backward", args));
    },
    [](const void *args) {
        return backward_work<float>(args, stages_v2_f32("13_backward", args));
    } };
