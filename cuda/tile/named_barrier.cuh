// named_barrier.cuh -- named barriers: synchronize some warps of a block.
// Book: chapter 17, "Warps with roles"; chapter 18.
#pragma once

#include "jitter.cuh"

// bar.sync on barrier `id` (1 to 15; 0 is __syncthreads): waits until `threads`
// threads, a multiple of 32, have arrived. After bar.sync, each of these threads sees
// what the other threads wrote before arriving.
static __device__ __forceinline__ void named_barrier_sync(int id, int threads)
{
    jitter();
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// bar.arrive: counts this warp's threads as arrived, and returns without waiting.
static __device__ __forceinline__ void named_barrier_arrive(int id, int threads)
{
    jitter();
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#ifdef KCP_OMIT
#define named_barrier_sync(...) OMIT_BARRIER(named_barrier_sync, __VA_ARGS__)
#define named_barrier_arrive OMIT(named_barrier_arrive)
#endif
