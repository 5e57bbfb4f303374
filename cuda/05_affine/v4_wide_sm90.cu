// v4_wide_sm90.cu -- (M, h_ext) for K = 256, one block per 64 columns of [M | h_ext].
// Book: chapter 18, "Keys of 256 channels".
#include "cuda/tile/wide_forward.cuh"
#include "cuda/host/stages_v2.cuh"

// The columns of M and of h_ext do not depend on each other, so h_ext is chapter 04's
// v5 without stores, and M is the same scan from the identity without u, in two bf16
// pieces. Bound per chunk: 4 C K 64 sequential flops for h_ext, 1024 cycles of the
// tensor core, and twice as many for M. Blocks of M take longer, so they start first.
static __global__ __launch_bounds__(WIDE_THREADS, 1)
void affine_wide(const struct kcp_affine a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct forward_storage *m = (struct forward_storage *)shared;
    const int s = blockIdx.x, n = blockIdx.y, z = blockIdx.z, of_M = z < K_TILES;
    const int want = ((const int *)a.want)[s], VK = a.V + ROWS_K;
    const int64_t head = ((int64_t)s * a.HV + n) * ROWS_K;
    const float *h0 = (const float *)a.h_start;
    float *map = (float *)a.map + head * VK;

    if (!(want & (of_M ? KCP_WANT_M : KCP_WANT_H))) return;
    if (of_M) M_block(a, s, n, z * 64, map + a.V, VK, m);
    else forward_block<0>(a, s, n, (z - K_TILES) * 64, h0 ? h0 + head * a.V : NULL, map,
                          VK, NULL, m);
}

int v4_affine(void *args)
{
    const struct kcp_affine *a = (const struct kcp_affine *)args;
    const void *p[] = { a->k, a->kg, a->u, a->w };
    const size_t bytes = sizeof(struct forward_storage);
    if (a->C != CHUNK || a->K != ROWS_K || a->V % 64 || !device_is_sm90())
        return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return launch_shared(affine_wide, dim3(a->NS, a->HV, K_TILES + a->V / 64),
                         WIDE_THREADS, bytes, a->stream, *a);
}

KCP_VARIANT(affine_v4_wide) = {
    "05_affine", "v4_wide_sm90", "K = 256: a warpgroup holds 64 columns of [M | h_ext]",
    KCP_BF16, KCP_DEVICE, "K 256, V a multiple of 64, C 64; sm_90a", v4_affine, NULL };
