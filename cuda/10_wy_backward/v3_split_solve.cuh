// v3_split_solve.cuh -- v3's first kernel: through the states and the inverse, to dL.
// Book: chapter 10, "Two kernels".
// Checked by: tests/10_wy_backward.c.
// Next: v3_split_pairs.cuh.
#include "v3_split_room.cuh"

template <int K, int V>
static __device__ void fetch(const struct kcp_wy_backward &a, struct span z, int c,
                             int n, struct room<K, V> &s)
{
    const int64_t HV = a.HV, state = ((int64_t)c * a.HV + n) * K * V;
    for (int at = threadIdx.x; at < K * V / 8; at += blockDim.x) {
        const int i = at / (V / 8), v = at % (V / 8) * 8;
        copy_async(&s.h[i][v], (const bf16 *)a.h + state + i * V + v, 1);
    }
    fetch_rows<V>(s.dO[0], in<bf16>(a.do_, z.t, a.HV, n, V), HV * V, z.len);
    fetch_rows<V>(s.dU[0], in<bf16>(a.dU, z.t, a.HV, n, V), HV * V, z.len);
    copies_commit();
    for (int at = threadIdx.x; at < K * V / 8; at += blockDim.x) {
        const int i = at / (V / 8), v = at % (V / 8) * 8;
        copy_async(&s.dS[i][v], (const bf16 *)a.dh + state + i * V + v, 1);
    }
    fetch_rows<CHUNK>(s.A[0], in<bf16>(a.A, z.t, a.HV, n, CHUNK), HV * CHUNK, z.len);
    copies_commit();
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x)
        s.beta[i] = i < z.len ? in<float>(a.beta, z.t + i, 1, 0, a.HV)[n] : 0.0f;
}

// sum_v h dS of a warp's 16 columns, two lanes a column.
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
            x += low(p[j]) * low(q[j]) + high(p[j]) * high(q[j]);
    }
    x += __shfl_xor_sync(~0u, x, 1);
    if (lane % 2 == 0) to[lane / 2] = x;
}

// P and dw need h, W needs dS; each leaves room for what comes next.
template <int K, int V>
static __device__ void states(const struct kcp_wy_backward &a, const struct between &b,
                              struct span z, int c, int n, struct room<K, V> &s, int d0)
{
    const int64_t row = (z.t * a.HV + n) * K + d0, HV = a.HV;
    slab P = {}, dw = {}, W = {};
    copies_wait<1>();
    __syncthreads();
    rows_by_rows<V, 1>(P, dw, s.dO[0], s.dU[0], s.h[d0]);
    copies_wait<0>();
    __syncthreads();
    fetch_rows<V>(s.v_new[0], in<bf16>(a.v_new, z.t, a.HV, n, V), HV * V, z.len);
    copies_commit();
    dot_states<V>(s.h[d0], s.dS[d0], b.h_dS + ((int64_t)c * HV + n) * K + d0);
    put(b.P + row, HV * K, z.len, P);
    __syncthreads();
    fetch_rows<V>(s.v[0], in<bf16>(a.v, z.t, a.HV, n, V), HV * V, z.len);
    copies_commit();
    #pragma unroll
    for (int h = 0; h < 16; h++) {
        const int i = row_in(h / 4, h % 2 * 2), e = column_in(h / 2 % 2, 0);
        const float *y = dw[h / 4][h / 2 % 2] + h % 2 * 2;
        *(uint32_t *)&s.dw[i][d0 + e] = pack(-y[0], -y[1]);
    }
    copies_wait<1>();
    __syncthreads();
    rows_by_rows<V, 0>(W, W, s.v_new[0], s.v_new[0], s.dS[d0]);
    put(b.W + row, HV * K, z.len, W);
}

// k~ = exp2(G) k, eight numbers a thread at a time.
template <int K, int V>
static __device__ void decayed_keys(const struct kcp_wy_backward &a, struct span z,
                                    int n, struct room<K, V> &s)
{
    const int m = n / (a.HV / a.H);
    #pragma unroll
    for (int at = threadIdx.x; at < CHUNK * K / 8; at += 2 * K) {
        const int i = at / (K / 8), d = at % (K / 8) * 8;
        const int64_t t = z.t + (i < z.len ? i : z.len - 1);
        const uint4 x = *(const uint4 *)(in<bf16>(a.k, t, a.H, m, K) + d);
        const float *from = in<float>(a.G, t, a.HV, n, a.KG);
        const uint32_t *k = &x.x;
        float G[8];
        if (a.KG > 1) {
            *(float4 *)G = *(const float4 *)(from + d);
            *(float4 *)(G + 4) = *(const float4 *)(from + d + 4);
        } else
            for (int j = 0; j < 8; j++) G[j] = from[0];
        uint4 y;
        uint32_t *to = &y.x;
        for (int j = 0; j < 4; j++)
            to[j] = pack(low(k[j]) * exp2_fast(G[2 * j]),
                         high(k[j]) * exp2_fast(G[2 * j + 1]));
        *(uint4 *)&s.kE[i][d] = y;
    }
}

// dA = tril((dU v^T + dw k~^T) diag(beta), -1).
template <int K, int V>
static __device__ void make_dA(struct room<K, V> &s)
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
            *(uint32_t *)&s.dA[i][j] = pack(j < i ? x[0] * s.beta[j] : 0.0f,
                                            j + 1 < i ? x[1] * s.beta[j + 1] : 0.0f);
        }
    }
}

// X = dA A^T.
template <int K, int V>
static __device__ void make_X(struct room<K, V> &s)
{
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        for (int p = 0; p <= 16 * J; p += 16) {
            uint32_t a[4], b[4];
            load_tiles(a, &s.dA[16 * I][p] + tiles_down(lane, LC));
            load_tiles(b, &s.A[16 * J][p] + tiles_across(lane, LC));
            mma(d[0], a, b[0], b[1]), mma(d[1], a, b[2], b[3]);
        }
        for (int h = 0; h < 4; h++)
            *(uint32_t *)&s.X[row_in(I, h % 2 * 2)][16 * J + column_in(h / 2, 0)] =
                pack(d[h / 2][h % 2 * 2], d[h / 2][h % 2 * 2 + 1]);
    }
}

// dL = -tril(A^T X, -1), to global memory.
template <int K, int V>
static __device__ void make_dL(struct room<K, V> &s, bf16 *dL, int64_t stride, int len)
{
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        for (int p = 16 * I; p < CHUNK; p += 16) {
            uint32_t a[4], b[4];
            load_tiles_t(a, &s.A[p][16 * I] + tiles_across(lane, LC));
            load_tiles_t(b, &s.X[p][16 * J] + tiles_down(lane, LC));
            mma(d[0], a, b[0], b[1]), mma(d[1], a, b[2], b[3]);
        }
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const int i = row_in(I, h % 2 * 2), j = 16 * J + column_in(h / 2, 0);
            const float *x = d[h / 2] + h % 2 * 2;
            if (i < len)
                *(uint32_t *)(dL + i * stride + j) =
                    pack(j < i ? -x[0] : 0.0f, j + 1 < i ? -x[1] : 0.0f);
        }
    }
}

// dvb = A^T dU, dv = beta dvb, and by rows the sum of dvb v; Q = A^T dw.
template <int K, int V>
static __device__ void through_A(const struct kcp_wy_backward &a, bf16 *Q_,
                                 struct span z, int n, struct room<K, V> &s, int d0)
{
    float x[8] = {};
    for (int v0 = d0; v0 < V; v0 += K) {
        slab dvb = {};
        turned_by_columns(dvb, s.A[0], s.dU[0] + v0, V + PAD);
        #pragma unroll
        for (int h = 0; h < 32; h++) {
            const int i = row_in(h / 8, h % 4), v = v0 + column_in(h / 4 % 2, h % 4);
            float &y = dvb[h / 8][h / 4 % 2][h % 4];
            x[h / 8 * 2 + h % 4 / 2] += y * (float)s.v[i][v];
            y *= s.beta[i];
        }
        put(out<bf16>(a.dv, z.t, a.HV, n, V) + v0, (int64_t)a.HV * V, z.len, dvb);
    }
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        x[h] += __shfl_xor_sync(~0u, x[h], 1);
        x[h] += __shfl_xor_sync(~0u, x[h], 2);
        if (threadIdx.x % 4 == 0) s.of_beta[d0 / 16][row_in(h / 2, h % 2 * 2)] = x[h];
    }
    slab Q = {};
    turned_by_columns(Q, s.A[0], s.dw[0] + d0, K + PAD);
    put(Q_ + d0, (int64_t)a.HV * K, z.len, Q);
}

// A block a chunk and value head, two blocks an SM. A warp owns 16 columns of all
// [64,K] and [64,V]; a barrier stands before each phase that reads others' columns.
template <int K, int V>
static __global__ __launch_bounds__(2 * K, K == 128 ? 2 : 4)
void wy_solve(const struct kcp_wy_backward a, const struct between b)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct room<K, V> &s = *(struct room<K, V> *)shared;
    const int c = blockIdx.x, n = blockIdx.y, d0 = threadIdx.x / 32 * 16;
    const struct span z = chunk_span(a, ((const int *)a.sc)[c], c);
    const int64_t row = z.t * a.HV + n, HV = a.HV;

    fetch<K, V>(a, z, c, n, s);
    states<K, V>(a, b, z, c, n, s, d0);
    __syncthreads();
    decayed_keys<K, V>(a, z, n, s);
    copies_wait<0>();
    __syncthreads();
    make_dA<K, V>(s);
    through_A<K, V>(a, b.Q + row * K, z, n, s, d0);
    __syncthreads();
    make_X<K, V>(s);
    if (threadIdx.x < z.len) {
        float sum = 0.0f;
        for (int w = 0; w < K / 16; w++) sum += s.of_beta[w][threadIdx.x];
        ((float *)a.dbeta)[row + threadIdx.x * HV] = sum;
    }
    __syncthreads();
    make_dL<K, V>(s, b.dL + row * CHUNK, HV * CHUNK, z.len);
}
