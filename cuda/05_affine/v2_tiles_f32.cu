// v2_tiles_f32.cu -- (M, h_ext) of a token range in fp32, from tiles in shared memory.
// Book: chapter 08, "Paths".
#include "cuda/tile/fp32_scan.cuh"

// Runs chapter 04's scan, without outputs, on 64 columns of [h_ext | M].
template <int K>
static __global__ __launch_bounds__(TILE_THREADS, 1) void affine(
    const struct kcp_affine a)
{
    const int s = blockIdx.x, n = blockIdx.y, v = blockIdx.z * 64, of_h = v < a.V;
    const int64_t state = ((int64_t)s * a.HV + n) * K;
    const int want = ((const int *)a.want)[s];
    struct fp32_scan c = {};
    if (!(want & (of_h ? KCP_WANT_H : KCP_WANT_M))) return;
    c.identity = of_h ? -1 : v - a.V;
    c.first = rows_of(a.w, a.HV, n, K);
    if (of_h) c.base = rows_of(a.u, a.HV, n, a.V, v);
    c.update = gated_rows(a, n, a.kg, a.k);
    if (of_h && a.h_start) c.start = (const float *)a.h_start + state * a.V + v;
    c.start_ld = a.V;
    c.end = (float *)a.map + state * (a.V + K) + v;
    c.end_i = a.V + K;
    c.end_j = 1;
    scan_fp32<K, 0>(a, c, s, n);
}

int v2_affine_f32(void *args)
{
    const struct kcp_affine *a = (const struct kcp_affine *)args;
    const void *p[] = { a->k, a->kg, a->u, a->w };
    if (!takes_fp32((const struct kcp_call *)a, p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return a->K == 64 ? launch_scan<64>(affine<64>, a, a->V + a->K)
                      : launch_scan<128>(affine<128>, a, a->V + a->K);
}

KCP_VARIANT(affine_v2_tiles_f32) = {
    "05_affine", "v2_tiles_f32", "a block per stretch, head and 64 columns of the map",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64", v2_affine_f32, NULL };
