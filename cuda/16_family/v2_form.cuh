// v2_form.cuh -- u, w, kg, qg, Aqk (the form) of any model on tensor cores.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_form_pairs.cuh"
#include "cuda/tile/launch_shared.cuh"

// Bound: memory. DPLR at K = V = 64 reads 896 bytes per token and head and writes 768,
// or 1280 in backward of sequences that ranks share. The 13 exponentials per element
// (two for each of five block sizes, and three gates) take less time than the traffic.
// Three blocks fit in an SM's registers, so one computes while another one waits.

// Replaces q, k and b by qg, kg and bg, and GDN-2's v by omega v. Replaces `a` by the
// vector with which a token reads the state before the chunk.
template <int model, int K, int V>
static __device__ void gate_rows(const struct family &x, struct token_range z, int n,
                                 struct form_storage<model, K, V> &s, int first)
{
    for (int at = threadIdx.x - first; at < s.C * K / 2; at += blockDim.x - first) {
        const int i = at / (K / 2), d = at % (K / 2) * 2;
        const float2 E = decay_between(&s.G[i + 1][d], &s.G[0][d]);
        const float2 rest = decay_between(&s.G[s.C][d], &s.G[i + 1][d]);
        uint32_t *q = (uint32_t *)&s.q[i][d], *k = (uint32_t *)&s.k[i][d];
        if (s.looks) {
            uint32_t *a = (uint32_t *)&s.a[i][d];
            float2 D = s.m == 2 ? decay_between(&s.G[i][d], &s.G[0][d]) : E;
            if (s.m == 1) {
                D.x *= __uint_as_float(*k << 16);
                D.y *= __uint_as_float(*k & 0xffff0000u);
            }
            *a = scale_bf16x2(*a, D);
        }
        if (s.m == 2) {
            uint32_t *b = (uint32_t *)&s.b[i][d];
            *b = scale_bf16x2(*b, rest);
        }
        *q = scale_bf16x2(*q, E);
        *k = scale_bf16x2(*k, rest);
    }
    for (int at = threadIdx.x - first; at < z.len * V && model == KCP_GDN2;
         at += blockDim.x - first) {
        const int i = at / V, v = at % V;
        s.v[i][v] = (float)s.v[i][v] *
                    (float)in<bf16>(x.a.omega, z.t + i, x.a.HV, n, V)[v];
    }
}

// Stores rows of a tile to a tensor [T,heads,width].
template <int width>
static __device__ void put_tokens(struct token_range z, int heads, int n, void *to,
                                  const bf16 *from)
{
    for (int at = threadIdx.x; at < z.len * width / 8; at += blockDim.x) {
        const int i = at / (width / 8), d = at % (width / 8) * 8;
        *(uint4 *)(out<bf16>(to, z.t + i, heads, n, width) + d) =
            *(const uint4 *)(from + i * (width + PAD) + d);
    }
}

// Stores the results that do not depend on solutions of the triangular systems.
template <int model, int K, int V>
static __device__ void put_known(const struct family &x, struct token_range z, int n,
                                 struct form_storage<model, K, V> &s)
{
    const int own = s.m - 1;             // a token's last row has its k and q
    store_rows_of_form<K>(x, z, n, own, x.kg, s.k[0], K + PAD);
    store_rows_of_form<K>(x, z, n, own, x.qg, s.q[0], K + PAD);
    store_rows_of_form<CHUNK>(x, z, n, own, x.Aqk, s.Aqk[0], CHUNK + PAD);
    if (s.m == 2) store_rows_of_form<K>(x, z, n, 0, x.kg, s.b[0], K + PAD);
    if (s.m == 2 && x.spread) {
        store_rows_of_form<V>(x, z, n, 1, x.u, s.v[0], V + PAD);
        store_rows_of_form<K>(x, z, n, 1, x.w, NULL, 0);
        store_rows_of_form<K>(x, z, n, 0, x.qg, NULL, 0);
    }
    if (!s.looks) {
        store_rows_of_form<V>(x, z, n, 0, x.u, s.v[0], V + PAD);
        store_rows_of_form<K>(x, z, n, 0, x.w, NULL, 0);
    }
}

// Computes y [C,16] = A x, with x as operand B. A [C,C] is lower triangular.
template <int C>
static __device__ __forceinline__ void lower_times(float (*y)[2][4], const bf16 *A,
                                                   const uint32_t (*x)[4])
{
    const int lane = threadIdx.x % 32, ld = C + PAD;
    #pragma unroll
    for (int r = 0; r < C / 16; r++)
        #pragma unroll
        for (int p = 0; p <= r; p++) {
            uint32_t a[4];
            ldmatrix_x4(a, A + r * 16 * ld + p * 16 + ldmatrix_offset_a(lane, ld));
            mma_m16n8k16(y[r][0], a, x[p][0], x[p][1]);
            mma_m16n8k16(y[r][1], a, x[p][2], x[p][3]);
        }
}

