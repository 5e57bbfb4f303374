// warpgroup_scan.cuh -- copies and products for scans by a warpgroup.
// Book: chapter T, "Chapter 05: the map".
#pragma once

#include "launch.cuh"
#include "pipeline.cuh"
#include "proxy.cuh"
#include "wgmma.cuh"
#include "warp_scan.cuh"

// All threads of the block copy len rows of a tensor, `stride` elements apart, to
// swizzle128 tiles. Rows >= len become 0.
template <int tiles = 2, int threads = 256>
static __device__ __forceinline__ void cp_async_swizzled_rows(bf16 *to,
                                                              const bf16 *from,
                                                              int64_t stride, int len)
{
    const int step = threads / (8 * tiles);
    const int row = threadIdx.x / (8 * tiles), piece = threadIdx.x % (8 * tiles);
    char *at =
        (char *)(to + piece / 8 * SWIZZLE128_TILE) + swizzle128_offset(row, piece % 8);
    #pragma unroll
    for (int i = 0; i < CHUNK / step; i++) {
        const int r = row + step * i;
        cp_async_16(at + 128 * step * i, from + (r < len ? r : 0) * stride + piece * 8,
                    r < len);
    }
}

// Computes y^T [64,64] = S^T [64,128] X^T. While the tensor core multiplies 32 columns
// of S^T, the threads split the next 32 columns into bf16 pieces.
template <int pieces>
static __device__ __forceinline__ void warpgroup_times_rows(float (*y)[4],
                                                            const float (*S)[4],
                                                            const bf16 *X)
{
    uint32_t a[2][2][pieces][4];
    #pragma unroll
    for (int b = 0; b < DIM / 32; b++) {
        if (b >= 2) wgmma_wait<1>();
        split_bf16<pieces>(a[b % 2][0], S + 4 * b);
        split_bf16<pieces>(a[b % 2][1], S + 4 * b + 2);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 2 * pieces; i++) {
            const int step = 2 * b + i / pieces;
            wgmma_m64n64k16_rs<0>(y, a[b % 2][i / pieces][i % pieces],
                                  smem_desc_k_major(X) + step / 4 * DESC_NEXT_TILE
                                      + step % 4 * DESC_STEP_K_MAJOR,
                                  b || i);
        }
        wgmma_commit();
    }
    wgmma_wait<0>();
    fence_operand<8>(y);
}

// Computes S^T [64,128] <- S^T Lambda - y^T X (Lambda: the chunk's decay), with y in
// two bf16 pieces. The sum over the chunk has a separate accumulator, because the
// tensor core rounds sums towards 0, which would bias the state.
static __device__ __forceinline__ void warpgroup_decay_minus(float (*S)[4],
                                                             const float (*y)[4],
                                                             const bf16 *X,
                                                             const float *decay)
{
    const int e = threadIdx.x % 4 * 2;
    uint32_t a[4][2][4];
    float d[2][8][4];
    #pragma unroll
    for (int c = 0; c < 4; c++) split_bf16<2>(a[c], y + 2 * c);
    wgmma_fence();
    #pragma unroll
    for (int half = 0; half < 2; half++) {
        #pragma unroll
        for (int i = 0; i < 8; i++)
            wgmma_m64n64k16_rs<1>(d[half], a[i / 2][i % 2],
                                  smem_desc_mn_major(X) + half * DESC_NEXT_TILE
                                      + i / 2 * DESC_STEP_MN_MAJOR,
                                  i);
        wgmma_commit();
    }
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        if (i == 0) {
            wgmma_wait<1>();
            fence_operand<8>(d[0]);
        }
        if (i == 8) {
            wgmma_wait<0>();
            fence_operand<8>(d[1]);
        }
        const float2 f = *(const float2 *)(decay + i * 8 + e);
        #pragma unroll
        for (int j = 0; j < 4; j++)
            S[i][j] = fmaf(j % 2 ? f.y : f.x, S[i][j], -d[i / 8][i % 8][j]);
    }
}

// Computes S^T [64,128] += y^T X, with y rounded to bf16.
static __device__ __forceinline__ void warpgroup_add_rows(float (*S)[4],
                                                          const float (*y)[4],
                                                          const bf16 *X)
{
    uint32_t a[4][1][4];
    #pragma unroll
    for (int c = 0; c < 4; c++) split_bf16<1>(a[c], y + 2 * c);
    wgmma_fence();
    #pragma unroll
    for (int c = 0; c < 4; c++)
        wgmma_m64n128k16_rs<1>(S, a[c][0],
                               smem_desc_mn_major(X) + c * DESC_STEP_MN_MAJOR);
    wgmma_commit();
    wgmma_wait<0>();
    fence_operand<16>(S);
}

// Loads y^T [64,64] from the swizzle128 tile X into the D layout of a warpgroup.
static __device__ __forceinline__ void ldmatrix_swizzled(float (*y)[4], const bf16 *X)
{
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    const int piece = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
    const char *at = (const char *)X + swizzle128_offset(row, piece);
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) {
        uint32_t r[4];
        ldmatrix_x4_trans(r, (const bf16 *)(at + c * 2048));
        #pragma unroll
        for (int j = 0; j < 8; j++)
            y[2 * c + j / 4][j % 4] =
                __uint_as_float(j % 2 ? r[j / 2] & 0xffff0000u : r[j / 2] << 16);
    }
}
