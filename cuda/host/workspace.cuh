// workspace.cuh -- workspace, small arrays, states and saved block of whole passes.
// Book: chapters 08, 12 and 13.
#pragma once

#include "putter.cuh"
#include <string.h>

// Allocates from the caller's workspace. If `base` is NULL, nothing is allocated, and
// only the bytes are counted. Arrays of the saved block (chapter 12) are placed in that
// block instead.
struct arena {
    char *base, *saved;
    size_t used;
    struct kcp_saved head;               // header of the saved block
};

static inline void *arena_take(struct arena *x, int64_t count, size_t elem)
{
    char *p = x->base ? x->base + x->used : NULL;
    x->used += (count * elem + 255) / 256 * 256;
    return p;
}

static inline void *arena_named(struct arena *x, const char *name, int64_t count,
                               size_t elem)
{
    for (uint32_t j = 0; x->saved && j < x->head.items; j++)
        if (strcmp(x->head.item[j].name, name) == 0)
            return x->saved + x->head.item[j].at;
    return arena_take(x, count, elem);
}

// Opens the arena of a whole pass: the workspace, and the saved block in `format`,
// whose header records `writer`.
static inline void arena_open(struct arena *x, const struct kcp_call *a,
                              const void *saved, int format, const char *writer,
                              size_t elem)
{
    x->base = (char *)a->work;
    x->saved = (char *)saved;
    kcp_saved_layout_of(&x->head, a, format, writer, elem, sizeof(float));
}

// Stores in `want` [NS], as bits KCP_WANT_*, the needed parts of each segment's map.
static inline void put_wants(const struct kcp_call *a, int backward, int *want)
{
    const int seg0 = a->plan->ctx[a->r].seg0;
    struct putter x = { want, {}, a->stream };
    for (int s = 0; s < a->NS; s++)
        put(&x, kcp_plan_want(a->plan, seg0 + s, backward));
    put_rest(&x);
}

// ---- states: the caller's layout is [V,K] or [K,V], the kernels' is [K,V]
struct states {
    float *x;
    int transposed;                      // 1: [V,K], 0: [K,V]
};
struct moves { int count, from[128], to[128]; };

// Copies state from[j] of x to state to[j] of y. If from[j] < 0, stores 0. A launch has
// 32 blocks per state and head. Bound: memory. A transposed array is read or written
// with stride K.
static __global__ void move_states(int HV, int K, int V, const struct states x,
                                   const struct states y, const struct moves m)
{
    const int64_t KV = (int64_t)K * V, n = blockIdx.y;
    const int from = m.from[blockIdx.x];
    const float *a = from < 0 ? NULL : x.x + (from * (int64_t)HV + n) * KV;
    float *b = y.x + (m.to[blockIdx.x] * (int64_t)HV + n) * KV;
    const int step = gridDim.z * blockDim.x;
    for (int e = blockIdx.z * blockDim.x + threadIdx.x; e < KV; e += step) {
        const int t = e % V * K + e / V;
        b[y.transposed ? t : e] = a ? a[x.transposed ? t : e] : 0.0f;
    }
}

struct mover {
    const struct kcp_call *a;
    struct states x, y;
    struct moves m;
};

static inline void flush(struct mover *x)
{
    if (x->m.count)
        move_states<<<dim3(x->m.count, x->a->HV, 32), 256, 0, x->a->stream>>>(
            x->a->HV, x->a->K, x->a->V, x->x, x->y, x->m);
    x->m.count = 0;
}

static inline void move(struct mover *x, int from, int to)
{
    if (x->m.count == 128) flush(x);
    x->m.from[x->m.count] = x->x.x ? from : -1;
    x->m.to[x->m.count++] = to;
}

// Fills y [NS,HV,K,V]. A segment at the start of a sequence (ends = 1: at the end) gets
// the sequence's state from x (h0 or dht). All other segments get 0.
static inline void states_in(const struct kcp_call *a, int ends, const void *x, void *y)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    struct mover m = { a, { (float *)x, a->layout == KCP_VK }, { (float *)y, 0 }, {} };
    for (int s = 0; s < a->NS; s++)
        move(&m, (ends ? seg[s].last : seg[s].first) ? seg[s].n : -1, s);
    flush(&m);
}

