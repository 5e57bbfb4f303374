// named_barrier.cuh -- some warps of a block meet, while others go on.
// Book: chapter 17, "Warps with roles"; chapter 18.
// Checked by: every variant that includes it.
// Next: setmaxnreg.cuh.
#ifndef KCP_TILE_NAMED_BARRIER_CUH
#define KCP_TILE_NAMED_BARRIER_CUH

// bar.sync: until `threads` threads, a multiple of 32, have come to barrier `id`, 1 to
// 15; 0 is __syncthreads. What they wrote before is seen by all of them after.
static __device__ __forceinline__ void named_barrier_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// bar.arrive: counts this warp's threads too, and does not wait.
static __device__ __forceinline__ void named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif
