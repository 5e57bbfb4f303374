// fragment.cuh -- a warp's fragments: from shared memory, to it, and transposed.
// Book: chapter 17, "ldmatrix"; chapter 04, "Tensor cores".
// Checked by: every variant that includes it.
// Next: mma.cuh.
//
// All of these are called by a whole warp (.sync.aligned). What they read others wrote
// before a barrier; what they write others read after one.
#ifndef KCP_TILE_FRAGMENT_CUH
#define KCP_TILE_FRAGMENT_CUH

#include "cp_async.cuh"
#include "pack.cuh"

// ldmatrix.m8n8.x4.b16: four 8 x 8 tiles; lane 8 j + i points at row i of tile j, 16
// bytes. Of tile j lane l gets row l / 4, columns 2 (l % 4) and the next, in r[j].
static __device__ __forceinline__ void ldmatrix_x4(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}

// ldmatrix.trans: the same, each tile transposed on its way.
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}

// stmatrix.m8n8.x4.trans.b16, sm_90: four 8 x 8 tiles to shared memory, each transposed
// on its way; lane 8 j + i gives the address of row i of tile j.
static __device__ __forceinline__ void stmatrix_x4_trans(uint32_t row,
                                                         const uint32_t *r)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
            row),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

static __device__ __forceinline__ void stmatrix_x4_trans(bf16 *row, const uint32_t *r)
{
    stmatrix_x4_trans(smem_addr(row), r);
}

// movmatrix.m8n8.trans.b16: an 8 x 8 tile of bf16, transposed between the lanes.
static __device__ __forceinline__ uint32_t movmatrix_trans(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Where a lane's row pointer goes for the four tiles of a 16 x 16 block of a row-major
// matrix, rows `pitch` elements apart. As A, or as B with _trans: tiles (0,0), (8,0),
// (0,8), (8,8) as (row, column). As B, or as A with _trans: the middle two swapped.
static __device__ __forceinline__ int ldmatrix_offset_a(int lane, int pitch)
{
    return (lane % 16) * pitch + lane / 16 * 8;
}

static __device__ __forceinline__ int ldmatrix_offset_b(int lane, int pitch)
{
    return (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
}

#endif
