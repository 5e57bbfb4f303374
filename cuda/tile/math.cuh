// math.cuh -- what the special function unit computes, roughly and quickly.
// Book: chapter 18.
// Checked by: every variant that includes it.
// Next: pack.cuh.
#ifndef KCP_TILE_MATH_CUH
#define KCP_TILE_MATH_CUH

#include <cuda_runtime.h>

// ex2.approx.ftz: 2^x to 2 ulp; below 2^-126 it is 0.
static __device__ __forceinline__ float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// rcp.approx.ftz: 1/x to 1 ulp; of what is above 2^126 it is 0.
static __device__ __forceinline__ float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
