// v2_stages.cu -- the whole forward from the tensor-core kernels.
// Book: chapter 08, "Code: kernels".
#include "cuda/host/stages_v2.cuh"
#include "program.cuh"

KCP_VARIANT(forward_v2_stages) = {
    "08_forward", "v2_stages", "the tensor-core kernels of the stages in sequence",
    KCP_BF16, KCP_DEVICE, "K 64, 128, 256 (sm_90a), V a multiple of 64 up to 2 K, C 64",
    [](void *args) {
        return forward_run<bf16>(args, stages_v2("08_forward", "v2_stages", args));
    },
    [](const void *args) {
        return forward_work<bf16>(args, stages_v2("08_forward", "v2_stages", args));
    } };

KCP_VARIANT(forward_v2_stages_f32) = {
    "08_forward", "v2_stages_f32", "fp32 kernels of tiles of the stages in sequence",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64",
    [](void *args) {
        return forward_run<float>(args, stages_v2_f32("08_forward", args));
    },
    [](const void *args) {
        return forward_work<float>(args, stages_v2_f32("08_forward", args));
    } };
