// halo.cuh -- finds the rows around a segment, in the shard or in the halo.
// Book: chapter 14.
#pragma once

#include "checked.h"
#include "cuda/host/mapops.cuh"
#include "cuda/host/segment_sum.cuh"

// The kernels' argument is struct kcp_conv without the last fields, which are in struct
// conv_states.
#define KCP_CONV_WITHOUT_STATES
#define KCP_FIELD(io, when, name, shape, store) KCP_CONST_##io KCP_TYPE_##store *name;
struct conv_call {
#include "stages/call.def"
#include "stages/14.def"
};
#undef KCP_FIELD
#undef KCP_CONV_WITHOUT_STATES
static_assert(sizeof(struct conv_call) == offsetof(struct kcp_conv, x0),
              "struct conv_call must begin like struct kcp_conv");

// The rows before each sequence (x0), its last rows (xt), and gradients of these rows.
// Arrays are [N,Wc-1,D] or NULL. x0 and dxt also hold rows that other ranks send.
struct conv_states { const void *x0, *dxt; void *xt, *dx0; };

// Segment s is in a run, tokens `low` to `high` - 1 of rank r, which are consecutive in
// one sequence. Token t < low is row low_at + t of the halo before the run. Token t >=
// high is row high_at + t of the halo after the run.
struct surround { int64_t low, high, low_at, high_at; };

static inline struct surround surround_of(const struct kcp_plan *p, int r, int s,
                                          int64_t reach)
{
    const struct kcp_context *x = &p->ctx[r];
    const struct kcp_segment *seg = p->seg + x->seg0;
    struct kcp_halo before = {}, after = {};
    int i = s, j = s;
    before.plan = after.plan = p;
    before.reach = after.reach = reach;
    after.backward = 1;
    while (i > 0 && seg[i].prev == x->seg0 + i - 1) i--;
    while (j + 1 < x->NS && seg[j].next == x->seg0 + j + 1) j++;
    const int64_t low = x->cu[i], high = x->cu[j + 1];
    return { low, high, kcp_halo_at(&before, r, i + 1) - low,
             kcp_halo_at(&after, r, j) - high };
}

// Returns the halo, the Wc - 1 rows that ranks exchange at a cut: rows of x or, if
// `backward` is set, of the gradient. Argument `bytes` is the size of one number.
static inline struct kcp_halo halo_of(const struct conv_call *a, int Wc, int backward,
                                      size_t bytes)
{
    return { a->plan, a->comm, Wc - 1, backward, bytes * a->D, a->stream,
             a->ops ? a->ops : &cuda_mapops, 0 };
}

// Returns KCP_BAD if the plan, a size or the weight is invalid, otherwise KCP_OK.
static inline int conv_status(const struct kcp_conv *c)
{
    if (!c->plan || c->D < 1 || c->plan->ctx[c->r].NS != c->NS) return KCP_BAD;
    return !c->shift && (!c->weight || c->Wc < 1) ? KCP_BAD : KCP_OK;
}

// Returns the call in the kernels' format. A token shift becomes a convolution over two
// rows with the fixed weights 1 and -1.
static inline struct conv_call conv_call_of(const struct kcp_conv *c)
{
    struct conv_call a = *(const struct conv_call *)c;
    if (!a.shift) return a;
    a.Wc = 2;
    a.act = KCP_ACT_NONE;
    a.bias = NULL;
    a.dweight = NULL;
    a.dbias = NULL;
    return a;
}

// Computes dweight and dbias from `stretches` [rows,n], one sum per token range of this
// rank, with n = D (Wc + 1). `all` [R,rows,n] and `sum` [n] are scratch.
static inline int store_conv_sums(const struct conv_call *a, const float *stretches,
                                  int64_t n, float *all, float *sum)
{
    const int64_t nw = (int64_t)a->D * a->Wc;
    const cudaMemcpyKind kind = cudaMemcpyDeviceToDevice;
    const int status =
        parameter_sum((const struct kcp_call *)a, stretches, n, all, sum);
    if (status) return status;
    if (a->dweight)
        cudaMemcpyAsync(a->dweight, sum, sizeof(float) * nw, kind, a->stream);
    if (a->dbias)
        cudaMemcpyAsync(a->dbias, sum + nw, sizeof(float) * a->D, kind, a->stream);
    return launched();
}

// Selects the states that this pass, forward or backward, uses.
static inline struct conv_states states_of(const struct kcp_conv *a)
{
    if (a->pass == KCP_FORWARD) return { a->x0, NULL, a->xt, NULL };
    return { a->x0, a->dxt, NULL, a->dx0 };
}

static inline int has_states(const struct conv_states *st)
{
    return st->x0 || st->dxt || st->xt || st->dx0;
}

// Returns the size in bytes of the workspace's copy of x0 or dxt. If a sequence crosses
// a cut between ranks, rows of all N sequences are copied, because other ranks send
// some of these rows. Otherwise the size is 0.
static inline size_t states_copied(const struct kcp_halo *h, const void *own)
{
    const struct kcp_plan *p = h->plan;
    return own && p->R > 1 && p->crossing ? h->row_bytes * h->reach * p->N : 0;
}

// Copies the states `own` to `copy`, and receives the states of other ranks.
static inline int bring_states(const struct kcp_halo *h, const void *own,
                               const void *copy)
{
    const size_t bytes = states_copied(h, own);
    if (!bytes) return KCP_OK;
    cudaMemcpyAsync((void *)copy, own, bytes, cudaMemcpyDeviceToDevice, h->stream);
    return kcp_halo_states(h, (void *)copy);
}

static inline int bring_both(const struct kcp_conv *from, const struct conv_call *a,
                             const struct conv_states *to, size_t bytes)
{
    const struct kcp_halo h = halo_of(a, a->Wc, 0, bytes);
    const struct kcp_halo back = halo_of(a, a->Wc, 1, bytes);
    const struct conv_states own = states_of(from);
    const int status = bring_states(&h, own.x0, to->x0);
    return status ? status : bring_states(&back, own.dxt, to->dxt);
}

// For this rank's sequences without tokens, copies `from` (x0 or dxt) to `to` (xt or
// dx0), or stores 0 if `from` is NULL. Adjacent sequences are copied together.
static inline int pass_empty_rows(const struct conv_call *a, size_t bytes,
                                  const int *owner, const void *from, void *to)
{
    const int64_t *cu = a->plan->cu_seqlens;
    const size_t row = bytes * (a->Wc - 1) * a->D;
    int n = 0;
    while (n < a->N && row) {
        int end = n;
        while (end < a->N && cu[end] == cu[end + 1] && owner[end] == a->r) end++;
        if (end > n && from)
            cudaMemcpyAsync((char *)to + n * row, (const char *)from + n * row,
                            (end - n) * row, cudaMemcpyDeviceToDevice, a->stream);
        else if (end > n)
            cudaMemsetAsync((char *)to + n * row, 0, (end - n) * row, a->stream);
        n = end > n ? end : n + 1;
    }
    return launched();
}
