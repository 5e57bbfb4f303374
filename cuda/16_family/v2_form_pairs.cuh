// v2_form_pairs.cuh -- scores of a chunk of any model, with anchors.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_form_storage.cuh"

// Uses chapter 03's blocks, but each block's anchor is the token of the block's last
// column, just before its first row. A read before the decay uses G_{i-1} instead of
// G_i. In a block's first row, G_{i-1} is the anchor's G, so no exponent is above 0.
//
// Computes a 16 x 16 tile of two products: q or a (rows) with k and with b (columns).
template <class Storage>
static __device__ void block_scores(const Storage &s, int size, int rg, int cg,
                                    int look, float (*by_k)[4], float (*by_b)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const int r = 16 * rg, c = 16 * cg, early = look && s.early;
    const int row = block_row(r + lane % 16, size);
    const int col = block_column(c + lane % 8 + lane / 16 * 8, size);
    const bf16 *i_ = (look ? s.a[row] : s.q[row]) + lane / 16 * 8;
    const bf16 *k_ = s.k[row] + lane / 16 * 8, *kj = s.k[col] + lane / 8 % 2 * 8;
    const bf16 *bj = s.b[s.m == 2 ? col : 0] + lane / 8 % 2 * 8;
    const int K = sizeof s.k[0] / sizeof(bf16) - PAD;

    #pragma unroll 1
    for (int d = 0; d < K; d += 16) {
        uint32_t a[4], k[4], x[4], y[4];
        ldmatrix_x4(a, i_ + d);
        ldmatrix_x4(x, kj + d);
        if (s.m == 2) ldmatrix_x4(y, bj + d);
        if (s.m == 1 && look) ldmatrix_x4(k, k_ + d);
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const int at = d + e + h / 2 * 8, i = r + g + h % 2 * 8;
            float2 D = decay_between(&s.G[block_row(i, size) + 1 - early][at],
                                     &s.G[block_anchor(i, size)][at]);
            if (s.m == 1 && look) {                       // GDN-2 reads with b k
                D.x *= __uint_as_float(k[h] << 16);
                D.y *= __uint_as_float(k[h] & 0xffff0000u);
            }
            a[h] = scale_bf16x2(a[h], D);
        }
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const int at = d + e + h % 2 * 8, j = c + g + h / 2 * 8;
            const float2 D = decay_between(&s.G[block_anchor(j, size)][at],
                                           &s.G[block_column(j, size) + 1][at]);
            x[h] = scale_bf16x2(x[h], D);
            if (s.m == 2) y[h] = scale_bf16x2(y[h], D);
        }
        mma_m16n8k16(by_k[0], a, x[0], x[1]);
        mma_m16n8k16(by_k[1], a, x[2], x[3]);
        if (s.m == 2) {
            mma_m16n8k16(by_b[0], a, y[0], y[1]);
            mma_m16n8k16(by_b[1], a, y[2], y[3]);
        }
    }
}

// Stores the scores of a pair in Aqk or, if `look` is set, in the matrix L of the
// triangular systems x = r - L x, and (DPLR) in B = Aak.
template <class Storage>
static __device__ __forceinline__ void put_pair(Storage &s, int look, float scale,
                                                int i, int j, float by_k, float by_b)
{
    if (!look) s.Aqk[i][s.early * s.C + j] = scale * by_k;       // DPLR: after Aqb
    if (!look && s.m == 2) s.Aqk[i][j] = scale * by_b;
    if (look) s.L[i][j] = s.m == 2 ? -by_b : by_k;
    if (look && s.m == 2) s.B[i][j] = by_k;
}

// Computes all scores. For C = 64, block size 32 has four tiles, and each smaller block
// size has two. For C = 32, each block size has one tile.
template <class Storage>
static __device__ void scores(Storage &s, float scale)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, big = s.C == CHUNK;
    const int tiles = big ? 14 : 5, halves = 1 + s.looks;
    for (int task = warp; task < tiles * halves; task += blockDim.x / 32) {
        const int at = task / halves, look = task % halves;
        const int of_big = at < 4 ? 32 : 32 >> (at - 2) / 2;
        const int row = at < 4 ? at / 2 : at % 2;
        const int size = !big ? 16 >> at : of_big;
        const int rg = !big ? 0 : row, cg = big ? at % 2 : 0;
        float by_k[2][4] = {}, by_b[2][4] = {};
        block_scores(s, size, rg, cg, look, by_k, by_b);
        #pragma unroll
        for (int h = 0; h < 8; h++) {
            const int r = 16 * rg + lane / 4 + h % 4 / 2 * 8;
            const int c = 16 * cg + h / 4 * 8 + lane % 4 * 2 + h % 2;
            if ((r ^ c) & ~(size - 1)) continue; // r and c are in different blocks
            put_pair(s, look, scale, block_row(r, size), block_column(c, size),
                     by_k[h / 4][h % 4], by_b[h / 4][h % 4]);
        }
    }
}

// Computes the diagonal of Aqk, where the decay is 1, with one row per warp.
template <class Storage>
static __device__ void diagonal(Storage &s, float scale)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int K = sizeof s.k[0] / sizeof(bf16) - PAD;
    for (int i = warp; i < s.C; i += blockDim.x / 32) {
        float x = 0.0f, y = 0.0f;
        for (int d = lane; d < K; d += 32) {
            x += (float)s.q[i][d] * (float)s.k[i][d];
            if (s.m == 2) y += (float)s.q[i][d] * (float)s.b[i][d];
        }
        for (int b = 16; b; b /= 2) {
            x += __shfl_xor_sync(~0u, x, b);
            if (s.m == 2) y += __shfl_xor_sync(~0u, y, b);
        }
        if (lane == 0) put_pair(s, 0, scale, i, i, x, y);
    }
}
