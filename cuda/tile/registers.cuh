// registers.cuh -- functions that save registers or instructions, and a compiler fence.
// Book: chapter T, "Two kernels"; chapter 18.
//
// Each function of this file costs at most one instruction. With `opaque`, the compiler
// recomputes a value instead of keeping it in a register across a loop.
#ifndef KCP_TILE_REGISTERS_CUH
#define KCP_TILE_REGISTERS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

// Returns x, but the compiler treats the result as unknown (no instruction). So the
// compiler recomputes expressions that use the result.
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

// Prevents the compiler from moving memory accesses across this call (no instruction).
// The call does not order accesses of different threads.
static __device__ __forceinline__ void compiler_fence(void)
{
    asm volatile("" ::: "memory");
}

// Returns i * bytes in 64 bits by one instruction (mul.wide.s32). The plain C
// expression takes five instructions.
static __device__ __forceinline__ int64_t mul_wide(int i, int bytes)
{
    int64_t at;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(at) : "r"(i), "r"(bytes));
    return at;
}

// Returns the address of row i of an array whose rows are `bytes` bytes apart.
template <class X>
static __device__ __forceinline__ X *row_at(X *p, int i, int bytes)
{
    return (X *)((char *)p + mul_wide(i, bytes));
}

#endif
