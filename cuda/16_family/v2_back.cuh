// v2_back.cuh -- tensor-core backward of u, w, kg, qg, Aqk (form), a block per chunk.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_back_diagonal.cuh"
#include "v2_sizes.cuh"
#include "cuda/tile/launch_shared.cuh"

// Bound: 14 to 16 C K exponentials per chunk and head, half of them for pairs within 16
// rows. (v1 is bound by C^2 sequential pairs.) A warp owns 16 channels d of all [C,K]
// arrays, and keeps dq, d(look), dk and db in registers. `look` is the vector with
// which a token reads the state before writing. The tensor core computes the products.

// Sets dG to the terms of q dq + look d(look) - k dk - b db that come through the
// states. Later, pairs_back and rows_back add the terms of pairs of tokens.
template <int model, int K, int V, int C>
static __device__ void start_dG(struct back_storage<model, K, V> &s, int d0, int last,
                                const struct slab<C> &P, const struct slab<C> &Y,
                                const struct slab<C> &W, const struct slab<C> &U)
{
    float sum[2][2] = {};
    EACH(C, t, c, j) {
        const int i = row_in(t, j), d = d0 + column_in(c, j);
        const float k = s.k[i][d];
        float own = k * W.x[t][c][j], look = 0.0f;
        if (s.m == 2) own += (float)s.b[i][d] * U.x[t][c][j];
        if (s.looks) look = (float)s.a[i][d] * Y.x[t][c][j] * (s.m == 2 ? 1.0f : k);
        if (i >= last) own = 0.0f;
        sum[c][j % 2] += own;
        s.dG[i][d] = (float)s.q[i][d] * P.x[t][c][j] - own + (s.m == 2 ? 0.0f : look);
        if (s.m == 2) s.dE[i][d] = look;
    }
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        float y = sum[h / 2][h % 2];
        for (int b = 4; b < 32; b *= 2) y += __shfl_xor_sync(~0u, y, b);
        if (threadIdx.x % 32 < 4) s.sum_k[d0 + column_in(h / 2, h % 2)] = y;
    }
}

// Rounds dq, dk, d(look) and db to bf16 and stores the results in s.far for rows_back.
template <int model, int K, int V, int C>
static __device__ void put_far(struct back_storage<model, K, V> &s, int d0,
                               const struct slab<C> &P, const struct slab<C> &Y,
                               const struct slab<C> &W, const struct slab<C> &U)
{
    put_columns<C>(s.far[0][0] + d0, K + PAD, P.x, 0);
    put_columns<C>(s.far[1][0] + d0, K + PAD, W.x, 0);
    if (s.looks) put_columns<C>(s.far[s.looks * 2][0] + d0, K + PAD, Y.x, 0);
    if (s.m == 2) put_columns<C>(s.far[s.m + 1][0] + d0, K + PAD, U.x, 0);
}

// Stores dv, and for GDN-2 also domega = z v, before other data overwrites z.
template <int model, int K, int V>
static __device__ void put_values(const struct family &x, struct token_range z, int n,
                                  const struct back_storage<model, K, V> &s)
{
    const struct kcp_family &a = x.a;
    const int gated = model == KCP_GDN2;
    if (!gated) put_tokens<V>(z, a.HV, n, a.dv, s.m == 2 ? s.dV[0] : s.z[0]);
    for (int at = threadIdx.x; gated && at < z.len * V; at += blockDim.x) {
        const int i = at / V, v = at % V;
        const float y = s.z[i][v];
        out<bf16>(a.domega, z.t + i, a.HV, n, V)[v] = y * (float)s.v[i][v];
        out<bf16>(a.dv, z.t + i, a.HV, n, V)[v] =
            y * (float)in<bf16>(a.omega, z.t + i, a.HV, n, V)[v];
    }
}

// Computes dg_t, the sum of dG from row t to the last row. Row t of dE is a part of dG
// of token t - 1, so the row enters only dg of earlier tokens.
template <int model, int K, int V>
static __device__ void put_gate(const struct family &x, struct token_range z, int n,
                                const struct back_storage<model, K, V> &s)
{
    const int d = threadIdx.x, last = z.len - 1;
    if (d >= K) return;
    float sum = ex2_approx(s.G[s.C][d]) * s.h_dS[d] + s.sum_k[d];
    for (int t = last; t >= 0; t--) {
        out<float>(x.a.dg, z.t + t, x.a.HV, n, K)[d] = sum += s.dG[t][d];
        if (s.m == 2) sum += s.dE[t][d];
    }
}

template <int model, int K, int V>
static constexpr int blocks_an_sm(void)
{
    if (K == 128 || V == 128) return 1;
    return traits<model>::m == 2 ? 3 : 2;
}

template <int model, int K, int V>
static __global__ __launch_bounds__(2 * K, (blocks_an_sm<model, K, V>()))
void form_backward(const struct family x)
{
    extern __shared__ __align__(128) unsigned char shared[];
    typedef struct back_storage<model, K, V> R;
    enum { C = R::C };
    R &s = *(R *)shared;
    const struct token_range z = tokens(x, blockIdx.x);
    const int group = x.a.HV / x.a.H, d0 = threadIdx.x / 32 * 16;

    for (int n = blockIdx.y * group; n < (int)(blockIdx.y + 1) * group; n++) {
        struct slab<C> P = {}, Y = {}, W = {}, U = {};
        load_states(x, z, blockIdx.x, n, s);
        cp_async_wait<0>();
        __syncthreads();
        sum_gate<C>(s.G);
        if (threadIdx.x < C) {
            if (s.m == 1) s.by_k[threadIdx.x] = s.of_qk[threadIdx.x][threadIdx.x];
            else s.next_k[threadIdx.x + 1] = s.next_b[threadIdx.x + 1] = 0.0f;
        }
        solve_back(s);
        __syncthreads();
        state_gradients(s, (float)x.a.scale, d0, P, Y, W, U);
        systems(s, (float)x.a.scale);
        put_values(x, z, n, s);
        __syncthreads();
        load_vectors<K, V, 0>(x, z, n, s);          // overwrites h and dS
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        start_dG(s, d0, z.len - 1, P, Y, W, U);
        pairs_back(s, d0, P, Y, W, U);
        __syncthreads();
        put_far(s, d0, P, Y, W, U);
        __syncthreads();
        for (int at = threadIdx.x; at < C / 16 * K; at += blockDim.x)
            rows_back(x, z, n, s, at / K, at % K);
        __syncthreads();
        put_gate(x, z, n, s);
        __syncthreads();
    }
}

template <int model, int K, int V>
static int one_size(const struct family *x)
{
    const size_t bytes = sizeof(struct back_storage<model, K, V>);
    return launch_shared(form_backward<model, K, V>, dim3(x->NC, x->a.H), 2 * K, bytes,
                         x->a.stream, *x);
}
