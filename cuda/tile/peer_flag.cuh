// peer_flag.cuh -- a number that another GPU raises when what it wrote here is whole.
// Book: chapter 20, "Code: kernels".
// Checked by: every form of the exchange over NCCL, bench/gpu_faults.sh.
// Next: ../07_merge/hop.cuh.
#ifndef KCP_TILE_PEER_FLAG_CUH
#define KCP_TILE_PEER_FLAG_CUH

#include "jitter.cuh"
#include <stdint.h>

// st.release.sys: what this thread wrote or has seen before, on any GPU, is there for
// whoever reads the number with peer_flag_read.
static __device__ __forceinline__ void peer_flag_raise(uint32_t *flag, uint32_t to)
{
    jitter();
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(to) : "memory");
}

// ld.acquire.sys.
static __device__ __forceinline__ uint32_t peer_flag_read(const uint32_t *flag)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(flag)
                 : "memory");
    return x;
}

// By one thread: until the flag has come to `to`, counted modulo 2^32; or until `lost`,
// which the host writes, is not 0. Returns 0 then.
static __device__ __forceinline__ int peer_flag_wait(const uint32_t *flag, uint32_t to,
                                                     const volatile int *lost)
{
    for (uint32_t spins = 1; (int32_t)(peer_flag_read(flag) - to) < 0; spins++)
        if (spins % 4096 == 0 && *lost) return 0;
    jitter();
    return 1;
}

#endif
