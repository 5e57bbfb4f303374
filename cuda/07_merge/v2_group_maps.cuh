// v2_group_maps.cuh -- applies a sequence of maps to columns in registers.
// Book: chapter T, "Chapter 07: the fold".
//
// Computes X <- op(M) X + h on 64 columns of a head, K = 128, where op(M) is M in
// forward and M^T in backward. A block is one warpgroup with X^T in registers, as in
// warpgroup_scan.cuh. M and X are fp32, each split into three bf16 pieces. The six
// largest of the nine products of pieces are computed, from small to large. The three
// omitted products are about 2^-24 of the largest. Bound: 6 x 2 K^2 64 flops per step,
// 1.75 us of an SM at its peak. Loading 64 KiB of M per step takes nearly as long.
// During each step, the next M is copied.
#pragma once

#include "cuda/tile/warpgroup_scan.cuh"

struct map_storage {
    bf16 M[3][4 * SWIZZLE128_TILE]; // per piece: all rows of columns 0-63, then 64-127
    float raw[DIM * DIM];           // M in fp32, before it is split
};

// Copies M (row stride VK) to `raw`. No barrier is needed before split_M, because a
// thread reads only the elements that this thread copied.
static __device__ __forceinline__ void load_M(const float *M, int VK,
                                              struct map_storage *s)
{
    for (int at = threadIdx.x; at < DIM * DIM / 4; at += 128)
        cp_async_16((bf16 *)(s->raw + 4 * at),
                    (const bf16 *)(M + (int64_t)(at / 32) * VK + at % 32 * 4), 1);
    cp_async_commit();
}

static __device__ __forceinline__ void split_M(struct map_storage *s)
{
    #pragma unroll 4
    for (int at = threadIdx.x; at < DIM * DIM / 4; at += 128) {
        const int i = at / 32, p = at % 32 * 4;
        float4 x = *(const float4 *)(s->raw + 4 * at);
        char *to = (char *)(s->M[0] + p / 64 * 2 * SWIZZLE128_TILE)
                   + swizzle128_offset(i, p % 64 / 8) + p % 8 * 2;
        #pragma unroll
        for (int piece = 0; piece < 3; piece++) {
            const uint2 y = { pack_bf16x2(x.x, x.y), pack_bf16x2(x.z, x.w) };
            *(uint2 *)(to + piece * sizeof s->M[0]) = y;
            unpack_residual(y.x, x.x, x.y);
            unpack_residual(y.y, x.z, x.w);
        }
    }
}

// Computes X^T [64,128] <- X^T op(M)^T from M's pieces.
template <int backward>
static __device__ __forceinline__ void times_M(float (*X)[4],
                                               const struct map_storage *s)
{
    const int order[6][2] = {
        { 2, 0 }, { 1, 1 }, { 0, 2 }, { 1, 0 }, { 0, 1 }, { 0, 0 }
    };
    uint32_t a[8][3][4];
    #pragma unroll
    for (int i = 0; i < 8; i++) split_bf16<3>(a[i], X + 2 * i);
    #pragma unroll
    for (int i = 0; i < 64; i++) X[i / 4][i % 4] = 0.0f;
    wgmma_fence();
    #pragma unroll
    for (int o = 0; o < 6; o++) {
        const bf16 *M = s->M[order[o][1]];
        #pragma unroll
        for (int i = 0; i < 8; i++)
            wgmma_m64n128k16_rs<backward>(
                X, a[i][order[o][0]],
                backward ? smem_desc_mn_major(M, 2 * SWIZZLE128_TILE)
                               + i * DESC_STEP_MN_MAJOR
                         : smem_desc_k_major(M) + i / 4 * 2 * DESC_NEXT_TILE
                               + i % 4 * DESC_STEP_K_MAJOR);
    }
    wgmma_commit();
    wgmma_wait<0>();
    fence_operand<16>(X);
}

// A block applies `count` maps [h | M] of a head, `step` floats apart, to 64 columns X
// in registers. `h` points to the 64 columns of h that are added to X. If X holds
// columns of a composed map's M, `h` is NULL.
struct map_sequence {
    const float *M, *h;
    int64_t step;
    int count, VK;
};

// Applies the maps in order: X <- op(M_j) X + h_j. Each map has two barriers: one after
// all pieces are stored, one after all pieces have been read.
template <int backward>
static __device__ __forceinline__ void apply_maps(struct map_sequence w, float (*X)[4],
                                                  struct map_storage *s)
{
    const int warp = threadIdx.x / 32 * 16;
    if (w.count > 0) load_M(w.M, w.VK, s);
    for (int j = 0; j < w.count; j++) {
        cp_async_wait<0>();
        split_M(s);
        w.M += w.step;
        if (j + 1 < w.count) load_M(w.M, w.VK, s);
        fence_proxy_async();
        __syncthreads();
        times_M<backward>(X, s);
        if (w.h) {
            float h[16][4];
            load_state<DIM>(h, w.h + warp, 1, w.VK);
            #pragma unroll
            for (int i = 0; i < 64; i++) X[i / 4][i % 4] += h[i / 4][i % 4];
            w.h += w.step;
        }
        __syncthreads();
    }
}
