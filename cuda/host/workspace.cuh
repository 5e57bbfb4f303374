// workspace.cuh -- what whole passes share: the arena, marks, states, the block.
// Book: chapters 08, 12 and 13.
// Checked by: tests/08_forward/checks.c, tests/13_backward/checks.c.
// Next: ../08_forward/v1_stages.cu.
#ifndef KCP_LAYER_CUH
#define KCP_LAYER_CUH

#include "putter.cuh"
#include <string.h>

// The caller's work, handed out piece by piece; base NULL only counts. Pieces that the
// saved block keeps lie there instead (chapter 12).
struct arena {
    char *base, *saved;
    size_t used;
    struct kcp_saved head;               // what the block opens with
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

// A whole pass's call: its workspace and, by its format and its writer, the block.
static inline void arena_open(struct arena *x, const struct kcp_call *a,
                              const void *saved, int format, const char *writer,
                              size_t elem)
{
    x->base = (char *)a->work;
    x->saved = (char *)saved;
    kcp_saved_layout_of(&x->head, a, format, writer, elem, sizeof(float));
}

// want [NS] of this rank's segments.
static inline void put_wants(const struct kcp_call *a, int backward, int *want)
{
    const int seg0 = a->plan->ctx[a->r].seg0;
    struct putter x = { want, {}, a->stream };
    for (int s = 0; s < a->NS; s++)
        put(&x, kcp_plan_want(a->plan, seg0 + s, backward));
    put_rest(&x);
}

// ---- states between the interface, [V,K] if asked so, and [K,V]
struct states {
    float *x;
    int turned;                          // [V,K]
};
struct moves { int count, from[128], to[128]; };

// State to[j] of y = state from[j] of x, or 0 where from[j] < 0. 32 blocks a state
// and head; bound by memory, x or y being read or written across its rows when turned.
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
        b[y.turned ? t : e] = a ? a[x.turned ? t : e] : 0.0f;
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

// Rows of y [NS,HV,K,V] that begin (end) a sequence from x (h0, dht), 0 elsewhere.
static inline void states_in(const struct kcp_call *a, int ends, const void *x, void *y)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    struct mover m = { a, { (float *)x, a->layout == KCP_VK }, { (float *)y, 0 }, {} };
    for (int s = 0; s < a->NS; s++)
        move(&m, (ends ? seg[s].last : seg[s].first) ? seg[s].n : -1, s);
    flush(&m);
}

// A sequence without tokens hands what was given (h0, dht) through to y (ht, dh0), on
// the rank that owns it.
static inline void hand_through(const struct kcp_call *a, int ends, const void *given,
                                void *y)
{
    const struct kcp_plan *p = a->plan;
    const int *owner = ends ? p->ht_rank : p->h0_rank;
    struct mover m = { a, { (float *)given, 0 }, { (float *)y, 0 }, {} };
    for (int n = 0; n < p->N; n++)
        if (owner[n] == a->r && p->cu_seqlens[n] == p->cu_seqlens[n + 1])
            move(&m, n, n);
    flush(&m);
}

// The converse of states_in: states that end (begin) a sequence to y (ht, dh0).
static inline void states_out(const struct kcp_call *a, int ends, const void *x,
                              const void *given, void *y)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    struct mover m = { a, { (float *)x, 0 }, { (float *)y, a->layout == KCP_VK }, {} };
    for (int s = 0; s < a->NS; s++)
        if (ends ? seg[s].last : seg[s].first) move(&m, s, seg[s].n);
    flush(&m);
    hand_through(a, ends, given, y);
}

// ---- the exchange: of an all-gather's row a rank fills what is wanted of its maps,
// and the rest travels too; so that nothing unwritten leaves a GPU, it is 0
static inline int exchange(const struct kcp_exchange *e)
{
    if (e->form == KCP_ALL_GATHER && e->plan->crossing) {
        struct kcp_exchange exact = *e;      // rows lie in fp32 also where bf16 travels
        exact.comm = NULL;
        const int64_t row = kcp_exchange_formula(&exact).bytes / (e->plan->R - 1);
        char *all = (char *)(e->kept && !e->backward ? e->kept : e->work);
        cudaMemsetAsync(all + e->comm->r * row, 0, row, e->stream);
    }
    return kcp_exchange_run(e);
}

// The exchange of a pass: its maps, its states, and what the block keeps of it.
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

// The states with which segments begin, to or from the block.
static inline void copy_kept(const struct kcp_call *a, void *to, const void *from)
{
    const size_t state = sizeof(float) * a->HV * a->K * a->V;
    cudaMemcpyAsync(to, from, kcp_saved_states(a) * state, cudaMemcpyDeviceToDevice,
                    a->stream);
}

// A pass that failed by itself tells the other ranks.
static inline int tell(const struct kcp_call *a, int status, const char *name)
{
    if (status && status != KCP_COMM && a->comm) a->comm->fail(a->comm, status, name);
    return status;
}

// ---- the header of the saved block, written and compared on the device: format, mode
// and sizes must agree; who wrote it does not matter
static __global__ void write_head(void *saved, const struct kcp_saved head)
{
    for (int i = threadIdx.x; i < (int)sizeof head; i += blockDim.x)
        ((char *)saved)[i] = ((const char *)&head)[i];
}

static __global__ void compare_head(const void *saved, const struct kcp_saved head,
                                    int *differs)
{
    const int w = offsetof(struct kcp_saved, writer), end = w + sizeof head.writer;
    int d = 0;
    for (int i = threadIdx.x; i < (int)sizeof head; i += blockDim.x)
        if (i < w || i >= end)
            d |= ((const char *)saved)[i] != ((const char *)&head)[i];
    d = __syncthreads_or(d);
    if (threadIdx.x == 0) *differs = d;
}

// What is made from a block of another format or call becomes NaN: asking the block
// first would make the host wait for the device. 0xff bytes are a NaN in fp32 and bf16.
struct refused { void *p[8]; int64_t bytes[8]; int count; };

static __global__ void refuse(const int *differs, const struct refused x)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int j = 0; j < x.count && *differs; j++)
        for (int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
             at < x.bytes[j]; at += step)
            ((char *)x.p[j])[at] = (char)0xff;
}

#endif
