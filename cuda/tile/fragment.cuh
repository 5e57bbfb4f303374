// fragment.cuh -- mma fragments: loads from shared memory, stores, transposition.
// Book: chapter 17, "ldmatrix"; chapter T, "Chapter 04: the scan".
//
// Each function of this file is called by a whole warp (.sync.aligned). A barrier must
// separate a load from other threads' writes to the same addresses, and a store from
// other threads' reads.
#pragma once

#include "cp_async.cuh"
#include "pack.cuh"

// ldmatrix.m8n8.x4.b16 loads four 8 x 8 tiles. Lane 8 j + i passes the address of the
// 16 bytes of row i of tile j. Lane l receives, in r[j], columns 2 (l % 4) and 2 (l %
// 4) + 1 of row l / 4 of tile j.
static __device__ __forceinline__ void ldmatrix_x4(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}

// ldmatrix.trans: like ldmatrix_x4, but transposes each tile.
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}

// stmatrix.m8n8.x4.trans.b16 (sm_90) stores four 8 x 8 tiles, each transposed. Lane 8 j
// + i passes the address of row i of tile j.
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

// movmatrix.m8n8.trans.b16: transposes an 8 x 8 tile of bf16 across the lanes.
static __device__ __forceinline__ uint32_t movmatrix_trans(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Each returns the element offset of the row that a lane passes to ldmatrix for a 16 x
// 16 block of a row-major matrix with row stride `pitch`. 8 x 8 tiles at (row, column):
//   _a  (0,0), (8,0), (0,8), (8,8), for operand A, or for B by ldmatrix_x4_trans
//   _b  (0,0), (0,8), (8,0), (8,8), for operand B, or for A by ldmatrix_x4_trans
static __device__ __forceinline__ int ldmatrix_offset_a(int lane, int pitch)
{
    return (lane % 16) * pitch + lane / 16 * 8;
}

static __device__ __forceinline__ int ldmatrix_offset_b(int lane, int pitch)
{
    return (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
}

#ifdef KCP_OMIT
#define stmatrix_x4_trans(...) (omit_access(), stmatrix_x4_trans(__VA_ARGS__))
#endif
