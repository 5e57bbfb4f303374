// v3_split_solve.cuh -- v3's first kernel: from the states through the inverse to dL.
// Book: chapter 10, "Two kernels".  Checked by: tests/10_wy_backward/checks.c.
// Next: v3_split_pairs.cuh.
#include "v3_split_storage.cuh"

template <int K, int V>
static __device__ void load_chunk(const struct kcp_wy_backward &a, struct token_range z,
                                  int c, int n, struct solve_storage<K, V> &s)
{
    const int64_t state = ((int64_t)c * a.HV + n) * K * V, row = z.t * a.HV + n;
    const int ld = a.HV * V;
    load_block<K, V, 2 * K>(s.h[0], (const bf16 *)a.h + state, V, K);
    load_block<CHUNK, V, 2 * K>(s.dO[0], (const bf16 *)a.do_ + row * V, ld, z.len);
    load_block<CHUNK, V, 2 * K>(s.dU[0], (const bf16 *)a.dU + row * V, ld, z.len);
    cp_async_commit();
    load_block<K, V, 2 * K>(s.dS[0], (const bf16 *)a.dh + state, V, K);
    load_block<CHUNK, CHUNK, 2 * K>(s.A[0], (const bf16 *)a.A + row * CHUNK,
                                    a.HV * CHUNK, z.len);
    cp_async_commit();
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x)
        s.beta[i] = i < z.len ? in<float>(a.beta, z.t + i, 1, 0, a.HV)[n] : 0.0f;
}

// Computes sum_v h dS for a warp's 16 columns of K, two lanes per column.
template <int V>
static __device__ void dot_states(const bf16 *h, const bf16 *dS, float *to)
{
    const int lane = threadIdx.x % 32, row = lane / 2 * (V + PAD);
    float x = 0.0f;
    for (int v = lane % 2 * 8; v < V; v += 16) {
        const uint4 y = *(const uint4 *)(h + row + v);
        const uint4 z = *(const uint4 *)(dS + row + v);
        const uint32_t *p = &y.x, *q = &z.x;
        #pragma unroll
        for (int j = 0; j < 4; j++)
            x += bf16x2_low(p[j]) * bf16x2_low(q[j])
               + bf16x2_high(p[j]) * bf16x2_high(q[j]);
    }
    x += __shfl_xor_sync(~0u, x, 1);
    if (lane % 2 == 0) to[lane / 2] = x;
}

// k and G of the elements of k~ that a thread computes, eight at a time.
template <int K>
struct keys { uint4 k[4]; float4 G[8]; };

template <int K>
static __device__ __forceinline__ void load_keys(const struct kcp_wy_backward &a,
                                                 struct token_range z, int n,
                                                 struct keys<K> &x)
{
    const int d = threadIdx.x % (K / 8) * 8, m = n / (a.HV / a.H);
    const bf16 *k = in<bf16>(a.k, z.t, a.H, m, K) + d;
    const float *G = in<float>(a.G, z.t, a.HV, n, a.KG) + (a.KG > 1 ? d : 0);
    #pragma unroll
    for (int r = 0; r < 4; r++) {
        const int i = min(threadIdx.x / (K / 8) + 16 * r, z.len - 1);
        const float *g = row_at(G, i, 4 * a.HV * a.KG);
        x.k[r] = *(const uint4 *)row_at(k, i, 2 * a.H * K);
        if (a.KG > 1) {
            x.G[2 * r] = *(const float4 *)g;
            x.G[2 * r + 1] = *(const float4 *)(g + 4);
        } else
            x.G[2 * r] = x.G[2 * r + 1] = make_float4(*g, *g, *g, *g);
    }
}

