// cp_async.cuh -- sm_80: 16 bytes from global to shared memory, no register between.
// Book: chapter 17, "Copies in the background".
// Checked by: every variant that includes it.
// Next: mbarrier.cuh.
#ifndef KCP_TILE_CP_ASYNC_CUH
#define KCP_TILE_CP_ASYNC_CUH

#include "device.cuh"

// The address of a place in shared memory, as PTX counts it.
static __device__ __forceinline__ uint32_t smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// cp.async.cg, by each thread for itself: 16 bytes, both ends aligned to 16; zeros when
// !there, and then `from` is not read. Before: whoever read `to` is done (a barrier).
static __device__ __forceinline__ void cp_async_16(void *to, const void *from,
                                                   int there)
{
    jitter(6);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

// cp.async.commit_group: this thread's copies since the last one are a group.
static __device__ __forceinline__ void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// cp.async.wait_group: until at most `left` of this thread's newest groups are still
// under way. Other threads' copies are there after a barrier that follows.
template <int left>
static __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

#endif
