// mma_tf32.cuh -- fp32 products on the tensor core: each fp32 is split into two tf32.
// Book: chapter 15, "Code: kernels"; chapter 19.
//
// Fragments, with g = lane / 4 and e = lane % 4: A 16 x 8 has a[0] = [g][e], a[1] =
// [g+8][e], a[2] = [g][e+4], a[3] = [g+8][e+4]; B 8 x 8 has b[0] = [e][g], b[1] =
// [e+4][g]; D has the layout of mma.cuh.
#pragma once

#include <cuda_runtime.h>

// cvt.rna.tf32: returns x rounded to 11 significant bits.
static __device__ __forceinline__ uint32_t cvt_rna_tf32(float x)
{
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

// Splits x into big + small, each rounded to 11 significant bits.
static __device__ __forceinline__ void split_tf32(float x, uint32_t *big,
                                                  uint32_t *small)
{
    *big = cvt_rna_tf32(x);
    *small = cvt_rna_tf32(x - __uint_as_float(*big));
}

// mma.m16n8k8, called by a whole warp: d [16,8] += a [16,8] b [8,8], with tf32 operands
// and fp32 accumulators.
static __device__ __forceinline__ void mma_m16n8k8_tf32(float *d, const uint32_t *a,
                                                        const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