// Packs the transposed result, in bf16, as operand B of the next product.
template <int C>
static __device__ __forceinline__ void pack_transposed(uint32_t (*x)[4],
                                                       const float (*y)[2][4])
{
    #pragma unroll
    for (int r = 0; r < C / 16; r++)
        #pragma unroll
        for (int h = 0; h < 4; h++)
            x[r][h] = movmatrix_trans(
                pack_bf16x2(y[r][h / 2][h % 2 * 2], y[r][h / 2][h % 2 * 2 + 1]));
}

// Computes u or w in place of the right-hand side, with 16 columns per warp. DPLR: u =
// A Aak v, w = -A ag. GDN-2: u = A omega v, w = A bk_g.
template <int model, int K, int V>
static __device__ void solve(struct form_storage<model, K, V> &s)
{
    const int lane = threadIdx.x % 32;
    enum { C = traits<model>::C };
    for (int c = threadIdx.x / 32 * 16; c < K + V; c += blockDim.x / 2) {
        const int of_u = c >= K, ld = (of_u ? V : K) + PAD;
        bf16 *x_ = of_u ? &s.v[0][c - K] : &s.a[0][c];
        uint32_t x[C / 16][4];
        float y[C / 16][2][4] = {};
        #pragma unroll
        for (int p = 0; p < C / 16; p++)
            ldmatrix_x4_trans(x[p], x_ + p * 16 * ld + ldmatrix_offset_a(lane, ld));
        if (of_u && s.m == 2) {
            lower_times<C>(y, s.B[0], x);
            pack_transposed<C>(x, y);
            for (int h = 0; h < C / 2; h++) y[h / 8][h / 4 % 2][h % 4] = 0.0f;
        }
        lower_times<C>(y, s.Ab[0], x);
        __syncwarp();                        // all lanes have read the old columns
        const float sign = s.m == 2 && !of_u ? -1.0f : 1.0f;
        #pragma unroll
        for (int h = 0; h < C / 4; h++) {
            const int i = h / 4 * 16 + lane / 4 + h % 2 * 8;
            const float *o = y[h / 4][h / 2 % 2] + h % 2 * 2;
            *(uint32_t *)(x_ + i * ld + h / 2 % 2 * 8 + lane % 4 * 2) =
                pack_bf16x2(sign * o[0], sign * o[1]);
        }
    }
}

template <int model, int K, int V>
static __global__ __launch_bounds__(traits<model>::threads,
                                    K == 64 && V == 64 ? traits<model>::blocks : 1)
void make_form(const struct family x)
{
    extern __shared__ __align__(128) unsigned char shared[];
    typedef struct form_storage<model, K, V> R;
    enum { C = R::C, LS = R::LS };
    R &s = *(R *)shared;
    const struct token_range z = tokens(x, blockIdx.x);
    const int n = blockIdx.y;
    const float scale = x.a.scale;

    load_vectors<K, V, 1>(x, z, n, s);
    load_gate<C>(x.a, z, n, s.G);
    cp_async_commit();
    for (int at = threadIdx.x; at < s.S * s.LS; at += blockDim.x)
        s.L[0][at] = s.A[0][at] = 0.0f;
    for (int at = threadIdx.x; at < C * (CHUNK + PAD); at += blockDim.x)
        s.Aqk[0][at] = 0.0f;
    for (int at = threadIdx.x; at < s.D * s.LB; at += blockDim.x) s.B[0][at] = 0.0f;
    cp_async_wait<0>();
    __syncthreads();
    sum_gate<C>(s.G);
    __syncthreads();
    if (threadIdx.x < K)
        out<float>(x.G, (z.t + z.len) * s.m - 1, x.a.HV, n, K)[threadIdx.x] =
            s.G[C][threadIdx.x];
    scores(s, scale);
    diagonal(s, scale);
    __syncthreads();
    if (s.looks && threadIdx.x < C) invert_diagonal_blocks<LS>(s.L, s.A);
    else gate_rows(x, z, n, s, s.looks ? C : 0);
    __syncthreads();
    put_known(x, z, n, s);
    if (s.m == 2 && x.a.pass == KCP_BACKWARD)
        put_tokens<C>(z, x.a.HV, n, x.B, s.B[0]);
    if (!s.looks) return;
    join_blocks<16, LS>(s.L, s.A);
    if (C == CHUNK) join_blocks<32, LS>(s.L, s.A);
    for (int at = threadIdx.x; at < C * C; at += blockDim.x)
        s.Ab[at / C][at % C] = s.A[at / C][at % C];
    __syncthreads();
    solve(s);
    __syncthreads();
    store_rows_of_form<K>(x, z, n, 0, x.w, s.a[0], K + PAD);
    store_rows_of_form<V>(x, z, n, 0, x.u, s.v[0], V + PAD);
    if (x.a.pass == KCP_BACKWARD) put_tokens<C>(z, x.a.HV, n, x.L, s.Ab[0]);
}
