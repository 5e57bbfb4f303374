// smem_desc.cuh -- matrix descriptors of wgmma operands in shared memory.
// Book: chapter 17, "A warpgroup".
#pragma once

#include "cp_async.cuh"
#include "swizzle.cuh"

// The swizzle mode of a matrix descriptor (bits 62 and 63).
enum smem_swizzle { SWIZZLE_128_BYTES = 1, SWIZZLE_32_BYTES = 3 };

// Returns the descriptor of an operand at X, a multiple of 1024 bytes. Bits 0 to 13
// hold the address, bits 16 to 29 the leading offset, bits 32 to 45 the stride offset,
// all in units of 16 bytes. The arguments are in bytes. K-major: `stride` is the
// distance between groups of 8 rows, and `leading` is not read. MN-major: `leading` is
// the distance between blocks along M or N, each as wide as the swizzle, and `stride`
// is the distance between groups of 8 along K.
static __device__ __forceinline__ uint64_t smem_desc(const void *X,
                                                     enum smem_swizzle swizzle,
                                                     int leading, int stride)
{
    return (uint64_t)swizzle << 62 | (uint64_t)(stride / 16) << 32
           | (uint64_t)(leading / 16) << 16 | (smem_addr(X) >> 4 & 0x3fff);
}

// Returns the descriptor of a K-major swizzle128 tile: rows of X are columns of B (B =
// X^T). The next step of 16 along K starts 16 columns of X (32 bytes) further.
static __device__ __forceinline__ uint64_t smem_desc_k_major(const bf16 *X)
{
    return smem_desc(X, SWIZZLE_128_BYTES, 16, 1024);
}

// Returns the descriptor of an MN-major swizzle128 tile: rows of X are rows of B (B =
// X). The next step of 16 along K starts 16 rows of X (2048 bytes) further. A second
// tile, `tile` elements after the first, holds the next 64 columns of X.
static __device__ __forceinline__ uint64_t smem_desc_mn_major(
    const bf16 *X, int tile = SWIZZLE128_TILE)
{
    return smem_desc(X, SWIZZLE_128_BYTES, 2 * tile, 1024);
}

// Increments of a descriptor, in units of 16 bytes, that advance to the next step of 16
// along K or to the next tile.
enum {
    DESC_STEP_K_MAJOR = 32 >> 4,
    DESC_STEP_MN_MAJOR = 2048 >> 4,
    DESC_NEXT_TILE = 2 * SWIZZLE128_TILE >> 4
};
