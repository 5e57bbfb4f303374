// omit_barriers.cuh -- mbarriers in a build that leaves out waits.
// Book: users.md, "Find a race".
//
// Part of omit.cuh's build. If a wait for an mbarrier is left out, other threads that
// arrive at this barrier tell which warps the wait is for: their role is OMIT_LATE.
#pragma once

static __device__ __forceinline__ int omit_is_left_out(unsigned bar)
{
    return omit_is_of_barrier() &&
           ((volatile unsigned char *)omission.bar)[bar / 8 % OMIT_BARS];
}

#include "omit_loads.cuh"

// Called by a thread that arrives at `bar`.
static __device__ __forceinline__ void omit_note_late(unsigned bar)
{
    if (omit_is_left_out(bar)) omission.role[omit_warp()] = OMIT_LATE;
}

// Ends the kernel, because a judge that waits for its time limit takes longer.
static __device__ __forceinline__ void omit_hang(void)
{
    *(volatile unsigned *)omission.hung = 1;
    __threadfence_system();
    __trap();
}

template <unsigned place>
static __device__ __forceinline__ void omit_mbarrier_wait(uint64_t *bar, int phase)
{
    const unsigned at = smem_addr(bar);
    if (omitted<place>()) {
        if (omit_is_of_barrier()) omission.bar[at / 8 % OMIT_BARS] = 1;
        return omit_skew();
    }
    jitter(5);                           // so that a thread can miss a phase
    const unsigned begin = omit_time();
    for (int done = 0; !done;) {
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 2000;\n"
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at), "r"(phase & 1) : "memory");
        if (done) break;
        omit_still_waits(at, omit_time() - begin);
        if (omit_time() - begin > 2000000000u) omit_hang();
    }
    jitter();
}

template <unsigned place>
static __device__ __forceinline__ int omit_mbarrier_test(uint64_t *bar, int phase)
{
    if (omitted<place>()) {
        if (omit_is_of_barrier()) omission.bar[smem_addr(bar) / 8 % OMIT_BARS] = 1;
        return 1;
    }
    const int done = mbarrier_test(bar, phase);
    if (!done) omit_still_waits(smem_addr(bar), 30000);
    return done;
}

template <unsigned place>
static __device__ __forceinline__ void omit_mbarrier_arrive(uint64_t *bar)
{
    omit_note_late(smem_addr(bar));
    if (omitted<place>()) omit_skew();
    else mbarrier_arrive(bar);
}

template <unsigned place>
static __device__ __forceinline__ void omit_warp_arrive(uint64_t *bar)
{
    omit_note_late(smem_addr(bar));
    if (omitted<place>()) omit_skew();
    else warp_arrive(bar);
}

template <unsigned place>
static __device__ __forceinline__ void omit_arrive_expect_tx(uint64_t *bar,
                                                             uint32_t bytes)
{
    omit_note_late(smem_addr(bar));
    if (omission.kind == OMIT_LATE_LOADS && omit_is_left_out(smem_addr(bar)) &&
        omit_issue_loads(smem_addr(bar)))
        __nanosleep(4000);
    if (omitted<place>()) omit_skew();
    else mbarrier_arrive_expect_tx(bar, bytes);
}

template <unsigned place>
static __device__ __forceinline__ void omit_cp_async_arrive(uint64_t *bar)
{
    omit_note_late(smem_addr(bar));
    if (omitted<place>()) return omit_skew();
    if (omission.copies) omit_dequeue(1, 0);     // all copies, also without a commit
    cp_async_mbarrier_arrive(bar);
}

// A warp that initializes barriers is late, so that the barrier that follows is needed.
static __device__ __forceinline__ void omit_mbarrier_init(uint64_t *bar, int count)
{
    if (omission.kind == OMIT_BARRIERS) jitter(2, 14);
    mbarrier_init(bar, count);
}

#define OMIT_PLACE(name) omit_place(#name, __FILE__, __LINE__)
#define mbarrier_init omit_mbarrier_init
#define mbarrier_arrive omit_mbarrier_arrive<OMIT_PLACE(mbarrier_arrive)>
#define warp_arrive omit_warp_arrive<OMIT_PLACE(warp_arrive)>
#define mbarrier_wait omit_mbarrier_wait<OMIT_PLACE(mbarrier_wait)>
#define mbarrier_test omit_mbarrier_test<OMIT_PLACE(mbarrier_test)>
#define mbarrier_arrive_expect_tx \
    omit_arrive_expect_tx<OMIT_PLACE(mbarrier_arrive_expect_tx)>
#define cp_async_mbarrier_arrive \
    omit_cp_async_arrive<OMIT_PLACE(cp_async_mbarrier_arrive)>
