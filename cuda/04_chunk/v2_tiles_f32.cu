// v2_tiles_f32.cu -- state scan and output in fp32, from tiles in shared memory.
// Book: chapter 08, "Paths".
#include "cuda/tile/fp32_scan.cuh"

template <int K>
static __global__ __launch_bounds__(TILE_THREADS, 1) void chunk(
    const struct kcp_chunk a)
{
    const int s = blockIdx.x, n = blockIdx.y, v = blockIdx.z * 64;
    const int64_t state = ((int64_t)s * a.HV + n) * K * a.V + v;
    const struct fp32_rows o = rows_of(a.o, a.HV, n, a.V, v);
    struct fp32_scan c = {};
    c.identity = -1;
    c.first = rows_of(a.w, a.HV, n, K);
    c.base = rows_of(a.u, a.HV, n, a.V, v);
    c.update = gated_rows(a, n, a.kg, a.k);
    if (a.o) c.extra = gated_rows(a, n, a.qg, a.q);
    if (a.o) c.more = rows_of(a.Aqk, a.HV, n, TILE_ROWS);
    c.start = a.h_in ? (const float *)a.h_in + state : NULL;
    c.start_ld = c.state_ld = c.end_i = a.V;
    c.o = (float *)o.x;
    c.x = (float *)rows_of(a.v_new, a.HV, n, a.V, v).x;
    c.ld = o.ld;
    c.states = a.h ? (float *)a.h + (int64_t)n * K * a.V + v : NULL;
    c.state = (int64_t)a.HV * K * a.V;
    c.end = (float *)a.h_out + state;
    c.end_j = 1;
    scan_fp32<K, 0>(a, c, s, n);
}

int v2_chunk_f32(void *args)
{
    const struct kcp_chunk *a = (const struct kcp_chunk *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->u, a->w, a->Aqk, a->o, a->v_new,
                        a->h };
    if (!takes_fp32((const struct kcp_call *)a, p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return a->K == 64 ? launch_scan<64>(chunk<64>, a, a->V)
                      : launch_scan<128>(chunk<128>, a, a->V);
}

KCP_VARIANT(chunk_v2_tiles_f32) = {
    "04_chunk", "v2_tiles_f32", "a block per stretch, head and 64 columns of the state",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64", v2_chunk_f32, NULL };
