// staged_stores.cuh -- a scan's states and v_new on their way to memory, by tiles.
// Book: chapter 18, "Backward".
// Checked by: tests/08_forward/checks.c, tests/13_backward/checks.c.
// Next: scan_sm90.cu; ../backward/states.cuh.
#ifndef KCP_SCAN_STAGED_STORES_CUH
#define KCP_SCAN_STAGED_STORES_CUH

#include "products.cuh"
#include "cuda/tile/warpgroup_store.cuh"

// What a scan leaves of every chunk for the kernel that finishes backward: h, when it
// has become operand A of the first product, and v_new, when it has become that of the
// last. Both are staged in tiles and go by the copy engine.

// Operand A in registers, [64 v, 16 steps], to tiles of its transpose: a row of a tile
// is a column of the operand, and this warp has 16 of its 64 columns.
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

// A staged tile to memory, by one thread. initcheck does not see what the copy engine
// stores, and the kernels after this one read it: in the sanitizers' build the thread
// copies.
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

// A warpgroup's 64 columns of a state, staged in K / 64 tiles, to memory by one thread.
template <int K>
static __device__ __forceinline__ void tma_store_state(
    unsigned char *to, int column, int columns, const unsigned char (*from)[TILE_BYTES])
{
    #pragma unroll
    for (int i = 0; i < K / 64; i++)
        tma_store_tile(to + (i * columns + column) * TILE_BYTES, from[i]);
}

// Tiles of the chunk before have left. All threads of the warpgroup.
static __device__ __forceinline__ void wait_for_stores(void)
{
    if (threadIdx.x % 128 == 0) tma_store_wait_read();
    warpgroup_sync();
}

// Staged tiles are whole: behind this one thread may send them.
static __device__ __forceinline__ void show_stores(void)
{
    fence_proxy_async();
    warpgroup_sync();
}

#endif
