// v2_form_storage.cuh -- layout of a chunk's form (u, w, kg, qg, Aqk) in shared memory.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "workspace.cuh"
#include "cuda/tile/math.cuh"
#include "cuda/tile/triangle_inverse.cuh"

// Properties of a model: m rows of u, w, kg, qg (the form) per token, C tokens per
// chunk. If `looks` is 1, a token reads the state before writing. If `early` is also 1,
// the read precedes the decay.
template <int model>
struct traits {
    enum {
        m = model == KCP_DPLR ? 2 : 1,
        C = CHUNK / m,
        looks = model != KCP_GLA,
        early = m - 1,
        threads = model == KCP_DPLR ? 192 : 384,
        blocks = model == KCP_DPLR ? 3 : 2
    };
};

enum { GATE = 4 }; // PAD for rows of fp32

// `a` is DPLR's a, or GDN-2's gate b, from which b k is computed where needed. G of
// token i is in row i + 1, and row 0 is 0. Unused arrays have one row. Later qg, kg, u
// and w overwrite q, k, v and `a`.
template <int model, int K, int V>
struct form_storage : traits<model> {
    enum {
        C = traits<model>::C,
        S = traits<model>::looks ? C : 1,
        D = traits<model>::m == 2 ? C : 1,
        LS = C + 4,
        LB = C + PAD
    };
    float G[C + 1][K + GATE];
    bf16 q[C][K + PAD], k[C][K + PAD], v[C][V + PAD];
    bf16 a[S][K + PAD], b[D][K + PAD];
    float L[S][LS], A[S][LS];
    bf16 Ab[S][LB], B[D][LB], Aqk[C][CHUNK + PAD];
};

// Loads g of a chunk into rows 1 to C. Rows past the chunk's end become 0.
template <int C, int ld>
static __device__ void load_gate(const struct kcp_family &a, struct token_range z,
                                 int n, float (*G)[ld])
{
    const int K = ld - GATE;
    for (int at = threadIdx.x; at < C * K / 4; at += blockDim.x) {
        const int i = at / (K / 4), d = at % (K / 4) * 4;
        cp_async_16(&G[i + 1][d],
                    in<float>(a.g, z.t + (i < z.len ? i : 0), a.HV, n, K) + d,
                    i < z.len);
    }
}

// Loads q, k, a and b of a chunk, and v if `of_v` is set, to a storage R of a model.
// Rows past the chunk's end become 0.
template <int K, int V, int of_v, class R>
static __device__ __forceinline__ void load_vectors(const struct family &x,
                                                    struct token_range z, int n, R &s)
{
    const struct kcp_family &a = x.a;
    const int H = a.H, HV = a.HV, qk = n / (HV / H);
    const int64_t ld = (int64_t)HV * K;
    cp_async_rows<K, R::C>(s.q[0], in<bf16>(a.q, z.t, H, qk, K), (int64_t)H * K, z.len);
    cp_async_rows<K, R::C>(s.k[0], in<bf16>(a.k, z.t, H, qk, K), (int64_t)H * K, z.len);
    if (of_v)
        cp_async_rows<V, R::C>(s.v[0], in<bf16>(a.v, z.t, HV, n, V), (int64_t)HV * V,
                               z.len);
    if (s.looks)
        cp_async_rows<K, R::S>(s.a[0], in<bf16>(s.m == 2 ? a.a : a.b, z.t, HV, n, K),
                               ld, z.len);
    if (s.m == 2)
        cp_async_rows<K, R::D>(s.b[0], in<bf16>(a.b, z.t, HV, n, K), ld, z.len);
}

// Replaces gates by G, their cumulative sum within the chunk, in base 2. G is constant
// past the chunk's end. Gates below -750 are replaced by -750.
template <int C, int ld>
static __device__ void sum_gate(float (*G)[ld])
{
    const int d = threadIdx.x;
    if (d >= ld - GATE) return;
    float sum = 0.0f;
    G[0][d] = 0.0f;
    #pragma unroll 8
    for (int i = 1; i <= C; i++)
        G[i][d] = sum += max_or_nan(G[i][d], -750.0f) * 1.4426950408889634f;
}

// Loads row r of each token of a chunk from a tensor with m rows per token.
template <int width, int C>
static __device__ void load_form_rows(const struct family &x, struct token_range z,
                                      int n, int r, bf16 *to, const void *from)
{
    cp_async_rows<width, C>(to, in<bf16>(from, z.t * x.m + r, x.a.HV, n, width),
                            (int64_t)x.m * x.a.HV * width, z.len);
}

// Stores a tile, or zeros if `from` is NULL, to row r of the m rows of each token.
template <int width>
static __device__ void store_rows_of_form(const struct family &x, struct token_range z,
                                          int n, int r, void *to, const bf16 *from,
                                          int ld)
{
    for (int at = threadIdx.x; at < z.len * width / 8; at += blockDim.x) {
        const int i = at / (width / 8), d = at % (width / 8) * 8;
        const uint4 none = { 0, 0, 0, 0 };
        *(uint4 *)(out<bf16>(to, (z.t + i) * x.m + r, x.a.HV, n, width) + d) =
            from ? *(const uint4 *)(from + i * ld + d) : none;
    }
}
