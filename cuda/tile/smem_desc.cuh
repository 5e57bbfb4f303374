// smem_desc.cuh -- what tells wgmma where an operand lies in shared memory.
// Book: chapter 17, "A warpgroup".
// Checked by: every variant that includes it.
// Next: wgmma.cuh.
#ifndef KCP_TILE_SMEM_DESC_CUH
#define KCP_TILE_SMEM_DESC_CUH

#include "cp_async.cuh"
#include "swizzle.cuh"

// The matrix descriptor of B (wgmma): the address, the distance of tiles and of groups
// of eight rows, in 16 bytes, and the swizzle of 128 bytes. X begins at a multiple of
// 1024 bytes. K-major: rows of X are B's columns (B = X^T); 16 columns of X a step, the
// next step 32 bytes on.
static __device__ __forceinline__ uint64_t smem_desc_k_major(const bf16 *X)
{
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (smem_addr(X) >> 4 & 0x3fff);
}

// MN-major: rows of X are B's rows (B = X); 16 rows of X a step, 2048 bytes on; a
// second tile, of X's next 64 columns, `tile` elements on.
static __device__ __forceinline__ uint64_t smem_desc_mn_major(
    const bf16 *X, int tile = SWIZZLE128_TILE)
{
    return 1ull << 62 | 64ull << 32 | (uint64_t)(tile / 8) << 16
           | (smem_addr(X) >> 4 & 0x3fff);
}

// What is added to a descriptor for the next step of 16, or for the next tile.
enum {
    DESC_STEP_K_MAJOR = 32 >> 4,
    DESC_STEP_MN_MAJOR = 2048 >> 4,
    DESC_NEXT_TILE = 2 * SWIZZLE128_TILE >> 4
};

#endif
