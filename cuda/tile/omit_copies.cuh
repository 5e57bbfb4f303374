// omit_copies.cuh -- copies by cp.async that are as late as the hardware allows.
// Book: users.md, "Find a race".
//
// Part of omit.cuh's build. Between cp.async and the wait for its group, the bytes at
// the destination are undefined. Here cp_async_16 writes NaN, and cp_async_wait copies
// the bytes. Without the wait, the bytes come at the thread's next wait. The queue of a
// thread's copies is in global memory, because kernels use all shared memory.
#pragma once

enum { OMIT_QUEUE = 64, OMIT_IN_BLOCK = 512, OMIT_THREADS = 4 * 512 * OMIT_IN_BLOCK };

// Entries first to last - 1 are in the queue. `group` counts cp_async_commit.
struct omit_thread { unsigned key, first, last, group; };

static __device__ __forceinline__ unsigned omit_thread_of(struct omit_thread *s)
{
    unsigned key;
    const unsigned at = omit_block(OMIT_THREADS / OMIT_IN_BLOCK, &key) * OMIT_IN_BLOCK
                      + threadIdx.x % OMIT_IN_BLOCK;
    *s = omission.thread[at];
    if (s->key != key) *s = { key, 0, 0, 0 };
    return at;
}

static __device__ __forceinline__ void omit_store_16(unsigned to, uint4 x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w) : "memory");
}

// Copies the queue's entries of groups before `group`; at least `least` entries.
static __device__ __forceinline__ void omit_copy_until(struct omit_thread *s,
                                                       unsigned at, int group,
                                                       int least)
{
    #pragma unroll 1
    for (; s->first != s->last; s->first++, least--) {
        const uint4 e = omission.copies[s->first % OMIT_QUEUE * OMIT_THREADS + at];
        if ((int)e.w >= group && least <= 0) break;
        const unsigned long long from = (unsigned long long)e.y << 32 | e.x;
        omit_store_16(e.z, from ? __ldcg((const uint4 *)from) : make_uint4(0, 0, 0, 0));
    }
}

static __device__ __noinline__ void omit_enqueue(unsigned to, const void *from)
{
    struct omit_thread s;
    const unsigned at = omit_thread_of(&s);
    const unsigned long long x = (unsigned long long)from;
    if (s.last - s.first == OMIT_QUEUE) omit_copy_until(&s, at, 0, 1);
    omission.copies[s.last++ % OMIT_QUEUE * OMIT_THREADS + at] =
        make_uint4((unsigned)x, (unsigned)(x >> 32), to, s.group);
    omit_store_16(to, make_uint4(~0u, ~0u, ~0u, ~0u));
    omission.thread[at] = s;
}

// Ends a group if `commit` is 1, then copies all but the last `left` groups (-1: none).
static __device__ __noinline__ void omit_dequeue(int commit, int left)
{
    struct omit_thread s;
    const unsigned at = omit_thread_of(&s);
    s.group += commit;
    if (left >= 0) omit_copy_until(&s, at, (int)s.group - left, 0);
    omission.thread[at] = s;
}

static __device__ __forceinline__ void omit_cp_async_16(void *to, const void *from,
                                                        int there)
{
    jitter(6);
    if (omission.copies) omit_enqueue(smem_addr(to), there ? from : NULL);
    else cp_async_16(to, from, there);
}

static __device__ __forceinline__ void omit_cp_async_commit(void)
{
    cp_async_commit();
    if (omission.copies) omit_dequeue(1, -1);
}

template <unsigned place>
struct omit_cp_async {
    template <int left>
    static __device__ __forceinline__ void wait(void)
    {
        if (omitted<place>()) return omit_skew();
        cp_async_wait<left>();
        if (omission.copies) omit_dequeue(0, left);
    }
};

#define cp_async_16 omit_cp_async_16
#define cp_async_commit omit_cp_async_commit
#define cp_async_wait \
    omit_cp_async<omit_place("cp_async_wait", __FILE__, __LINE__)>::wait
