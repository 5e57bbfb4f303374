// typed.cuh -- loads and stores of numbers whose type a call chooses.
// Book: chapter 18.
#pragma once

#include <cuda_fp16.h>

#include "pack.cuh"

// KCP_AS_Q is bf16. Every thread of a launch passes the same `type`, so branches are
// uniform. Loading and converting are separate functions, so that several loads can be
// in flight before the first conversion.

// Loads element i of `x`, 32 or 16 bits.
static __device__ __forceinline__ uint32_t load_bits(const void *x, int64_t i,
                                                     enum kcp_type type)
{
    return type == KCP_TYPE_F32 ? ((const uint32_t *)x)[i]
                                : ((const unsigned short *)x)[i];
}

static __device__ __forceinline__ float float_of_bits(uint32_t bits, enum kcp_type type)
{
    if (type == KCP_TYPE_F32) return __uint_as_float(bits);
    if (type == KCP_TYPE_F16) return __half2float(__ushort_as_half(bits));
    return __uint_as_float(bits << 16);
}

// Rounds y to `type` and stores it as element i of `x`.
static __device__ __forceinline__ void store_number(void *x, int64_t i,
                                                    enum kcp_type type, float y)
{
    if (type == KCP_TYPE_F32) ((float *)x)[i] = y;
    else if (type == KCP_TYPE_F16) ((__half *)x)[i] = __float2half_rn(y);
    else ((bf16 *)x)[i] = __float2bfloat16_rn(y);
}

// The C type of a number.
template <enum kcp_type of> struct number_of { typedef bf16 type; };
template <> struct number_of<KCP_TYPE_F32> { typedef float type; };
template <> struct number_of<KCP_TYPE_F16> { typedef __half type; };

// Converts a pair of bf16 or fp16 to floats, which is exact.
template <enum kcp_type type>
static __device__ __forceinline__ float2 unpack_pair(uint32_t pair)
{
    if (type == KCP_TYPE_F16) return __half22float2(*(const __half2 *)&pair);
    return make_float2(bf16x2_low(pair), bf16x2_high(pair));
}

// Converts numbers of fp16 to bf16, or back (`to` is KCP_TYPE_F16). Both round to
// nearest. A number of bf16 beyond the range of fp16 becomes infinite.
template <enum kcp_type to>
static __device__ __forceinline__ uint32_t converted(uint32_t x)
{
    if (to == KCP_TYPE_F16) {
        const __half2 y = __floats2half2_rn(bf16x2_low(x), bf16x2_high(x));
        return *(const uint32_t *)&y;
    }
    const float2 wide = unpack_pair<KCP_TYPE_F16>(x);
    return pack_bf16x2(wide.x, wide.y);
}

template <enum kcp_type to>
static __device__ __forceinline__ uint16_t converted(uint16_t x)
{
    return (uint16_t)converted<to>((uint32_t)x);
}

template <enum kcp_type to>
static __device__ __forceinline__ uint2 converted(uint2 x)
{
    return make_uint2(converted<to>(x.x), converted<to>(x.y));
}

template <enum kcp_type to>
static __device__ __forceinline__ uint4 converted(uint4 x)
{
    return make_uint4(converted<to>(x.x), converted<to>(x.y), converted<to>(x.z),
                      converted<to>(x.w));
}
