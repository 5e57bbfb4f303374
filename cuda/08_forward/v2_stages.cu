// v2_stages.cu -- the whole forward, of the tensor-core kernels where they fit.
// Book: chapter 08, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: ../09_chunk_backward/v1_column.cu.
#include "cuda/host/stages_v2.cuh"
#include "program.cuh"

static int run(void *args) { return forward_run<bf16>(args, stages_v2("v2_stages")); }

static size_t work(const void *args)
{
    return forward_work<bf16>(args, stages_v2("v2_stages"));
}

KCP_VARIANT(forward_v2_stages) = {
    "08_forward", "v2_stages", "tensor-core kernels of the stages, strung together",
    KCP_BF16, KCP_DEVICE, "K, V up to 256, C up to 64", run, work };
