// v1_stages.cu -- the whole backward from the v1 kernels.
// Book: chapter 13, "Code: kernels".
#include "program.cuh"

KCP_VARIANT_PAIR(backward_v1_stages, "13_backward", "v1_stages",
    "the v1 kernels of the stages in sequence", "K, V up to 256, C up to 64",
    [](void *args) { return backward_run<X>(args, stages_v1<X>("13_backward", args)); },
    [](const void *args) {
        return backward_work<X>(args, stages_v1<X>("13_backward", args));
    });
