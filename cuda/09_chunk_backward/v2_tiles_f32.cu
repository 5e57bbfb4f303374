// v2_tiles_f32.cu -- backward of scan and output in fp32, from tiles in shared memory.
// Book: chapter 08, "Paths".
#include "cuda/tile/fp32_scan.cuh"

// dAqk = scale tril(dO v_new^T) and dv_local = Aqk^T dO: a block per chunk and head.
struct local_storage {
    float dO[TILE_ROWS][WIDE], v_new[TILE_ROWS][WIDE], Aqk[TILE_ROWS][NARROW];
    float one[TILE_ROWS];
};

static __global__ __launch_bounds__(TILE_THREADS, 2) void local_gradients(
    const struct kcp_chunk_backward a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct local_storage &m = *(struct local_storage *)shared;
    const int c = blockIdx.x, n = blockIdx.y, i4 = tile_row<4>();
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    float y[4][4] = {}, dAqk[4][4] = {};
    load_rows(m.dO, rows_of(a.do_, a.HV, n, a.V), z, a.V);
    load_rows(m.v_new, rows_of(a.v_new, a.HV, n, a.V), z, a.V);
    load_rows(m.Aqk, rows_of(a.Aqk, a.HV, n, TILE_ROWS), z, TILE_ROWS);
    cp_async_commit();
    if (threadIdx.x < TILE_ROWS) m.one[threadIdx.x] = 1.0f;
    cp_async_wait<0>();
    __syncthreads();
    add_by_rows<4>(dAqk, m.dO, m.v_new, a.V);
    for (int r = 0; r < 4 && i4 + r < z.len; r++)
        for (int s = 0; s < 4; s++) {
            const int j = tile_column(1, s);
            out<float>(a.dAqk, z.t + i4 + r, a.HV, n, TILE_ROWS)[j] =
                j <= i4 + r ? (float)a.scale * dAqk[r][s] : 0.0f;
        }
    for (int v = 0; v < a.V; v += 64) {
        for (int e = 0; e < 16; e++) y[e / 4][e % 4] = 0.0f;
        add_transposed<4>(y, m.Aqk, (const float (*)[WIDE])&m.dO[0][v], m.one,
                          TILE_ROWS);
        for (int r = 0; r < 4 && i4 + r < z.len; r++)
            store4(out<float>(a.dv_local, z.t + i4 + r, a.HV, n, a.V) + v +
                   tile_column(0, 0), y[r]);
    }
}

template <int K>
static __global__ __launch_bounds__(TILE_THREADS, 1) void reverse(
    const struct kcp_chunk_backward a)
{
    const int s = blockIdx.x, n = blockIdx.y, v = blockIdx.z * 64;
    const int64_t state = ((int64_t)s * a.HV + n) * K * a.V + v;
    const struct fp32_rows dU = rows_of(a.dU, a.HV, n, a.V, v);
    struct fp32_scan c = {};
    c.identity = -1;
    c.first = gated_rows(a, n, a.kg, a.k);
    c.update = rows_of(a.w, a.HV, n, K);
    c.extra = gated_rows(a, n, a.qg, a.q);
    c.base = rows_of(a.dv_local, a.HV, n, a.V, v);
    c.more = rows_of(a.do_, a.HV, n, a.V, v);
    c.start = a.dh_out ? (const float *)a.dh_out + state : NULL;
    c.start_ld = c.state_ld = c.end_i = a.V;
    c.x = (float *)dU.x;
    c.ld = dU.ld;
    c.states = (float *)a.dh + (int64_t)n * K * a.V + v;
    c.state = (int64_t)a.HV * K * a.V;
    c.end = (float *)a.dh_in + state;
    c.end_j = 1;
    scan_fp32<K, 1>(a, c, s, n);
}

int v2_chunk_backward_f32(void *args)
{
    const struct kcp_chunk_backward *a = (const struct kcp_chunk_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->Aqk, a->v_new, a->do_,
                        a->dv_local, a->dU, a->dh };
    const size_t bytes = sizeof(struct local_storage);
    if (!takes_fp32((const struct kcp_call *)a, p)) return KCP_NA;
    if (!(a->part & (KCP_LOCAL | KCP_REVERSE))) return KCP_BAD;
    cudaFuncSetAttribute(local_gradients, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    if (a->NC && a->part & KCP_LOCAL)
        local_gradients<<<dim3(a->NC, a->HV), TILE_THREADS, bytes, a->stream>>>(*a);
    if (!a->NS || !(a->part & KCP_REVERSE)) return launched();
    return a->K == 64 ? launch_scan<64>(reverse<64>, a, a->V)
                      : launch_scan<128>(reverse<128>, a, a->V);
}

KCP_VARIANT(chunk_backward_v2_tiles_f32) = {
    "09_chunk_backward", "v2_tiles_f32",
    "a block per chunk and head; a block per stretch, head and 64 columns of dS",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64", v2_chunk_backward_f32, NULL };
