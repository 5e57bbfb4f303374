// proxy.cuh -- shared memory has two ways in: threads, and the engines.
// Book: chapter 17, "A warpgroup".
// Checked by: every variant that includes it.
// Next: tma.cuh.
#ifndef KCP_TILE_PROXY_CUH
#define KCP_TILE_PROXY_CUH

// fence.proxy.async.shared::cta, by each thread that wrote, before the barrier or the
// arrival that lets the engine start. What this thread wrote to shared memory, copies
// that arrived included, becomes visible to the tensor core (wgmma) and the copy engine
// (TMA), which have another path there; and the engine may write where this thread has
// read or written.
static __device__ __forceinline__ void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
