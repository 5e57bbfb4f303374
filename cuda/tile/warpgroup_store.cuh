// warpgroup_store.cuh -- stores results of a warpgroup to global memory by whole rows.
// Book: chapter T, "Whole rows".
//
// Registers hold S^T, so direct stores would write only 32 bytes per row, and the
// load-store unit processes one row at a time. Therefore four warps transpose their 64
// columns in shared memory and write 128 bytes per row. Meanwhile the tensor core
// computes the next product.
#pragma once

#include "warpgroup_scan.cuh"

// Stores y^T [16,8 * tiles] of a warp, rounded to bf16, to the warp's 16 columns of a
// swizzle128 tile, in the layout that ldmatrix_swizzled reads.
template <int tiles>
static __device__ __forceinline__ void stmatrix_swizzled(bf16 *X, const float (*y)[4])
{
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    const int piece = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
    const uint32_t at = smem_addr((const char *)X + swizzle128_offset(row, piece));
    #pragma unroll
    for (int c = 0; c < tiles / 2; c++) {
        const uint32_t r[4] = { pack_bf16x2(y[2 * c][0], y[2 * c][1]),
                                pack_bf16x2(y[2 * c][2], y[2 * c][3]),
                                pack_bf16x2(y[2 * c + 1][0], y[2 * c + 1][1]),
                                pack_bf16x2(y[2 * c + 1][2], y[2 * c + 1][3]) };
        stmatrix_x4_trans(at + c * 2048, r);
    }
}

// The warpgroup copies rows < len of the swizzle128 tile X to rows `stride` apart.
template <int rows>
static __device__ __forceinline__ void copy_swizzled_rows(bf16 *to, int64_t stride,
                                                          int len, const bf16 *X)
{
    const int row = threadIdx.x % 128 / 8, piece = threadIdx.x % 8;
    const char *from = (const char *)X + swizzle128_offset(row, piece);
    #pragma unroll
    for (int i = 0; i < rows / 16; i++)
        if (row + 16 * i < len)
            *(uint4 *)(to + (row + 16 * i) * stride + piece * 8) =
                *(const uint4 *)(from + 2048 * i);
}

// Named barrier WARPGROUP_BARRIER + w synchronizes warpgroup w.
enum { WARPGROUP_BARRIER = 1 };

static __device__ __forceinline__ void warpgroup_sync(void)
{
    jitter();
    const int id = WARPGROUP_BARRIER + (int)threadIdx.x / 128;
    asm volatile("bar.sync %0, 128;" :: "r"(id) : "memory");
}

// Makes the compiler keep operand A in its registers until the products that read this
// operand are complete (no instruction).
static __device__ __forceinline__ void keep_operand(const uint32_t (*a)[1][4])
{
    #pragma unroll
    for (int c = 0; c < 4; c++)
        asm volatile("" :: "r"(a[c][0][0]), "r"(a[c][0][1]), "r"(a[c][0][2]),
                           "r"(a[c][0][3]) : "memory");
}

// Issues S^T [64,128] += y^T X, with y packed in a. The caller must call wgmma_fence
// first, and then wgmma_commit, wgmma_wait, keep_operand and fence_operand.
static __device__ __forceinline__ void warpgroup_add_rows_async(
    float (*S)[4], const uint32_t (*a)[1][4], const bf16 *X)
{
    #pragma unroll
    for (int c = 0; c < 4; c++)
        wgmma_m64n128k16_rs<1>(S, a[c][0],
                               smem_desc_mn_major(X) + c * DESC_STEP_MN_MAJOR);
}

#ifdef KCP_OMIT
#define warpgroup_sync() OMIT_BARRIER(warpgroup_sync)
#define copy_swizzled_rows omit_access(), copy_swizzled_rows
#endif
