// math.cuh -- approximate functions of the special function unit, and a maximum.
// Book: chapter 18.
#pragma once

#include <cuda_runtime.h>

// ex2.approx.ftz: returns 2^x with an error of 2 ulp, and 0 for results below 2^-126.
static __device__ __forceinline__ float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// rcp.approx.ftz: returns 1/x with an error of 1 ulp, and 0 for x above 2^126.
static __device__ __forceinline__ float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// max.NaN: returns the larger argument, or NaN if an argument is NaN. For a NaN and a
// number, fmaxf would return the number.
static __device__ __forceinline__ float max_or_nan(float x, float y)
{
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
    return x;
}
