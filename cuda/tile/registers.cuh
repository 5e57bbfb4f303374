// registers.cuh -- what the compiler may know of a register, and what it may move.
// Book: chapter 10, "Two kernels"; chapter 18.
// Checked by: every variant that includes it.
// Next: warp.cuh.
//
// None of these costs more than an instruction. They tell the compiler which values to
// make again instead of keeping them: a register that is kept is one that a tile lacks.
#ifndef KCP_TILE_REGISTERS_CUH
#define KCP_TILE_REGISTERS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

// x, of which the compiler knows nothing (no instruction): what is computed from it is
// computed here, and never taken over from before. By any thread.
static __device__ __forceinline__ int opaque(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

// threadIdx.x, read anew (mov %tid.x). By any thread.
static __device__ __forceinline__ int opaque_thread_id(void)
{
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

// The lane within its warp, read anew (mov %laneid). By any thread.
static __device__ __forceinline__ int lane_id(void)
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// The compiler moves no access to memory across this line (no instruction). It orders
// nothing on the chip: other threads see what a barrier or a fence shows them.
static __device__ __forceinline__ void compiler_fence(void)
{
    asm volatile("" ::: "memory");
}

// i * bytes in 64 bits by one instruction (mul.wide.s32); C's has five.
static __device__ __forceinline__ int64_t mul_wide(int i, int bytes)
{
    int64_t at;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(at) : "r"(i), "r"(bytes));
    return at;
}

// Row i of rows that lie `bytes` apart.
template <class X>
static __device__ __forceinline__ X *row_at(X *p, int i, int bytes)
{
    return (X *)((char *)p + mul_wide(i, bytes));
}

#endif
