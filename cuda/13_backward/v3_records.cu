// v3_records.cu -- v2's backward after the fused forward, whose block it reads.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/13_backward/checks.c.
// Next: ../14_conv/v1_row.cu.
#include "cuda/host/stages_v2.cuh"
#include "program.cuh"
#include "v2_stages_recompute.cuh"

static int run(void *args)
{
    return backward_run<bf16>(args, stages_v2_again("v3_records"));
}

static size_t work(const void *args)
{
    return backward_work<bf16>(args, stages_v2_again("v3_records"));
}

KCP_VARIANT(backward_v3_records) = {
    "13_backward", "v3_records", "v2's stages, on the block of the fused forward",
    KCP_BF16, KCP_DEVICE, "K, V up to 256, C up to 64", run, work };
