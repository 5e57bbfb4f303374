// proxy.cuh -- the fence between threads and the asynchronous proxy (wgmma, TMA).
// Book: chapter 17, "A warpgroup".
#pragma once

#include "jitter.cuh"

// fence.proxy.async.shared::cta, called by each thread before the barrier or arrival
// after which wgmma or TMA may start. Threads and the asynchronous proxy (wgmma, TMA)
// access shared memory on different paths. The fence makes the thread's writes,
// including its completed cp.async copies, visible to wgmma and TMA. After the fence,
// TMA may also overwrite what the thread has read or written.
static __device__ __forceinline__ void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
