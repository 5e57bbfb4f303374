// v2_tiles_f32.cu -- the WY form in fp32, from tiles in shared memory.
// Book: chapter 08, "Paths".
#include "cuda/tile/fp32_tile.cuh"
#include "cuda/tile/triangle_inverse.cuh"

// One block per chunk and head. Bound: 10/16 of C^2 K exponentials (KDA), which take 20
// thousand cycles. v overwrites q when q is no longer needed.
struct wy_storage {
    float q[TILE_ROWS][WIDE], k[TILE_ROWS][WIDE], G[TILE_ROWS][WIDE];
    float L[TILE_ROWS][NARROW], A[TILE_ROWS][NARROW], beta[TILE_ROWS];
};

static __device__ __forceinline__ float gate_in(const struct wy_storage &m, int kda,
                                                int i, int d)
{
    return m.G[i][kda ? d : 0];
}

// Aqk = scale q k^T and L = diag(beta) k k^T, with the factors exp2(G_i - G_j), which
// KDA has per channel. A thread has the rows ti + 16 r and the columns tj + 16 s. Pairs
// with r < s are above the diagonal.
template <int kda>
static __device__ void pairs(const struct kcp_wy &a, struct token_range z, int n,
                             struct wy_storage &m)
{
    const int ti = threadIdx.x / 16, tj = threadIdx.x % 16;
    float qk[4][4] = {}, kk[4][4] = {};
    for (int d = 0; d < a.K; d += 4) {
        float q[4][4], k[4][4], g[4][4], kj[4][4], gj[4][4];
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            load4(q[r], &m.q[ti + 16 * r][d]);
            load4(k[r], &m.k[ti + 16 * r][d]);
            load4(kj[r], &m.k[tj + 16 * r][d]);
            if (kda) load4(g[r], &m.G[ti + 16 * r][d]);
            if (kda) load4(gj[r], &m.G[tj + 16 * r][d]);
        }
        #pragma unroll
        for (int r = 0; r < 4; r++)
            #pragma unroll
            for (int s = 0; s <= r; s++)
                #pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float D = kda ? ex2_approx(g[r][e] - gj[s][e]) : 1.0f;
                    const float x = kj[s][e] * D;
                    qk[r][s] += q[r][e] * x;
                    kk[r][s] += k[r][e] * x;
                }
    }
    #pragma unroll
    for (int r = 0; r < 4; r++)
        #pragma unroll
        for (int s = 0; s < 4; s++) {
            const int i = ti + 16 * r, j = tj + 16 * s;
            const float D = !kda && j <= i ? exp2f(m.G[i][0] - m.G[j][0]) : 1.0f;
            if (i < z.len)
                out<float>(a.Aqk, z.t + i, a.HV, n, TILE_ROWS)[j] =
                    j <= i ? (float)a.scale * qk[r][s] * D : 0.0f;
            m.L[i][j] = j < i ? m.beta[i] * kk[r][s] * D : 0.0f;
            m.A[i][j] = 0.0f;
        }
}

// Computes k~ = exp2(G) k in place. For KDA, also stores kg = exp2(G_last - G) k and
// qg = exp2(G) q.
static __device__ void scale_rows(const struct kcp_wy &a, struct token_range z, int n,
                                  struct wy_storage &m, int first)
{
    const int kda = a.KG > 1;
    for (int at = threadIdx.x - first; at < TILE_ROWS * a.K; at += blockDim.x - first) {
        const int i = at / a.K, d = at % a.K;
        const float G = gate_in(m, kda, i, d), E = exp2f(G), k = m.k[i][d];
        if (kda && i < z.len) {
            out<float>(a.qg, z.t + i, a.HV, n, a.K)[d] = E * m.q[i][d];
            out<float>(a.kg, z.t + i, a.HV, n, a.K)[d] =
                exp2f(m.G[z.len - 1][d] - G) * k;
        }
        m.k[i][d] = E * k;
    }
}

// Stores the product of A diag(beta), in m.A, and a tile x of `columns` columns.
static __device__ void store_product(const struct kcp_wy &a, struct token_range z,
                                     int n, const struct wy_storage &m,
                                     const float (*x)[WIDE], int columns, void *to)
{
    const int i = tile_row<4>(), j = tile_column(0, 0);
    for (int c = 0; c < columns; c += 64) {
        float y[4][4] = {};
        add_product<4>(y, m.A, (const float (*)[WIDE])&x[0][c], TILE_ROWS);
        for (int r = 0; r < 4 && i + r < z.len; r++)
            store4(out<float>(to, z.t + i + r, a.HV, n, columns) + c + j, y[r]);
    }
}

static __global__ __launch_bounds__(TILE_THREADS, 1) void wy(const struct kcp_wy a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct wy_storage &m = *(struct wy_storage *)shared;
    const int c = blockIdx.x, n = blockIdx.y, h = n / (a.HV / a.H), kda = a.KG > 1;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);

    copy_tile(m.q, in<float>(a.q, z.t, a.H, h, a.K), (int64_t)a.H * a.K, z.len, a.K);
    copy_tile(m.k, in<float>(a.k, z.t, a.H, h, a.K), (int64_t)a.H * a.K, z.len, a.K);
    cp_async_commit();
    for (int at = threadIdx.x; at < TILE_ROWS * a.KG; at += blockDim.x) {
        const int i = at / a.KG, t = i < z.len ? i : z.len - 1;
        m.G[i][at % a.KG] = gate(a, z.t + t, n, at % a.KG);
    }
    for (int i = threadIdx.x; i < TILE_ROWS; i += blockDim.x)
        m.beta[i] = i < z.len ? in<float>(a.beta, z.t + i, 1, 0, a.HV)[n] : 0.0f;
    cp_async_wait<0>();
    __syncthreads();
    if (kda) pairs<1>(a, z, n, m);
    else pairs<0>(a, z, n, m);
    __syncthreads();
    if (threadIdx.x < TILE_ROWS) invert_diagonal_blocks<NARROW>(m.L, m.A);
    else scale_rows(a, z, n, m, TILE_ROWS);
    __syncthreads();
    copy_tile(m.q, in<float>(a.v, z.t, a.HV, n, a.V), (int64_t)a.HV * a.V, z.len, a.V);
    cp_async_commit();
    join_blocks<16, NARROW>(m.L, m.A);
    join_blocks<32, NARROW>(m.L, m.A);
    for (int at = threadIdx.x; at < TILE_ROWS * TILE_ROWS; at += blockDim.x) {
        const int i = at / TILE_ROWS, j = at % TILE_ROWS;
        if (i < z.len) out<float>(a.A, z.t + i, a.HV, n, TILE_ROWS)[j] = m.A[i][j];
        m.A[i][j] *= m.beta[j];
    }
    cp_async_wait<0>();
    __syncthreads();
    store_product(a, z, n, m, m.q, a.V, a.u);
    store_product(a, z, n, m, m.k, a.K, a.w);
}

int v2_wy_f32(void *args)
{
    const struct kcp_wy *a = (const struct kcp_wy *)args;
    const void *p[] = { a->q, a->k, a->v, a->u, a->w };
    const size_t bytes = sizeof(struct wy_storage);
    if (!takes_fp32((const struct kcp_call *)a, p)) return KCP_NA;
    if (!a->NC) return KCP_OK;
    return launch_shared(wy, dim3(a->NC, a->HV), TILE_THREADS, bytes, a->stream, *a);
}

KCP_VARIANT(wy_v2_tiles_f32) = {
    "03_wy", "v2_tiles_f32", "a block per chunk and head, 4 x 4 pairs per thread",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64", v2_wy_f32, NULL };
