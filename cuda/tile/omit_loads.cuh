// omit_loads.cuh -- TMA loads that are as late as the rules allow.
// Book: users.md, "Find a race".
//
// Part of omit.cuh's build. TMA completes loads mostly in the order of their issue, so
// a wait for a later load also protects an earlier one, which PTX does not promise.
// With OMIT_LATE_LOADS, a load for a barrier whose wait is left out is only remembered.
// The load is issued when another thread has waited 5 us for this barrier or 30 us for
// any barrier of the block, or when the next bytes are announced at the barrier.
#pragma once

enum { OMIT_FREE, OMIT_TAKEN, OMIT_PENDING };

// `channel` is -1 for contiguous bytes.
struct omit_load {
    unsigned state, key, to, bar, bytes;
    int channel, n, t;
    unsigned long long from;
};

static __device__ __forceinline__ struct omit_load *omit_loads_here(unsigned *key)
{
    return omission.loads + omit_block(OMIT_BLOCKS, key) * OMIT_LOADS;
}

// Issues the block's loads for `bar` (0: for all barriers). Returns 1 if there are any.
static __device__ __forceinline__ int omit_issue_loads(unsigned bar)
{
    unsigned key;
    int any = 0;
    struct omit_load *s = omit_loads_here(&key);
    #pragma unroll 1
    for (int i = 0; i < OMIT_LOADS; i++, s++) {
        const volatile struct omit_load *x = s;
        if (x->key != key || (bar && x->bar != bar) ||
            atomicCAS(&s->state, OMIT_PENDING, OMIT_TAKEN) != OMIT_PENDING) continue;
        __threadfence();
        any = 1;
        if (x->channel < 0)
            asm volatile("cp.async.bulk.shared::cluster.global"
                         ".mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             x->to),
                         "l"(x->from), "r"(x->bytes), "r"(x->bar) : "memory");
        else
            asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                         ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                         ::"r"(x->to), "l"(x->from), "r"(x->channel), "r"(x->n),
                         "r"(x->t), "r"(x->bar) : "memory");
        __threadfence();
        atomicExch(&s->state, OMIT_FREE);
    }
    return any;
}

// Remembers a load. Returns 0 if the load is not late, or if the table is full.
static __device__ __forceinline__ int omit_load_later(const struct omit_load &load)
{
    unsigned key;
    if (omission.kind != OMIT_LATE_LOADS || !omit_is_left_out(load.bar)) return 0;
    struct omit_load *s = omit_loads_here(&key);
    #pragma unroll 1
    for (int i = 0; i < OMIT_LOADS; i++, s++) {
        volatile struct omit_load *x = s;
        const unsigned was = x->state;
        if (was == OMIT_TAKEN || (was == OMIT_PENDING && x->key == key) ||
            atomicCAS(&s->state, was, OMIT_TAKEN) != was) continue;
        x->key = key;
        x->to = load.to;
        x->bar = load.bar;
        x->bytes = load.bytes;
        x->channel = load.channel;
        x->n = load.n;
        x->t = load.t;
        x->from = load.from;
        __threadfence();
        atomicExch(&s->state, OMIT_PENDING);
        return 1;
    }
    return 0;
}

// Called by a thread that has waited for `bar` for `ns` nanoseconds.
static __device__ __forceinline__ void omit_still_waits(unsigned bar, unsigned ns)
{
    if (omission.kind != OMIT_LATE_LOADS) return;
    if (ns > 30000) omit_issue_loads(0);
    else if (ns > 5000 && omit_is_left_out(bar)) omit_issue_loads(bar);
}
