// finish_deep.cuh -- KDA's finishing kernel: pairs within subchunks in deep warps.
// Book: chapter 18.
#pragma once

#include "finish_consumer.cuh"

// In a deep warp (finish_consumer.cuh) the pairs of tokens of a subchunk are added by
// levels s = 8, 4, 2, 1. Level s has the pairs of a token i in an odd block of s tokens
// and a token j in the preceding block, i.e. the pairs for which s is the highest bit
// of i ^ j. With a = G of the last token of j's block, D_ij = exp2(G_i - a) exp2(a -
// G_j). Both factors are at most 1, so underflow to 0 is correct for any decay. Each
// operand (k or q times a factor) is rounded once, and multiplies the sums in dG.

// G relative to the subchunk's row anchor, and sums that add_deep_pairs extends.
struct deep_terms {
    float G[8][4], dq[8][4], dk[8][4], dG[8][4];
};

// Multiplies tokens 0-7 (x) or 8-15 of two channel rows by 8 columns: one half of mma's
// inner dimension is 0.
static __device__ __forceinline__ void mma_half(float *d, const uint32_t *x,
                                                uint32_t b)
{
    const uint32_t a[4] = { x[0], x[1], 0, 0 };
    mma_m16n8k16(d, a, b, 0);
}

// A lane's fragments of the blocks of dA and dB on the diagonal of subchunk I. `row`
// has elements (token i = lane / 4, tokens j = e and e + 1) of the first and the second
// 8 tokens. `column` has the transposes. `low` is the block of tokens 8-15 and tokens
// 0-7.
struct deep_fragments {
    uint32_t row[2], column[2], low_row, low_column;
};

static __device__ __forceinline__ struct deep_fragments deep_fragments_of(
    const unsigned char *triangle, int I)
{
    const int lane = opaque_thread_id() % 32;
    uint32_t y[4], z[4];
    ldmatrix_x4(y, (const bf16 *)(triangle
                                  + swizzle128_offset(16 * I + lane % 8 + lane / 16 * 8,
                                                      2 * I + lane / 8 % 2)));
    ldmatrix_x4_trans(z, (const bf16 *)(triangle
                                        + swizzle128_offset(16 * I + lane % 16,
                                                            2 * I + lane / 16)));
    return { { y[0], y[3] }, { z[0], z[3] }, y[2], z[1] };
}

// Returns a mask of this lane's pair of elements (i, e) and (i, e + 1) of level s.
static __device__ __forceinline__ uint32_t level_mask(int i, int e, int s)
{
    const int x = i ^ e, y = i ^ (e + 1);
    return (x >= s && x < 2 * s ? 0xffff : 0) | (y >= s && y < 2 * s ? 0xffff0000 : 0);
}

