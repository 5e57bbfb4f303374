// v3_split_solve.cuh -- v3's first kernel: dvb = A^T dU, products of dvb, and dL.
// Book: chapter T, "Two kernels".
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
    load_block<CHUNK, CHUNK, 2 * K>(s.A[0], (const bf16 *)a.A + row * CHUNK,
                                    a.HV * CHUNK, z.len);
    cp_async_commit();
    load_block<K, V, 2 * K>(s.dS[0], (const bf16 *)a.dh + state, V, K);
    cp_async_commit();
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x)
        s.beta[i] = i < z.len ? in<float>(a.beta, z.t + i, 1, 0, a.HV)[n] : 0.0f;
}

// Lanes 2 i and 2 i + 1 return the dot product of row i of X [16,V] and row i of Y.
template <int V>
static __device__ float dot_rows(const bf16 *X, const bf16 *Y)
{
    const int lane = threadIdx.x % 32, row = lane / 2 * (V + PAD);
    float x = 0.0f;
    for (int v = lane % 2 * 8; v < V; v += 16) {
        const uint4 y = *(const uint4 *)(X + row + v);
        const uint4 z = *(const uint4 *)(Y + row + v);
        const uint32_t *p = &y.x, *q = &z.x;
        #pragma unroll
        for (int j = 0; j < 4; j++)
            x += bf16x2_low(p[j]) * bf16x2_low(q[j])
               + bf16x2_high(p[j]) * bf16x2_high(q[j]);
    }
    return x + __shfl_xor_sync(~0u, x, 1);
}

// Computes dvb = A^T dU in place of dU, and dv = beta dvb.
template <int K, int V>
static __device__ void through_A(const struct kcp_wy_backward &a, struct token_range z,
                                 int n, struct solve_storage<K, V> &s, int d0)
{
    for (int v0 = d0; v0 < V; v0 += K) {
        slab dvb = {};
        transposed_by_columns(dvb, s.A[0], s.dU[0] + v0, V + PAD);
        __syncwarp();
        #pragma unroll
        for (int h = 0; h < 16; h++) {
            const int i = row_in(h / 4, h % 2 * 2), v = v0 + column_in(h / 2 % 2, 0);
            float *y = dvb[h / 4][h / 2 % 2] + h % 2 * 2;
            *(uint32_t *)&s.dU[i][v] = pack_bf16x2(y[0], y[1]);
            y[0] *= s.beta[i];
            y[1] *= s.beta[i];
        }
        store_slab(out<bf16>(a.dv, z.t, a.HV, n, V) + v0, a.HV * V, z.len, dvb);
    }
}

// Computes P = dO h^T, Q = -dvb h^T and h_dS = sum_v h dS. Then copies v_new over dO,
// copies v over h, and computes W = v_new dS^T.
template <int K, int V>
static __device__ void state_products(const struct kcp_wy_backward &a,
                                      const struct intermediates &b,
                                      struct token_range z, int c, int n,
                                      struct solve_storage<K, V> &s, int d0)
{
    const int64_t row = z.t * a.HV + n;
    const int lane = threadIdx.x % 32;
    slab P = {}, Q = {}, W = {};
    rows_by_rows<V, 1>(P, Q, s.dO[0], s.dvb[0], s.h[d0]);
    cp_async_wait<0>();
    __syncthreads();
    load_block<CHUNK, V, 2 * K>(s.v_new[0], (const bf16 *)a.v_new + row * V, a.HV * V,
                                z.len);
    cp_async_commit();
    const float h_dS = dot_rows<V>(s.h[d0], s.dS[d0]);
    if (lane % 2 == 0) b.h_dS[((int64_t)c * a.HV + n) * K + d0 + lane / 2] = h_dS;
    store_slab(b.P + row * K + d0, a.HV * K, z.len, P);
    #pragma unroll
    for (int h = 0; h < 32; h++) Q[h / 8][h / 4 % 2][h % 4] *= -1.0f;
    store_slab(b.Q + row * K + d0, a.HV * K, z.len, Q);
    __syncthreads();
    load_block<CHUNK, V, 2 * K>(s.v[0], (const bf16 *)a.v + row * V, a.HV * V, z.len);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    rows_by_rows<V, 0>(W, W, s.v_new[0], s.v_new[0], s.dS[d0]);
    store_slab(b.W + row * K + d0, a.HV * K, z.len, W);
}

// Computes dL = -tril(dvb v_new^T, -1) and stores dL in global memory.
template <int K, int V>
static __device__ void make_dL(struct solve_storage<K, V> &s, bf16 *dL, int stride,
                               int len)
{
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        tile_product<V>(d, s.dvb[16 * I], s.v_new[16 * J]);
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

// Computes dbeta = dvb v_new / beta. If |beta| < 1/2 (see is_divisor), computes only
// the term dvb v instead, and the second kernel adds the other terms.
template <int K, int V>
static __device__ void sum_over_v(const struct kcp_wy_backward &a, struct token_range z,
                                  int n, struct solve_storage<K, V> &s)
{
    const int i0 = threadIdx.x / 32 * 16, i = i0 + threadIdx.x % 32 / 2;
    if (i0 >= CHUNK) return;
    const float by_v = dot_rows<V>(s.dvb[i0], s.v[i0]);
    const float by_v_new = dot_rows<V>(s.dvb[i0], s.v_new[i0]);
    if (i < z.len && threadIdx.x % 2 == 0)
        out<float>(a.dbeta, z.t + i, 1, 0, a.HV)[n] =
            is_divisor(s.beta[i]) ? by_v_new / s.beta[i] : by_v;
}

// Each block processes one chunk and value head. Two blocks share an SM. If K = V, a
// warp owns 16 columns of every [64,K] matrix. A barrier precedes each phase that reads
// columns of other warps. A^T multiplies only dU (eq:short-adjoint in the book). With
// equal keys and beta near 1, A^T subtracts nearly equal rows, so dbeta computed from
// dA A^T in bf16 would be wrong.
template <int K, int V>
static __global__ __launch_bounds__(2 * K, 2)
void wy_solve(const struct kcp_wy_backward a, const struct intermediates b)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct solve_storage<K, V> &s = *(struct solve_storage<K, V> *)shared;
    const int c = blockIdx.x, n = blockIdx.y, d0 = threadIdx.x / 32 * 16;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);

    load_chunk<K, V>(a, z, c, n, s);
    cp_async_wait<1>();
    __syncthreads();
    through_A<K, V>(a, z, n, s, d0);
    __syncthreads();
    state_products<K, V>(a, b, z, c, n, s, d0);
    make_dL<K, V>(s, b.dL + (z.t * a.HV + n) * CHUNK, a.HV * CHUNK, z.len);
    cp_async_wait<0>();
    __syncthreads();
    sum_over_v<K, V>(a, z, n, s);
}
