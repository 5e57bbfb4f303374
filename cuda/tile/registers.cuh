// registers.cuh -- constraints on what the compiler keeps in registers and moves.
// Book: chapter 10, "Two kernels"; chapter 18.
// Checked by: every variant that includes it.  Next: warp.cuh.
//
// Each of these functions costs at most one instruction. Because of them the compiler
// recomputes a value instead of keeping the value in a register across a loop.
#ifndef KCP_TILE_REGISTERS_CUH
#define KCP_TILE_REGISTERS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

// Returns x as a value that the compiler cannot derive (no instruction): expressions of
// the result are computed here, and not reused from earlier code.
static __device__ __forceinline__ int opaque(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

// Returns threadIdx.x, read from the special register at every call (mov %tid.x).
static __device__ __forceinline__ int opaque_thread_id(void)
{
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

// Returns the lane number, read from the special register at every call (mov %laneid).
static __device__ __forceinline__ int lane_id(void)
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// The compiler moves no memory access across this call (no instruction). The call does
// not order accesses of different threads.
static __device__ __forceinline__ void compiler_fence(void)
{
    asm volatile("" ::: "memory");
}

// Returns i * bytes in 64 bits by one instruction (mul.wide.s32); plain C compiles to
// five.
static __device__ __forceinline__ int64_t mul_wide(int i, int bytes)
{
    int64_t at;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(at) : "r"(i), "r"(bytes));
    return at;
}

// Returns row i of an array of rows, row stride `bytes`.
template <class X>
static __device__ __forceinline__ X *row_at(X *p, int i, int bytes)
{
    return (X *)((char *)p + mul_wide(i, bytes));
}

#endif