// Adds all pairs of different tokens of each subchunk to the sums. Not inlined, so that
// other warps' registers and instructions do not contain this code.
static __device__ __noinline__ void add_deep_pairs(const unsigned char *dA,
                                                   const unsigned char *dB,
                                                   const unsigned char *q_tile,
                                                   const unsigned char *k_tile,
                                                   struct deep_terms &terms)
{
    const int lane = opaque_thread_id() % 32, e = lane % 4 * 2;
    const int in_tile = channels_offset();
    #pragma unroll 1
    for (int I = 0; I < SUBCHUNKS; I++) {
        uint32_t q[4], k[4];             // [token tile][channel g or g + 8]
        ldmatrix_x4_trans(q, (const bf16 *)(q_tile + in_tile + I * 2048));
        ldmatrix_x4_trans(k, (const bf16 *)(k_tile + in_tile + I * 2048));
        const struct deep_fragments A = deep_fragments_of(dA, I);
        const struct deep_fragments B = deep_fragments_of(dB, I);
        float G[2][4], dq[2][4] = {}, dk[2][4] = {}, dG[2][4] = {};
        #pragma unroll
        for (int t = 0; t < 2; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) G[t][j] = terms.G[2 * I + t][j];
        #pragma unroll
        for (int l = 0; l < 4; l++) {
            const int s = 8 >> l;
            const uint32_t mask = level_mask(lane / 4, e, s);
            uint32_t kf[2][2], qf[2][2];
            float f[2][4], sum_dq[2][4] = {}, sum_dk[2][4] = {};
            #pragma unroll
            for (int t = 0; t < 2; t++)
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int from = s == 8 ? 3 : s == 4 ? 1 : lane & 2;
                    float a = G[s == 8 ? 0 : t][2 * h + (s > 1)];
                    if (s > 1) a = __shfl_sync(~0u, a, (lane & ~3) | from);
                    float *y = f[t] + 2 * h;
                    y[0] = ex2_approx(-fabsf(G[t][2 * h] - a));
                    y[1] = ex2_approx(-fabsf(G[t][2 * h + 1] - a));
                    kf[t][h] = scale_bf16x2(k[2 * t + h], make_float2(y[0], y[1]));
                    qf[t][h] = scale_bf16x2(q[2 * t + h], make_float2(y[0], y[1]));
                }
            if (s == 8) {
                mma_half(sum_dq[1], kf[0], A.low_row);
                mma_half(sum_dk[1], kf[0], B.low_row);
                mma_half(sum_dk[0], qf[1], A.low_column);
                mma_half(sum_dk[0], kf[1], B.low_column);
            } else
                #pragma unroll
                for (int t = 0; t < 2; t++) {
                    mma_half(sum_dq[t], kf[t], A.row[t] & mask);
                    mma_half(sum_dk[t], kf[t], (B.row[t] | B.column[t]) & mask);
                    mma_half(sum_dk[t], qf[t], A.column[t] & mask);
                }
            #pragma unroll
            for (int t = 0; t < 2; t++)
                #pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int is_row = (8 * t + e + j % 2) & s;
                    const uint32_t kj = kf[t][j / 2], qj = qf[t][j / 2];
                    const float kx = j % 2 ? bf16x2_high(kj) : bf16x2_low(kj);
                    const float qx = j % 2 ? bf16x2_high(qj) : bf16x2_low(qj);
                    dq[t][j] = fmaf(f[t][j], sum_dq[t][j], dq[t][j]);
                    dk[t][j] = fmaf(f[t][j], sum_dk[t][j], dk[t][j]);
                    dG[t][j] = fmaf(is_row ? kx : -kx, sum_dk[t][j], dG[t][j]);
                    dG[t][j] = fmaf(qx, sum_dq[t][j], dG[t][j]);
                }
        }
        #pragma unroll
        for (int t = 0; t < 2; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                terms.dq[2 * I + t][j] = dq[t][j];
                terms.dk[2 * I + t][j] += dk[t][j];
                terms.dG[2 * I + t][j] += dG[t][j];
            }
    }
}

// Adds the pairs within subchunks to dk and dG, and stores their terms of dq in
// `terms`. Then replaces G by the row factors exp2(G - b), which other warps' arrays
// hold already.
static __device__ __forceinline__ void add_deep_subchunks(
    const unsigned char *dA, const unsigned char *dB, const unsigned char *q_tile,
    const unsigned char *k_tile, float (*G)[4], float (*dk)[4], float (*dG)[4],
    struct deep_terms &terms)
{
    #pragma unroll
    for (int i = 0; i < 32; i++) {
        terms.G[i / 4][i % 4] = G[i / 4][i % 4];
        terms.dk[i / 4][i % 4] = dk[i / 4][i % 4];
        terms.dG[i / 4][i % 4] = dG[i / 4][i % 4];
    }
    add_deep_pairs(dA, dB, q_tile, k_tile, terms);
    #pragma unroll
    for (int i = 0; i < 32; i++) {
        G[i / 4][i % 4] = ex2_approx(G[i / 4][i % 4]);
        dk[i / 4][i % 4] = terms.dk[i / 4][i % 4];
        dG[i / 4][i % 4] = terms.dG[i / 4][i % 4];
    }
}

static __device__ __forceinline__ void add_deep_dq(const struct deep_terms &terms,
                                                   pairs_of_tokens &dq)
{
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
            dq[t][h] = pack_bf16x2(bf16x2_low(dq[t][h]) + terms.dq[t][2 * h],
                                   bf16x2_high(dq[t][h]) + terms.dq[t][2 * h + 1]);
}
