// fragment.cuh -- a warp's fragments: from shared memory, to it, and turned.
// Book: chapter 04, "Tensor cores".
// Checked by: every variant that includes it.
// Next: mma.cuh.
#ifndef KCP_TILE_FRAGMENT_CUH
#define KCP_TILE_FRAGMENT_CUH

#include "cp_async.cuh"
#include "pack.cuh"

// Four 8 x 8 tiles from shared memory; lane 8 j + i points at row i of tile j.
static __device__ __forceinline__ void ldmatrix_x4(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}

// The same, each tile transposed on its way.
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}

// Four 8 x 8 tiles of bf16 from registers to shared memory, each transposed on its way;
// lane 8 j + i has the address of row i of tile j.
static __device__ __forceinline__ void stmatrix_x4_trans(bf16 *row, const uint32_t *r)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
            smem_addr(row)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

// An 8 x 8 tile of bf16, transposed between the lanes of a warp.
static __device__ __forceinline__ uint32_t movmatrix_trans(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Where lane's row pointer goes for four tiles of a row-major matrix, `pitch` apart:
// tiles (0,0), (8,0), (0,8), (8,8) as (row, column), or with the middle two swapped.
static __device__ __forceinline__ int ldmatrix_offset_a(int lane, int pitch)
{
    return (lane % 16) * pitch + lane / 16 * 8;
}

static __device__ __forceinline__ int ldmatrix_offset_b(int lane, int pitch)
{
    return (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
}

#endif
