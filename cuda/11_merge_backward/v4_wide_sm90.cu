// v4_wide_sm90.cu -- the map for gradients for K = 256, one block per 64 columns.
// Book: chapter 18, "Keys of 256 channels".
#include "cuda/tile/wide_forward.cuh"
#include "cuda/tile/wide_reverse.cuh"
#include "cuda/host/stages_v2.cuh"

// dh_ext is chapter 09's v4 without stores. M is the M of stage 05, so it is computed
// as there, in token order, instead of M^T by the reverse scan. Bound per chunk: 6 C K
// 64 sequential flops for dh_ext, 1536 cycles of the tensor core, and 2048 for M.
// Blocks of M take longer, so they start first. With reuse_M there are no such blocks.
static __global__ __launch_bounds__(WIDE_THREADS, 1)
void merge_backward_wide(const struct kcp_merge_backward a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int blocks = a.reuse_M ? 0 : K_TILES, VK = a.V + ROWS_K;
    const int s = blockIdx.x, n = blockIdx.y, z = blockIdx.z, of_M = z < blocks;
    const int want = ((const int *)a.want)[s];
    const int64_t head = ((int64_t)s * a.HV + n) * ROWS_K;
    struct forward_storage *m = (struct forward_storage *)shared;
    const float *dh_end = (const float *)a.dh_end;
    float *dmap = (float *)a.dmap + head * VK;

    if (!(want & (of_M ? KCP_WANT_M : KCP_WANT_H))) return;
    if (of_M) M_block(a, s, n, z * 64, dmap + a.V, VK, m);
    else reverse_block<0>(a, s, n, (z - blocks) * 64,
                          dh_end ? dh_end + head * a.V : NULL, dmap, VK, NULL,
                          (struct reverse_storage *)shared);
}

int v4_merge_backward(void *args)
{
    const struct kcp_merge_backward *a = (const struct kcp_merge_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->do_, a->dv_local };
    const int blocks = a->V / 64 + (a->reuse_M ? 0 : K_TILES);
    const size_t one = sizeof(struct forward_storage);
    const size_t two = sizeof(struct reverse_storage), bytes = one > two ? one : two;
    if (a->C != CHUNK || a->K != ROWS_K || a->V % 64 || !device_is_sm90())
        return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return launch_shared(merge_backward_wide, dim3(a->NS, a->HV, blocks), WIDE_THREADS,
                         bytes, a->stream, *a);
}

KCP_VARIANT(merge_backward_v4_wide) = {
    "11_merge_backward", "v4_wide_sm90",
    "K = 256: a warpgroup holds 64 columns of [M | dh_ext]",
    KCP_BF16, KCP_DEVICE, "K 256, V a multiple of 64, C 64; sm_90a", v4_merge_backward,
    NULL };
