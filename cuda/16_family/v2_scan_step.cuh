// v2_scan_step.cuh -- a step of DPLR's scan and reverse scan, with 32 tokens.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_back_storage.cuh"

// Half of the form's rows of w, qg and Aqk are zero. Chapter 04's v2 multiplies these
// zeros. Here a step processes 32 tokens without zeros, with x and v in separate tiles.
// Bound: latency, T / 32 sequential steps per head. Only data that the next step needs
// is on the critical path: four warps with 16 columns each compute x and S. Four other
// warps compute the outputs (o, or h and x) one step later from the fragments of S and
// x. Each step has one barrier, after the step's tiles have arrived and all warps have
// completed the previous step.
enum { TOKENS = CHUNK / 2 };

// Shared memory of a step. `u` and `v` have 64 columns. The reverse scan's `u` is dO.
template <int K>
struct step_storage {
    bf16 w[TOKENS][K + PAD], q[TOKENS][K + PAD], k[TOKENS][K + PAD], b[TOKENS][K + PAD];
    bf16 Aqb[TOKENS][CHUNK + PAD]; // followed by Aqk in each row
    bf16 u[TOKENS][64 + PAD], v[TOKENS][64 + PAD];
    float G[K];
};

// Operands A that the computing warps pass to the storing warps: S before the step's
// tokens (reverse: dS after these tokens), and x (reverse: dx).
template <int K>
struct step_fragments {
    uint4 S[K / 16][128], x[TOKENS / 16][128];
};

template <int K>
struct scan_pipeline {
    enum { ahead = K == 64 ? 2 : 1, stages = ahead + 2 };
    struct step_storage<K> stage[stages];
    struct step_fragments<K> fragments[2];
};

template <int K, int reverse>
static __device__ void load_step(const struct family &x, struct token_range z, int n,
                                 int v0, struct step_storage<K> *s)
{
    const struct kcp_family &a = x.a;
    const int64_t ld = (int64_t)a.HV * a.V;
    load_form_rows<K, TOKENS>(x, z, n, 0, s->w[0], x.w);
    load_form_rows<K, TOKENS>(x, z, n, 1, s->q[0], x.qg);
    load_form_rows<K, TOKENS>(x, z, n, 1, s->k[0], x.kg);
    load_form_rows<K, TOKENS>(x, z, n, 0, s->b[0], x.kg);
    load_form_rows<CHUNK, TOKENS>(x, z, n, 1, s->Aqb[0], x.Aqk);
    if (reverse) {
        cp_async_rows<64, TOKENS>(s->u[0], in<bf16>(a.do_, z.t, a.HV, n, a.V) + v0, ld,
                                  z.len);
    } else {
        cp_async_rows<64, TOKENS>(s->u[0], in<bf16>(x.u, 2 * z.t, a.HV, n, a.V) + v0,
                                  2 * ld, z.len);
        cp_async_rows<64, TOKENS>(s->v[0], in<bf16>(a.v, z.t, a.HV, n, a.V) + v0, ld,
                                  z.len);
    }
    if (threadIdx.x < K / 4)
        cp_async_16(s->G + threadIdx.x * 4,
                    in<float>(x.G, 2 * (z.t + z.len) - 1, a.HV, n, K) + threadIdx.x * 4,
                    1);
}

// Computes S <- Lambda S. Lambda = exp2(G_last) has one factor per column of S^T.
template <int K>
static __device__ __forceinline__ void fade(float (*S)[4], const float *G)
{
    #pragma unroll
    for (int i = 0; i < K / 8; i++) {
        const float2 g = *(const float2 *)(G + i * 8 + threadIdx.x % 4 * 2);
        const float low = ex2_approx(g.x), high = ex2_approx(g.y);
        S[i][0] *= low;
        S[i][1] *= high;
        S[i][2] *= low;
        S[i][3] *= high;
    }
}

// Packs S as bf16 operands A, and stores them in shared memory for the storing warps.
template <int K>
static __device__ __forceinline__ void share_fragments(uint4 (*to)[128],
                                                       const float (*S)[4],
                                                       uint32_t (*a)[4])
{
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        #pragma unroll
        for (int h = 0; h < 4; h++)
            a[i][h] = pack_bf16x2(S[2 * i + h / 2][h % 2 * 2],
                                  S[2 * i + h / 2][h % 2 * 2 + 1]);
        to[i][threadIdx.x % 128] = make_uint4(a[i][0], a[i][1], a[i][2], a[i][3]);
    }
}

template <int K>
static __device__ __forceinline__ void read_fragments(uint32_t (*a)[4],
                                                      uint4 (*from)[128])
{
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        const uint4 y = from[i][threadIdx.x % 128];
        a[i][0] = y.x;
        a[i][1] = y.y;
        a[i][2] = y.z;
        a[i][3] = y.w;
    }
}

// Computes y^T [16,32] += a X^T, X [32,depth] (lower triangular if `lower` is set).
template <int depth, int lower>
static __device__ __forceinline__ void by_rows(float (*y)[4], const uint32_t (*a)[4],
                                               const bf16 *X, int ld)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int i = 0; i < depth / 16; i++)
        #pragma unroll
        for (int c = lower ? i : 0; c < TOKENS / 16; c++) {
            uint32_t b[4];
            ldmatrix_x4(b, X + c * 16 * ld + i * 16 + ldmatrix_offset_b(lane, ld));
            mma_m16n16k16(y + 2 * c, a[i], b);
        }
}

// Computes y^T [16,width] += a X, X [32,width] (lower triangular if `lower` is set).
template <int width, int lower>
static __device__ __forceinline__ void by_columns(float (*y)[4], const uint32_t (*a)[4],
                                                  const bf16 *X, int ld)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int c = 0; c < TOKENS / 16; c++)
        #pragma unroll
        for (int i = 0; i < (lower ? c + 1 : width / 16); i++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b,
                              X + c * 16 * ld + i * 16 + ldmatrix_offset_a(lane, ld));
            mma_m16n16k16(y + 2 * i, a[c], b);
        }
}

// Loads 16 columns of a tile [32,64] as bf16 fragments.
static __device__ __forceinline__ void fragments(uint32_t (*a)[4], const bf16 *X)
{
    const bf16 *row = X + ldmatrix_offset_b(threadIdx.x % 32, 64 + PAD);
    #pragma unroll
    for (int c = 0; c < TOKENS / 16; c++)
        ldmatrix_x4_trans(a[c], row + c * 16 * (64 + PAD));
}

// Stores fragments to rows of a tensor, as store_rows does.
template <int tiles>
static __device__ __forceinline__ void store_fragments(bf16 *to, int64_t ld, int len,
                                                       const uint32_t (*a)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const uint32_t low = movmatrix_trans(a[i / 2][i % 2 * 2]);
        const uint32_t high = movmatrix_trans(a[i / 2][i % 2 * 2 + 1]);
        if (i * 8 + g >= len) continue;
        *(uint32_t *)(to + (i * 8 + g) * ld + e) = low;
        *(uint32_t *)(to + (i * 8 + g) * ld + 8 + e) = high;
    }
}

// Computes x = u - w S, then S <- Lambda S + bg^T x + kg^T v.
template <int K>
static __device__ __forceinline__ void scan_step(const struct step_storage<K> *s, int v,
                                                 struct step_fragments<K> *to,
                                                 float (*S)[4])
{
    uint32_t S_[K / 16][4], v_[TOKENS / 16][4], x_[TOKENS / 16][4];
    float x[4][4], y[4][4] = {};
    //> kernel-scan-step
    share_fragments<K>(to->S, S, S_);
    by_rows<K, 0>(y, S_, s->w[0], K + PAD);
    from_rows<TOKENS>(x, s->u[0] + v, 64 + PAD);
    #pragma unroll
    for (int h = 0; h < 16; h++) x[h / 4][h % 4] -= y[h / 4][h % 4];
    share_fragments<TOKENS>(to->x, x, x_);
    fragments(v_, s->v[0] + v);
    fade<K>(S, s->G);
    by_columns<K, 0>(S, v_, s->k[0], K + PAD);
    by_columns<K, 0>(S, x_, s->b[0], K + PAD);
    //< kernel-scan-step
}

// Computes and stores o = scale qg S + Aqb x + Aqk v or, for backward, stores h and x.
template <int K>
static __device__ __forceinline__ void store_step(const struct family &x,
                                                  struct token_range z, int64_t at,
                                                  const struct step_storage<K> *s,
                                                  int v, struct step_fragments<K> *from,
                                                  bf16 *h)
{
    const int64_t ld = (int64_t)x.a.HV * x.a.V;
    uint32_t S_[K / 16][4], v_[TOKENS / 16][4], x_[TOKENS / 16][4];
    float y[4][4] = {};
    read_fragments<K>(S_, from->S);
    read_fragments<TOKENS>(x_, from->x);
    if (h) {
        store_fragments<K / 8>(h, x.a.V, K, S_);
        store_fragments<4>((bf16 *)x.v_new + 2 * z.t * ld + at, 2 * ld, z.len, x_);
        return;
    }
    fragments(v_, s->v[0] + v);
    by_rows<K, 0>(y, S_, s->q[0], K + PAD);
    #pragma unroll
    for (int j = 0; j < 16; j++) y[j / 4][j % 4] *= (float)x.a.scale;
    by_rows<TOKENS, 1>(y, x_, s->Aqb[0], CHUNK + PAD);
    by_rows<TOKENS, 1>(y, v_, s->Aqb[0] + TOKENS, CHUNK + PAD);
    store_rows<4>((bf16 *)x.a.o + z.t * ld + at, ld, z.len, y);
}

// Computes dx = bg dS + Aqb^T dO, then dS <- Lambda dS + scale qg^T dO - w^T dx.
template <int K>
static __device__ __forceinline__ void reverse_step(const struct step_storage<K> *s,
                                                    int v, float scale,
                                                    struct step_fragments<K> *to,
                                                    float (*dS)[4])
{
    uint32_t S_[K / 16][4], d_[TOKENS / 16][4], x_[TOKENS / 16][4];
    float d[4][4], f[4][4] = {};
    fragments(d_, s->u[0] + v);
    by_columns<TOKENS, 1>(f, d_, s->Aqb[0], CHUNK + PAD);
    share_fragments<K>(to->S, dS, S_);
    by_rows<K, 0>(f, S_, s->b[0], K + PAD);
    share_fragments<TOKENS>(to->x, f, x_);
    from_rows<TOKENS>(d, s->u[0] + v, 64 + PAD);
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        x_[h / 4][h % 4] ^= 0x80008000u; // -dx
        d_[h / 4][h % 4] =
            pack_bf16x2(scale * d[h / 2][h % 2 * 2], scale * d[h / 2][h % 2 * 2 + 1]);
    }
    fade<K>(dS, s->G);
    by_columns<K, 0>(dS, d_, s->q[0], K + PAD);
    by_columns<K, 0>(dS, x_, s->w[0], K + PAD);
}

// Stores dS and both rows of dU, of which the second is dv = kg dS + Aqk^T dO.
template <int K>
static __device__ __forceinline__ void store_reverse_step(
    const struct family &x, struct token_range z, int64_t at,
    const struct step_storage<K> *s, int v, struct step_fragments<K> *from, bf16 *dh)
{
    const int64_t ld = (int64_t)x.a.HV * x.a.V;
    bf16 *row = (bf16 *)x.dU + 2 * z.t * ld + at;
    uint32_t S_[K / 16][4], d_[TOKENS / 16][4], x_[TOKENS / 16][4];
    float y[4][4] = {};
    read_fragments<K>(S_, from->S);
    read_fragments<TOKENS>(x_, from->x);
    fragments(d_, s->u[0] + v);
    by_columns<TOKENS, 1>(y, d_, s->Aqb[0] + TOKENS, CHUNK + PAD);
    by_rows<K, 0>(y, S_, s->k[0], K + PAD);
    store_fragments<K / 8>(dh, x.a.V, K, S_);
    store_fragments<4>(row, 2 * ld, z.len, x_);
    store_rows<4>(row + ld, 2 * ld, z.len, y);
}
