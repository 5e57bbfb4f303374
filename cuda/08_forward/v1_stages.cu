// v1_stages.cu -- the whole forward from the v1 kernels.
// Book: chapter 08, "Code: kernels".
#include "program.cuh"

KCP_VARIANT_PAIR(forward_v1_stages, "08_forward", "v1_stages",
    "the v1 kernels of the stages in sequence", "K, V up to 256, C up to 64",
    [](void *args) { return forward_run<X>(args, stages_v1<X>("08_forward", args)); },
    [](const void *args) {
        return forward_work<X>(args, stages_v1<X>("08_forward", args));
    });
