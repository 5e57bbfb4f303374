// v3_rows_local.cuh -- dAqk and dv_local of a chunk, stored by whole rows.
// Book: chapter T, "Whole rows".
#include "cuda/tile/launch_shared.cuh"
#include "local_products.cuh"

// Bound: memory, 40 KiB read and 24 KiB written per chunk and head, 0.19 ms for 8192
// tokens of 96 heads. The kernel of v2 waits for each half of V separately and writes
// 16 bytes per row. Here each of eight warps computes 16 rows and half of the columns.
// There are three barriers: after the tiles have arrived; after the tiles have been
// read, so that results may overwrite the tiles; after the results are stored.
template <int V>
static __global__ __launch_bounds__(256, 3)
void local_gradients(const struct kcp_chunk_backward a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct locals<V> &s = *(struct locals<V> *)shared;
    const int n = blockIdx.x % a.HV, c = blockIdx.x / a.HV, lane = threadIdx.x % 32;
    const int r = threadIdx.x / 64 * 16, half = threadIdx.x / 32 % 2;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const int64_t HV = a.HV, ld = HV * V;
    float x[V / 16][4] = {}, y[4][4] = {};

    cp_async_rows<CHUNK>(s.Aqk[0], in<bf16>(a.Aqk, z.t, HV, n, CHUNK), HV * CHUNK,
                         z.len);
    cp_async_rows<V>(s.dO[0], in<bf16>(a.do_, z.t, HV, n, V), ld, z.len);
    cp_async_rows<V>(s.v_new[0], in<bf16>(a.v_new, z.t, HV, n, V), ld, z.len);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    inner<V, V / 32>(s, r, half * (V / 2), x);
    outer<V, 2>(s, r, half * 32, y);
    __syncthreads();
    #pragma unroll
    for (int h = 0; h < V / 8; h++)
        *(uint32_t *)&s
             .dO[r + lane / 4 + h % 2 * 8][half * (V / 2) + h / 2 * 8 + lane % 4 * 2] =
            pack_bf16x2(x[h / 2][h % 2 * 2], x[h / 2][h % 2 * 2 + 1]);
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        const int i = r + lane / 4 + h % 2 * 8;
        const int j = half * 32 + h / 2 * 8 + lane % 4 * 2;
        const float *d = y[h / 2] + h % 2 * 2, scale = a.scale;
        *(uint32_t *)&s.Aqk[i][j] =
            pack_bf16x2(j <= i ? scale * d[0] : 0.0f, j < i ? scale * d[1] : 0.0f);
    }
    __syncthreads();
    for (int at = threadIdx.x; at < z.len * V / 8; at += 256) {
        const int i = at / (V / 8), v = at % (V / 8) * 8;
        *(uint4 *)(out<bf16>(a.dv_local, z.t + i, HV, n, V) + v) =
            *(const uint4 *)&s.dO[i][v];
    }
    for (int at = threadIdx.x; at < z.len * CHUNK / 8; at += 256) {
        const int i = at / (CHUNK / 8), j = at % (CHUNK / 8) * 8;
        *(uint4 *)(out<bf16>(a.dAqk, z.t + i, HV, n, CHUNK) + j) =
            *(const uint4 *)&s.Aqk[i][j];
    }
}

template <int V>
static int launch_local(const struct kcp_chunk_backward *a)
{
    const size_t bytes = sizeof(struct locals<V>);
    return launch_shared(local_gradients<V>, (unsigned)a->NC * a->HV, 256, bytes,
                         a->stream, *a);
}
