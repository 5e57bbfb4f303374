// cp_async.cuh -- sm_80: 16 bytes from global to shared memory, no register between.
// Book: chapter 04, "Tensor cores".
// Checked by: every variant that includes it.
// Next: mbarrier.cuh.
#ifndef KCP_TILE_CP_ASYNC_CUH
#define KCP_TILE_CP_ASYNC_CUH

#include "device.cuh"

static __device__ __forceinline__ uint32_t smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// 16 bytes from global to shared memory without registers; zeros when !there.
static __device__ __forceinline__ void cp_async_16(void *to, const void *from,
                                                   int there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most `left` of the newest groups are still under way.
template <int left>
static __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

#endif