// For each sequence without tokens, copies the given state (h0 or dht) to y (ht or
// dh0), on the rank that owns the sequence.
static inline void pass_empty_states(const struct kcp_call *a, int ends,
                                     const void *given, void *y)
{
    const struct kcp_plan *p = a->plan;
    const int *owner = ends ? p->ht_rank : p->h0_rank;
    struct mover m = { a, { (float *)given, 0 }, { (float *)y, 0 }, {} };
    for (int n = 0; n < p->N; n++)
        if (owner[n] == a->r && p->cu_seqlens[n] == p->cu_seqlens[n + 1])
            move(&m, n, n);
    flush(&m);
}

// The inverse of states_in: copies the states of segments at the end of a sequence
// (ends = 0: at the start) to y (ht or dh0).
static inline void states_out(const struct kcp_call *a, int ends, const void *x,
                              const void *given, void *y)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    struct mover m = { a, { (float *)x, 0 }, { (float *)y, a->layout == KCP_VK }, {} };
    for (int s = 0; s < a->NS; s++)
        if (ends ? seg[s].last : seg[s].first) move(&m, s, seg[s].n);
    flush(&m);
    pass_empty_states(a, ends, given, y);
}

// ---- the exchange. In an all-gather, a rank sends a row of maps, of which some are
// not needed and not computed. The row is zeroed first, so no uninitialized memory is
// sent.
static inline int exchange(const struct kcp_exchange *e)
{
    if (e->form == KCP_ALL_GATHER && e->plan->crossing) {
        const int64_t row = kcp_exchange_formula(e).bytes / (e->plan->R - 1);
        char *all = (char *)(e->kept && !e->backward ? e->kept : e->work);
        cudaMemsetAsync(all + e->comm->r * row, 0, row, e->stream);
    }
    return kcp_exchange_run(e);
}

// Returns the exchange of a pass's maps and states, and takes its work array from r.
static inline struct kcp_exchange place_exchange(struct arena *r,
                                                 const struct kcp_call *a, int backward,
                                                 void *maps, void *states)
{
    struct kcp_exchange e = { a->form, backward, a->blocks, a->reuse_M, a->HV, a->K,
                              a->V, a->plan, a->comm, a->ops, maps, states, NULL, NULL,
                              a->stream };
    if (r->saved && a->reuse_M) e.kept = arena_named(r, "kept", 0, 1);
    e.work = arena_take(r, kcp_exchange_work(&e), 1);
    return e;
}

// Copies the first states of segments to the saved block, or from the saved block.
static inline void copy_kept(const struct kcp_call *a, void *to, const void *from)
{
    const size_t state = sizeof(float) * a->HV * a->K * a->V;
    cudaMemcpyAsync(to, from, kcp_saved_states(a) * state, cudaMemcpyDeviceToDevice,
                    a->stream);
}

// Reports a failure of this rank to the other ranks. Returns `status`.
static inline int report_failure(const struct kcp_call *a, int status, const char *name)
{
    if (status && status != KCP_COMM && a->comm) a->comm->fail(a->comm, status, name);
    return status;
}

// ---- the header of the saved block, written and compared on the device: format, mode
// and sizes must be equal, but the writer may differ
static __global__ void write_head(void *saved, const struct kcp_saved head)
{
    for (int i = threadIdx.x; i < (int)sizeof head; i += blockDim.x)
        ((char *)saved)[i] = ((const char *)&head)[i];
}

// If the saved block is of another format or call, the outputs in x become NaN. A test
// on the host would wait for the device. Bytes 0xff are a NaN in fp32, bf16 and fp16.
// Every block compares the headers.
struct nan_outputs { void *p[8]; int64_t bytes[8]; int count; };

static __global__ void nan_if_head_differs(const void *saved,
                                           const struct kcp_saved head,
                                           const struct nan_outputs x)
{
    const int w = offsetof(struct kcp_saved, writer), end = w + sizeof head.writer;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    int differs = 0;
    for (int i = threadIdx.x; i < (int)sizeof head; i += blockDim.x)
        if (i < w || i >= end)
            differs |= ((const char *)saved)[i] != ((const char *)&head)[i];
    if (!__syncthreads_or(differs)) return;
    for (int j = 0; j < x.count; j++)
        for (int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
             at < x.bytes[j]; at += step)
            ((char *)x.p[j])[at] = (char)0xff;
}
