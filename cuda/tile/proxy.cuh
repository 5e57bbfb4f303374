// proxy.cuh -- the fence between threads and the asynchronous units (wgmma, TMA).
// Book: chapter 17, "A warpgroup".  Checked by: every variant that includes it.
// Next: tma.cuh.
#ifndef KCP_TILE_PROXY_CUH
#define KCP_TILE_PROXY_CUH

// fence.proxy.async.shared::cta. Threads and the asynchronous proxy (wgmma, TMA) access
// shared memory on different paths. Called by each thread before the barrier or arrival
// that lets the asynchronous unit start, it makes the thread's writes, cp.async copies
// included, visible to wgmma and TMA, and allows TMA to overwrite what the thread has
// read or written.
static __device__ __forceinline__ void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
