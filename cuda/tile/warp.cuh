// warp.cuh -- shuffles in program order, and 8-byte loads from shared memory.
// Book: chapter 15, "Code: kernels"; chapter 18.
#ifndef KCP_TILE_WARP_CUH
#define KCP_TILE_WARP_CUH

#include "cp_async.cuh"

// Returns x of lane ^ mask (shfl.sync.bfly), called by all lanes of a warp. The asm is
// volatile, so the compiler keeps several shuffles in program order and issues all
// shuffles before the first result is used.
static __device__ __forceinline__ float shfl_bfly_in_order(float x, int mask)
{
    float y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                 : "=f"(y) : "f"(x), "r"(mask));
    return y;
}

// Returns the eight bytes at p, a multiple of 8 (ld.shared.v2.b32), loaded again at
// every call. A barrier must separate the call from writes of these bytes.
static __device__ __forceinline__ uint2 ld_shared_v2(const void *p)
{
    uint2 y;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(y.x), "=r"(y.y)
                 : "r"(smem_addr(p)));
    return y;
}

#endif
