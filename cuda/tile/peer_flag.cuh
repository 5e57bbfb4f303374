// peer_flag.cuh -- a counter in memory that another GPU sets after writing data.
// Book: chapter 20, "Code: kernels".
#ifndef KCP_TILE_PEER_FLAG_CUH
#define KCP_TILE_PEER_FLAG_CUH

#include "jitter.cuh"
#include <stdint.h>

// st.release.sys: sets the flag. A thread on any GPU that reads the new value by
// peer_flag_read also sees all writes that the calling thread made or saw before.
static __device__ __forceinline__ void peer_flag_raise(uint32_t *flag, uint32_t to)
{
    jitter();
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(to) : "memory");
}

// ld.acquire.sys: returns the flag.
static __device__ __forceinline__ uint32_t peer_flag_read(const uint32_t *flag)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(flag)
                 : "memory");
    return x;
}

// Called by one thread: waits until the flag reaches `to`, modulo 2^32, and returns 1.
// Returns 0 if the host sets *lost first.
static __device__ __forceinline__ int peer_flag_wait(const uint32_t *flag, uint32_t to,
                                                     const volatile int *lost)
{
    for (uint32_t spins = 1; (int32_t)(peer_flag_read(flag) - to) < 0; spins++)
        if (spins % 4096 == 0 && *lost) return 0;
    jitter();
    return 1;
}

#endif
