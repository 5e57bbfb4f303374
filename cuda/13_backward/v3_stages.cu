// v3_stages.cu -- the whole backward by v2's kernels, for chapter 18's saved blocks.
// Book: chapter 13, "Code: kernels".
#include "cuda/host/stages_v2.cuh"
#include "program.cuh"
#include "realigned.cuh"

// This backward runs if chapter 18's kernels do not support the call's sizes, or if an
// array is not aligned to 16 bytes. Of the saved block, this backward reads only states
// and maps, so the results of chapters 02 and 03 are recomputed.
static int run(void *args)
{
    struct kcp_backward a = *(const struct kcp_backward *)args;
    const size_t given = a.work_bytes;
    if (!a.plan || !a.saved) return KCP_BAD;
    const struct realigned r = realign(&a);
    if (r.used > given) return KCP_BAD;
    copy_realigned(&r, 0, a.stream);
    const int status =
        backward_run<bf16>(&a, stages_v2("13_backward", "v3_stages", &a));
    if (!status) copy_realigned(&r, 1, a.stream);
    return status ? status : launched();
}

static size_t work(const void *args)
{
    struct kcp_backward a = *(const struct kcp_backward *)args;
    if (!a.plan) return 0;
    const struct realigned r = realign(&a);
    const size_t bytes =
        backward_work<bf16>(&a, stages_v2("13_backward", "v3_stages", &a));
    return bytes ? r.used + bytes : 0;
}

KCP_VARIANT(backward_v3_stages) = {
    "13_backward", "v3_stages", "recomputes chapters 02 and 03 from the inputs",
    KCP_BF16, KCP_DEVICE, "K, V 64 or 128, C 64; saved format chunks; sm_90a", run,
    work };
