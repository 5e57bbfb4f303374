// mbarrier.cuh -- mbarriers: barriers in shared memory that count arrivals and bytes.
// Book: chapter 17, "Warps with roles".
//
// A barrier counts phases 0, 1, ... A phase completes, and the next phase starts, when
// no arrivals and no announced bytes are pending. A wait compares only the parity of
// the phase, so a thread may wait for the current phase or the previous one, never for
// an older phase.
#pragma once

#include "cp_async.cuh"

// mbarrier.init, called by one thread: a phase completes after `count` arrivals. Other
// threads may use the barrier after __syncthreads. Before TMA or other blocks use the
// barrier, the thread must also call mbarrier_fence_init (tma.cuh).
static __device__ __forceinline__ void mbarrier_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(count)
                 : "memory");
}

// mbarrier.arrive: each calling thread makes one arrival. A thread that has waited for
// this phase sees what the arriving threads wrote before arriving.
static __device__ __forceinline__ void mbarrier_arrive(uint64_t *bar)
{
    jitter();
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smem_addr(bar))
                 : "memory");
}

// Makes one arrival for a whole warp, after all lanes' reads and writes. In the
// sanitizers' build, each lane arrives, because racecheck does not follow __syncwarp.
#ifdef KCP_FOR_SANITIZERS
enum { WARP_ARRIVALS = 32 };
#else
enum { WARP_ARRIVALS = 1 };
#endif

static __device__ __forceinline__ void warp_arrive(uint64_t *bar)
{
    __syncwarp();
    if (WARP_ARRIVALS == 32 || threadIdx.x % 32 == 0) mbarrier_arrive(bar);
}

// mbarrier.try_wait.parity, called by each waiting thread: waits until phase number
// `phase` (0, 1, ...) has completed.
static __device__ __forceinline__ void mbarrier_wait(uint64_t *bar, int phase)
{
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n }" ::"r"(smem_addr(bar)),
                 "r"(phase & 1)
                 : "memory");
    jitter();
}

// mbarrier.test_wait.parity, called by a whole warp: returns 1 in all lanes if phase
// number `phase` has completed, otherwise 0. Does not wait.
static __device__ __forceinline__ int mbarrier_test(uint64_t *bar, int phase)
{
    int y;
    asm volatile("{ .reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, p; }"
                 : "=r"(y) : "r"(smem_addr(bar)), "r"(phase & 1) : "memory");
    jitter();
    return __any_sync(~0u, y);
}

// elect.sync: returns 1 in one lane of the warp, and 0 in all other lanes.
static __device__ __forceinline__ int elect_sync(void)
{
    int y;
    asm volatile("{ .reg .pred p;\n elect.sync _|p, 0xffffffff;\n"
                 "selp.b32 %0, 1, 0, p; }" : "=r"(y));
    return y;
}

// mbarrier.arrive.expect_tx, called by the thread that issues the copies: makes one
// arrival and announces `bytes` more bytes. The phase does not complete before these
// bytes have arrived.
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t *bar,
                                                                 uint32_t bytes)
{
    jitter();
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)),
        "r"(bytes)
        : "memory");
}

// cp.async.mbarrier.arrive.noinc: makes one arrival per calling thread as soon as all
// earlier cp_async_16 copies of the thread have completed. The count passed to
// mbarrier_init includes these arrivals.
static __device__ __forceinline__ void cp_async_mbarrier_arrive(uint64_t *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_addr(bar))
                 : "memory");
}

#ifdef KCP_OMIT
#include "omit_barriers.cuh"
#endif
