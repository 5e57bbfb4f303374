// mma.cuh -- warp-level tensor-core products, sm_80 and later.
// Book: chapter 17, "The tensor core".
//
// A fragment is the part of a small matrix that a lane holds in registers. With g =
// lane / 4 and e = 2 (lane % 4), a lane holds the pair [g][e], [g][e+1] of an 8 x 8
// tile of bf16:
//   A  16 x 16   a[0] rows g, a[1] rows g+8, columns e;  a[2], a[3] columns e+8
//   B  16 x 8    b[0] rows e, e+1 of column g;  b[1] rows e+8, e+9
//   D  16 x 8    d[0], d[1] = [g][e], [g][e+1];  d[2], d[3] = [g+8][e], [g+8][e+1]
// Two tiles of D packed to bf16 have the layout of A, so the result of a product can be
// an operand of the next product without leaving the registers.
#pragma once

#include "fragment.cuh"
#include "math.cuh"

// mma.m16n8k16, called by a whole warp: d [16,8] += a [16,16] b [16,8], with bf16
// operands and fp32 accumulators.
static __device__ __forceinline__ void mma_m16n8k16(float *d, const uint32_t *a,
                                                    uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Computes d [16,16] += a [16,16] b [16,16]. `d[0]` and `d[1]` are two tiles, and b has
// the layout in which ldmatrix_x4 loads a 16 x 16 block.
static __device__ __forceinline__ void mma_m16n16k16(float (*d)[4], const uint32_t *a,
                                                     const uint32_t *b)
{
    mma_m16n8k16(d[0], a, b[0], b[1]);
    mma_m16n8k16(d[1], a, b[2], b[3]);
}
