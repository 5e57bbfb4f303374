// v2_stages.cu -- the whole backward, of the tensor-core kernels where they fit.
// Book: chapter 13, "Code: kernels".
// Checked by: tests/13_backward/checks.c.
// Next: ../14_conv/v1_row.cu.
#include "cuda/host/stages_v2.cuh"
#include "program.cuh"
#include "v2_stages_recompute.cuh"

static int run(void *args)
{
    return backward_run<bf16>(args, stages_v2_again("v2_stages"));
}

static size_t work(const void *args)
{
    return backward_work<bf16>(args, stages_v2_again("v2_stages"));
}

KCP_VARIANT(backward_v2_stages) = {
    "13_backward", "v2_stages", "tensor-core kernels of the stages, strung together",
    KCP_BF16, KCP_DEVICE, "K, V up to 256, C up to 64", run, work };
