// mbarrier.cuh -- barriers in shared memory: so many arrivals, or bytes, end a phase.
// Book: chapter 18.
// Checked by: every variant that includes it.
// Next: tma.cuh.
#ifndef KCP_TILE_MBARRIER_CUH
#define KCP_TILE_MBARRIER_CUH

#include "cp_async.cuh"

// ---- barriers in shared memory: `count` arrivals, or a turn, open one
static __device__ __forceinline__ void mbarrier_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(count)
                 : "memory");
}

static __device__ __forceinline__ void mbarrier_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smem_addr(bar))
                 : "memory");
}

// Until turn number `turn` (0, 1, ...) of the barrier is over.
static __device__ __forceinline__ void mbarrier_wait(uint64_t *bar, int turn)
{
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n }" ::"r"(smem_addr(bar)),
                 "r"(turn & 1)
                 : "memory");
}

// Arrive, and announce so many bytes of copies: the turn is over when they are there.
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t *bar,
                                                                 uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)),
        "r"(bytes)
        : "memory");
}

// An arrival of this thread, once the copies are there that cp_async_16 asked for.
static __device__ __forceinline__ void cp_async_mbarrier_arrive(uint64_t *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_addr(bar))
                 : "memory");
}

#endif
