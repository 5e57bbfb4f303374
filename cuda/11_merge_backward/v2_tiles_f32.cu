// v2_tiles_f32.cu -- the map for gradients in fp32, from tiles in shared memory.
// Book: chapter 08, "Paths".
#include "cuda/tile/fp32_scan.cuh"

// Runs chapter 09's reverse scan on 64 columns of [dh_ext | N]. Stores M = N^T.
template <int K>
static __global__ __launch_bounds__(TILE_THREADS, 1) void merge_backward(
    const struct kcp_merge_backward a)
{
    const int s = blockIdx.x, n = blockIdx.y, v = blockIdx.z * 64, of_h = v < a.V;
    const int VK = a.V + K, want = ((const int *)a.want)[s];
    const int64_t state = ((int64_t)s * a.HV + n) * K;
    struct fp32_scan c = {};
    if (of_h ? !(want & KCP_WANT_H) : !(want & KCP_WANT_M) || a.reuse_M) return;
    c.identity = of_h ? -1 : v - a.V;
    c.first = gated_rows(a, n, a.kg, a.k);
    c.update = rows_of(a.w, a.HV, n, K);
    if (of_h) {
        c.base = rows_of(a.dv_local, a.HV, n, a.V, v);
        c.extra = gated_rows(a, n, a.qg, a.q);
        c.more = rows_of(a.do_, a.HV, n, a.V, v);
        if (a.dh_end) c.start = (const float *)a.dh_end + state * a.V + v;
    }
    c.start_ld = a.V;
    c.end = (float *)a.dmap + state * VK + (of_h ? v : (v - a.V) * VK + a.V);
    c.end_i = of_h ? VK : 1;
    c.end_j = of_h ? 1 : VK;
    scan_fp32<K, 1>(a, c, s, n);
}

int v2_merge_backward_f32(void *args)
{
    const struct kcp_merge_backward *a = (const struct kcp_merge_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->do_, a->dv_local };
    if (!takes_fp32((const struct kcp_call *)a, p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return a->K == 64 ? launch_scan<64>(merge_backward<64>, a, a->V + a->K)
                      : launch_scan<128>(merge_backward<128>, a, a->V + a->K);
}

KCP_VARIANT(merge_backward_v2_tiles_f32) = {
    "11_merge_backward", "v2_tiles_f32",
    "a block per stretch, head and 64 columns of [dh_ext | N]",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64", v2_merge_backward_f32, NULL };