// Computes k~ = exp2(G) k.
template <int K, int V>
static __device__ __forceinline__ void decayed_keys(struct solve_storage<K, V> &s,
                                                    const struct keys<K> &x)
{
    #pragma unroll
    for (int r = 0; r < 4; r++) {
        const uint4 k = x.k[r];
        const float4 y = x.G[2 * r], z = x.G[2 * r + 1];
        *(uint4 *)&s.kE[threadIdx.x / (K / 8) + 16 * r][threadIdx.x % (K / 8) * 8] =
            make_uint4(
                pack_bf16x2(bf16x2_low(k.x) * ex2_approx(y.x),
                            bf16x2_high(k.x) * ex2_approx(y.y)),
                pack_bf16x2(bf16x2_low(k.y) * ex2_approx(y.z),
                            bf16x2_high(k.y) * ex2_approx(y.w)),
                pack_bf16x2(bf16x2_low(k.z) * ex2_approx(z.x),
                            bf16x2_high(k.z) * ex2_approx(z.y)),
                pack_bf16x2(bf16x2_low(k.w) * ex2_approx(z.z),
                            bf16x2_high(k.w) * ex2_approx(z.w)));
    }
}

// Computes P and dw from h, then W from dS. The memory of h and dS is reused
// afterwards.
template <int K, int V>
static __device__ void state_products(const struct kcp_wy_backward &a,
                                      const struct intermediates &b,
                                      struct token_range z, int c, int n,
                                      struct solve_storage<K, V> &s, int d0,
                                      struct keys<K> &keys)
{
    const int64_t row = z.t * a.HV + n;
    slab P = {}, dw = {}, W = {};
    cp_async_wait<1>();
    __syncthreads();
    rows_by_rows<V, 1>(P, dw, s.dO[0], s.dU[0], s.h[d0]);
    cp_async_wait<0>();
    __syncthreads();
    load_block<CHUNK, V, 2 * K>(s.v_new[0], (const bf16 *)a.v_new + row * V, a.HV * V,
                                z.len);
    cp_async_commit();
    dot_states<V>(s.h[d0], s.dS[d0], b.h_dS + ((int64_t)c * a.HV + n) * K + d0);
    store_slab(b.P + row * K + d0, a.HV * K, z.len, P);
    __syncthreads();
    load_block<CHUNK, V, 2 * K>(s.v[0], (const bf16 *)a.v + row * V, a.HV * V, z.len);
    cp_async_commit();
    #pragma unroll
    for (int h = 0; h < 16; h++) {
        const int i = row_in(h / 4, h % 2 * 2), e = column_in(h / 2 % 2, 0);
        const float *y = dw[h / 4][h / 2 % 2] + h % 2 * 2;
        *(uint32_t *)&s.dw[i][d0 + e] = pack_bf16x2(-y[0], -y[1]);
    }
    load_keys<K>(a, z, n, keys);
    cp_async_wait<1>();
    __syncthreads();
    rows_by_rows<V, 0>(W, W, s.v_new[0], s.v_new[0], s.dS[d0]);
    store_slab(b.W + row * K + d0, a.HV * K, z.len, W);
}

// Computes dA = tril((dU v^T + dw k~^T) diag(beta), -1).
template <int K, int V>
static __device__ void make_dA(struct solve_storage<K, V> &s)
{
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        tile_product<V>(d, s.dU[16 * I], s.v[16 * J]);
        tile_product<K>(d, s.dw[16 * I], s.kE[16 * J]);
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const int i = row_in(I, h % 2 * 2), j = 16 * J + column_in(h / 2, 0);
            const float *x = d[h / 2] + h % 2 * 2;
            *(uint32_t *)&s.dA[i][j] =
                pack_bf16x2(j < i ? x[0] * s.beta[j] : 0.0f,
                            j + 1 < i ? x[1] * s.beta[j + 1] : 0.0f);
        }
    }
}

// Computes X = dA A^T.
template <int K, int V>
static __device__ void make_X(struct solve_storage<K, V> &s)
{
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        for (int p = 0; p <= 16 * J; p += 16) {
            uint32_t a[4], b[4];
            ldmatrix_x4(a, &s.dA[16 * I][p] + ldmatrix_offset_a(lane, LC));
            ldmatrix_x4(b, &s.A[16 * J][p] + ldmatrix_offset_b(lane, LC));
            mma_m16n16k16(d, a, b);
        }
        for (int h = 0; h < 4; h++)
            *(uint32_t *)&s.X[row_in(I, h % 2 * 2)][16 * J + column_in(h / 2, 0)] =
                pack_bf16x2(d[h / 2][h % 2 * 2], d[h / 2][h % 2 * 2 + 1]);
    }
}

