// pack.cuh -- pairs of bf16 in one 32-bit register.
// Book: chapter 17, "The tensor core".
#pragma once

#include "device.cuh"

// Packs two floats, rounded to bf16 (cvt.rn.bf16x2), with `low` in the low half.
static __device__ __forceinline__ uint32_t pack_bf16x2(float low, float high)
{
    const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&x;
}

// bf16x2_low and bf16x2_high convert one half of a pair to float, which is exact.
static __device__ __forceinline__ float bf16x2_low(uint32_t x)
{
    return __uint_as_float(x << 16);
}

static __device__ __forceinline__ float bf16x2_high(uint32_t x)
{
    return __uint_as_float(x & 0xffff0000u);
}

// Subtracts the packed pair p from `low` and `high`, which leaves the rounding errors.
static __device__ __forceinline__ void unpack_residual(uint32_t p, float &low,
                                                       float &high)
{
    low -= bf16x2_low(p);
    high -= bf16x2_high(p);
}

// Rounds an accumulator to bf16, as operand A of the next product.
template <int tiles>
static __device__ __forceinline__ void pack_accumulator(uint32_t (*a)[4],
                                                        const float (*d)[4])
{
    #pragma unroll
    for (int i = 0; i < tiles * 2; i++)
        a[i / 4][i % 4] = pack_bf16x2(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
}
