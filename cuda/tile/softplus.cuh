// softplus.cuh -- the softplus function to base two.
// Book: chapter 18.
#pragma once

#include "math.cuh"

// lg2.approx.ftz: returns log2(x). For x from 1 to 2 the error is below 2^-22.
static __device__ __forceinline__ float lg2_approx(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Returns log2(1 + e) for e >= 0, with a relative error below 2^-14.
static __device__ __forceinline__ float log2_1p(float e)
{
    const float c = 1.44269504088896341f;
    return e < 0x1p-8f ? e * fmaf(e, -c / 2.0f, c) : lg2_approx(1.0f + e);
}

// Returns log2(1 + 2^u); `e` is 2^-|u|. To base two, exp and log need no products, and
// their .ftz forms no tests for subnormal numbers. 1 + e loses digits of a small e.
static __device__ __forceinline__ float softplus_log2(float u, float e)
{
    const float c = 1.44269504088896341f;
    const float small = e * fmaf(e, fmaf(e, c / 3.0f, -c / 2.0f), c);
    return fmaxf(u, 0.0f) + (e < 0.01f ? small : lg2_approx(1.0f + e));
}

static __device__ __forceinline__ float softplus_log2(float u)
{
    return softplus_log2(u, ex2_approx(-fabsf(u)));
}
