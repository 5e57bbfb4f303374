// warp_scan.cuh -- a state in the registers of a warp, for stages 04, 05, 09 and 11.
// Book: chapter T, "Chapter 04: the scan".
//
// A warp holds 16 columns of a state S [K,V] as D tiles of S^T (rows v, columns i). In
// S^T X^T, where X has the rows of a chunk, S^T is operand A. The packed result is
// operand A of the state's update. So a warp never needs another warp's columns. All
// warps of a block read the same X from shared memory.
#ifndef KCP_TILE_WARP_SCAN_CUH
#define KCP_TILE_WARP_SCAN_CUH

#include "decay.cuh"

// Converts 16 columns of y (two D tiles) to operand A, as a sum of `pieces` bf16 terms.
template <int pieces>
static __device__ __forceinline__ void split_bf16(uint32_t (*a)[4], const float (*y)[4])
{
    float rest[8] = { y[0][0], y[0][1], y[0][2], y[0][3],
                      y[1][0], y[1][1], y[1][2], y[1][3] };
    #pragma unroll
    for (int p = 0; p < pieces; p++)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            a[p][j] = pack_bf16x2(rest[2 * j], rest[2 * j + 1]);
            if (p + 1 < pieces) unpack_residual(a[p][j], rest[2 * j], rest[2 * j + 1]);
        }
}

// Computes y^T [16,rows] += S^T [16,K] X^T, X [rows,K] in shared memory. S is split
// into a sum of bf16 pieces: one piece rounds S, three pieces keep all bits of an fp32.
// X is already bf16.
template <int K, int pieces, int rows = CHUNK>
static __device__ __forceinline__ void times_rows(float (*y)[4], const float (*S)[4],
                                                  const bf16 *X)
{
    const bf16 *row = X + ldmatrix_offset_b(threadIdx.x % 32, K + PAD);
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        uint32_t a[pieces][4];
        split_bf16<pieces>(a, S + 2 * i);
        #pragma unroll
        for (int c = 0; c < rows / 16; c++) {
            uint32_t b[4];
            ldmatrix_x4(b, row + c * 16 * (K + PAD) + i * 16);
            #pragma unroll
            for (int p = 0; p < pieces; p++) mma_m16n16k16(y + 2 * c, a[p], b);
        }
    }
}

// Computes S^T [16,K] += y^T [16,rows] X, where y is split into a sum of bf16 pieces.
template <int K, int pieces, int rows = CHUNK>
static __device__ __forceinline__ void add_rows_to(float (*S)[4], const float (*y)[4],
                                                   const bf16 *X)
{
    const bf16 *row = X + ldmatrix_offset_a(threadIdx.x % 32, K + PAD);
    #pragma unroll
    for (int c = 0; c < rows / 16; c++) {
        uint32_t a[pieces][4];
        split_bf16<pieces>(a, y + 2 * c);
        #pragma unroll
        for (int i = 0; i < K / 16; i++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, row + c * 16 * (K + PAD) + i * 16);
            #pragma unroll
            for (int p = 0; p < pieces; p++) mma_m16n16k16(S + 2 * i, a[p], b);
        }
    }
}

// Like add_rows_to, but sums over the chunk in a separate accumulator. The tensor core
// rounds sums towards 0, which would bias a state that is accumulated over many chunks.
template <int K, int pieces, int rows = CHUNK>
static __device__ __forceinline__ void add_sum_of_rows_to(float (*S)[4],
                                                          const float (*y)[4],
                                                          const bf16 *X)
{
    const bf16 *row = X + ldmatrix_offset_a(threadIdx.x % 32, K + PAD);
    uint32_t a[rows / 16][pieces][4];
    #pragma unroll
    for (int c = 0; c < rows / 16; c++) split_bf16<pieces>(a[c], y + 2 * c);
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        float sum[2][4] = {};
        #pragma unroll
        for (int c = 0; c < rows / 16; c++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, row + c * 16 * (K + PAD) + i * 16);
            #pragma unroll
            for (int p = 0; p < pieces; p++) mma_m16n16k16(sum, a[c][p], b);
        }
        #pragma unroll
        for (int j = 0; j < 8; j++) S[2 * i + j / 4][j % 4] += sum[j / 4][j % 4];
    }
}

#endif