// Computes dL = -tril(A^T X, -1) and stores dL in global memory.
template <int K, int V>
static __device__ void make_dL(struct solve_storage<K, V> &s, bf16 *dL, int stride,
                               int len)
{
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        for (int p = 16 * I; p < CHUNK; p += 16) {
            uint32_t a[4], b[4];
            ldmatrix_x4_trans(a, &s.A[p][16 * I] + ldmatrix_offset_b(lane, LC));
            ldmatrix_x4_trans(b, &s.X[p][16 * J] + ldmatrix_offset_a(lane, LC));
            mma_m16n16k16(d, a, b);
        }
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const int i = row_in(I, h % 2 * 2), j = 16 * J + column_in(h / 2, 0);
            const float *x = d[h / 2] + h % 2 * 2;
            if (i < len)
                *(uint32_t *)row_at(dL + j, i, 2 * stride) =
                    pack_bf16x2(j < i ? -x[0] : 0.0f, j + 1 < i ? -x[1] : 0.0f);
        }
    }
}

// Computes dvb = A^T dU, dv = beta dvb, the sum of dvb v per row, and Q = A^T dw.
template <int K, int V>
static __device__ void through_A(const struct kcp_wy_backward &a, bf16 *Q_,
                                 struct token_range z, int n,
                                 struct solve_storage<K, V> &s, int d0)
{
    float x[8] = {};
    for (int v0 = d0; v0 < V; v0 += K) {
        slab dvb = {};
        transposed_by_columns(dvb, s.A[0], s.dU[0] + v0, V + PAD);
        #pragma unroll
        for (int h = 0; h < 32; h++) {
            const int i = row_in(h / 8, h % 4), v = v0 + column_in(h / 4 % 2, h % 4);
            float &y = dvb[h / 8][h / 4 % 2][h % 4];
            x[h / 8 * 2 + h % 4 / 2] += y * (float)s.v[i][v];
            y *= s.beta[i];
        }
        store_slab(out<bf16>(a.dv, z.t, a.HV, n, V) + v0, a.HV * V, z.len, dvb);
    }
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        x[h] += __shfl_xor_sync(~0u, x[h], 1);
        x[h] += __shfl_xor_sync(~0u, x[h], 2);
        if (threadIdx.x % 4 == 0) s.of_beta[d0 / 16][row_in(h / 2, h % 2 * 2)] = x[h];
    }
    slab Q = {};
    transposed_by_columns(Q, s.A[0], s.dw[0] + d0, K + PAD);
    store_slab(Q_ + d0, a.HV * K, z.len, Q);
}

// One block per chunk and value head, two blocks per SM. A warp owns 16 columns of
// every [64,K] and [64,V] matrix; a barrier precedes each phase that reads columns of
// other warps.
template <int K, int V>
static __global__ __launch_bounds__(2 * K, 2)
void wy_solve(const struct kcp_wy_backward a, const struct intermediates b)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct solve_storage<K, V> &s = *(struct solve_storage<K, V> *)shared;
    const int c = blockIdx.x, n = blockIdx.y, d0 = threadIdx.x / 32 * 16;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const int64_t row = z.t * a.HV + n;
    struct keys<K> keys;

    load_chunk<K, V>(a, z, c, n, s);
    state_products<K, V>(a, b, z, c, n, s, d0, keys);
    __syncthreads();
    decayed_keys<K, V>(s, keys);
    cp_async_wait<0>();
    __syncthreads();
    make_dA<K, V>(s);
    through_A<K, V>(a, b.Q + row * K, z, n, s, d0);
    __syncthreads();
    make_X<K, V>(s);
    if (threadIdx.x < z.len) {
        float sum = 0.0f;
        for (int w = 0; w < K / 16; w++) sum += s.of_beta[w][threadIdx.x];
        ((float *)a.dbeta)[row + (int64_t)threadIdx.x * a.HV] = sum;
    }
    __syncthreads();
    make_dL<K, V>(s, b.dL + row * CHUNK, a.HV * CHUNK, z.len);
}
