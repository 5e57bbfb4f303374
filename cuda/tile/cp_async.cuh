// cp_async.cuh -- sm_80: asynchronous copies of 16 bytes from global to shared memory.
// Book: chapter 17, "Copies in the background".
#pragma once

#include "device.cuh"

// Converts a pointer to a shared-memory address for PTX instructions.
static __device__ __forceinline__ uint32_t smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// cp.async.cg: each thread copies 16 bytes. Both addresses are multiples of 16. If
// `there` is 0, `to` is filled with zeros and `from` is not read. A barrier must
// separate this call from earlier reads of `to`.
static __device__ __forceinline__ void cp_async_16(void *to, const void *from,
                                                   int there)
{
    jitter(6);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

// cp.async.commit_group: groups this thread's copies since the thread's last commit.
static __device__ __forceinline__ void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// cp.async.wait_group: waits until at most `left` groups of this thread are in flight.
// A barrier must follow before other threads read the data.
template <int left>
static __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
    jitter();
}

#ifdef KCP_OMIT
#include "omit_copies.cuh"
#endif
