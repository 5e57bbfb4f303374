// omit_stores.cuh -- TMA stores that read their source as late as they may.
// Book: users.md, "Find a race".
//
// Part of omit.cuh's build. If tma_store_wait_read is left out, 64 stores without use
// precede each store. The store is issued a second time before the thread's next wait,
// or after seven more stores. The second store changes nothing unless its source has
// been overwritten.
#pragma once

enum { OMIT_STORERS = OMIT_BLOCKS * 32, OMIT_SINK = 4096 };

// A store. `map` is 0 for contiguous bytes, and `bytes` is 0 for boxes.
struct omit_tma {
    unsigned long long global, map;
    unsigned shared, bytes;
    int channel, n, t, none;
};

struct omit_stores {
    unsigned key, count, none[2];
    struct omit_tma x[8];
};

// A warp has at most one thread that stores.
static __device__ __forceinline__ struct omit_stores *omit_stores_here(void)
{
    unsigned key;
    struct omit_stores *s = omission.stores + omit_block(OMIT_BLOCKS, &key) * 32
                          + threadIdx.x / 32;
    if (s->key != key) s->count = 0;
    s->key = key;
    return s;
}

static __device__ __forceinline__ void omit_store_again(const struct omit_tma &x)
{
    if (x.map)
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                     "[%0, {%1, %2, %3}], [%4];\n"
                     "cp.async.bulk.commit_group;" ::"l"(x.map),
                     "r"(x.channel), "r"(x.n), "r"(x.t), "r"(x.shared) : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                     "cp.async.bulk.commit_group;" ::"l"(x.global),
                     "r"(x.shared), "r"(x.bytes) : "memory");
}

// The stores without use read the same bytes, at most one box of 32 rows.
static __device__ __forceinline__ void omit_remember(const struct omit_tma &x)
{
    if (omission.kind != OMIT_STORE_WAIT) return;
    const unsigned bytes = x.bytes && x.bytes < OMIT_SINK ? x.bytes : (int)OMIT_SINK;
    #pragma unroll 1
    for (int i = 0; i < 64; i++)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::
                     "l"(omission.sink), "r"(x.shared), "r"(bytes) : "memory");
    struct omit_stores *s = omit_stores_here();
    struct omit_tma &at = s->x[s->count % 8];
    if (s->count++ >= 8) omit_store_again(at);
    at = x;
}

static __device__ __forceinline__ void omit_store_1d(void *to, const void *from,
                                                     uint32_t bytes)
{
    omit_remember({ (uint64_t)to, 0, smem_addr(from), bytes, 0, 0, 0, 0 });
    tma_store_1d(to, from, bytes);
}

static __device__ __forceinline__ void omit_store_3d(const CUtensorMap &map,
                                                     const void *from, int channel,
                                                     int n, int t)
{
    omit_remember({ 0, (uint64_t)&map, smem_addr(from), 0, channel, n, t, 0 });
    tma_store_3d(map, from, channel, n, t);
}

template <unsigned place>
static __device__ __forceinline__ void omit_store_wait_read(void)
{
    if (omitted<place>()) return omit_skew();
    if (omission.kind == OMIT_STORE_WAIT) {
        struct omit_stores *s = omit_stores_here();
        const unsigned first = s->count > 8 ? s->count - 8 : 0;
        #pragma unroll 1
        for (unsigned i = first; i < s->count; i++) omit_store_again(s->x[i % 8]);
        s->count = 0;
    }
    tma_store_wait_read();
}

static __device__ __forceinline__ void omit_load_1d(void *to, const void *from,
                                                    uint32_t bytes, uint64_t *bar)
{
    if (!omit_load_later({ 0, 0, smem_addr(to), smem_addr(bar), bytes, -1, 0, 0,
                           (uint64_t)from }))
        tma_load_1d(to, from, bytes, bar);
}

static __device__ __forceinline__ void omit_load_3d(void *to, const CUtensorMap &map,
                                                    int channel, int n, int t,
                                                    uint64_t *bar)
{
    if (!omit_load_later({ 0, 0, smem_addr(to), smem_addr(bar), 0, channel, n, t,
                           (uint64_t)&map }))
        tma_load_3d(to, map, channel, n, t, bar);
}

#define tma_load_1d omit_load_1d
#define tma_load_3d omit_load_3d
#define tma_store_1d omit_store_1d
#define tma_store_3d omit_store_3d
#define tma_store_wait_read omit_store_wait_read<OMIT_PLACE(tma_store_wait_read)>
