// mbarrier.cuh -- barriers in shared memory: so many arrivals, or bytes, end a phase.
// Book: chapter 17, "Warps with roles".
// Checked by: every variant that includes it.
// Next: tma.cuh.
//
// A barrier counts phases 0, 1, ... A phase ends when its arrivals are all there and so
// are the bytes that were announced; the next one begins by itself. A thread may wait
// for the phase that is under way or the one before it, for only the parity is
// compared.
#ifndef KCP_TILE_MBARRIER_CUH
#define KCP_TILE_MBARRIER_CUH

#include "cp_async.cuh"

// mbarrier.init: `count` arrivals end a phase. By one thread; others use the barrier
// after __syncthreads, the copy engine after mbarrier_fence_init too (tma.cuh).
static __device__ __forceinline__ void mbarrier_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(count)
                 : "memory");
}

// mbarrier.arrive, one arrival a calling thread. What it wrote before is seen by
// whoever has waited for this phase.
static __device__ __forceinline__ void mbarrier_arrive(uint64_t *bar)
{
    jitter();
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smem_addr(bar))
                 : "memory");
}

// mbarrier.try_wait.parity, by each thread that must know: until phase number `phase`
// (0, 1, ...) is over.
static __device__ __forceinline__ void mbarrier_wait(uint64_t *bar, int phase)
{
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n }" ::"r"(smem_addr(bar)),
                 "r"(phase & 1)
                 : "memory");
    jitter();
}

// mbarrier.arrive.expect_tx, by the thread that starts the copies: an arrival, and so
// many bytes that the phase waits for.
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t *bar,
                                                                 uint32_t bytes)
{
    jitter();
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)),
        "r"(bytes)
        : "memory");
}

// cp.async.mbarrier.arrive.noinc: an arrival of the calling thread, made when all that
// it asked of cp_async_16 is there. It counts among mbarrier_init's.
static __device__ __forceinline__ void cp_async_mbarrier_arrive(uint64_t *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_addr(bar))
                 : "memory");
}

#endif
