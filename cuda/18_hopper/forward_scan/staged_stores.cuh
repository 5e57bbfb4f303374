// staged_stores.cuh -- h and v_new of a scan, staged in tiles and stored by TMA.
// Book: chapter 18c.
#pragma once

#include "products.cuh"
#include "cuda/tile/warpgroup_store.cuh"

// A scan stores two results per chunk in bf16 for backward's finishing kernel: h, the
// state before the chunk, and v_new. Both are already in registers, as operand A of the
// scan's products. They are staged in tiles in shared memory and stored by TMA.

// Stores operand A [64, 16 * steps] transposed: a row of a tile is a column of the
// operand. Each warp writes 16 of a row's 64 columns.
template <int steps>
static __device__ __forceinline__ void store_operand_transposed(
    unsigned char *to, const uint32_t (*a)[4])
{
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    const uint32_t at = smem_addr(
        to + swizzle128_offset(row, threadIdx.x / 32 % 4 * 2 + lane / 8 % 2));
    #pragma unroll
    for (int i = 0; i < steps; i++) stmatrix_x4_trans(at + i * 2048, a[i]);
}

// One thread stores a staged tile to global memory. In the sanitizers' build the thread
// itself copies the tile: initcheck does not see TMA stores, so it would report every
// later read of the tile.
static __device__ __forceinline__ void tma_store_tile(unsigned char *to,
                                                      const unsigned char *from)
{
#ifdef KCP_FOR_SANITIZERS
    for (int i = 0; i < TILE_BYTES / 16; i++)
        ((uint4 *)to)[i] = ((const uint4 *)from)[i];
#else
    tma_store_1d(to, from, TILE_BYTES);
#endif
}

// One thread stores a warpgroup's 64 columns of a state from K / 64 tiles.
template <int K>
static __device__ __forceinline__ void tma_store_state(
    unsigned char *to, int column, int columns, const unsigned char (*from)[TILE_BYTES])
{
    #pragma unroll
    for (int i = 0; i < K / 64; i++)
        tma_store_tile(to + (i * columns + column) * TILE_BYTES, from[i]);
}

// All threads of the warpgroup wait until TMA has read the previous chunk's tiles. Then
// the warpgroup may overwrite these tiles.
static __device__ __forceinline__ void staged_wait_read(void)
{
    if (threadIdx.x % 128 == 0) tma_store_wait_read();
    warpgroup_sync();
}

// All threads of the warpgroup make staged tiles visible to TMA, for later stores.
static __device__ __forceinline__ void staged_publish(void)
{
    fence_proxy_async();
    warpgroup_sync();
}

// The policy of a scan that does not store h and v_new.
struct keeps_nothing {
    __device__ __forceinline__ void stage_h(const uint32_t (*)[4]) {}
    __device__ __forceinline__ void send_h(void) {}
    __device__ __forceinline__ void send_v_new(const uint32_t (*)[4]) {}
    __device__ __forceinline__ void finish(void) {}
};
