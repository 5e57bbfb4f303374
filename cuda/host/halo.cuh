// halo.cuh -- what surrounds a segment in its shard, and the rows that it lacks.
// Book: chapter 14.
// Checked by: tests/14_conv/checks.c.
// Next: cuda/14_conv/v1_row.cu.
#ifndef KCP_HALO_CUH
#define KCP_HALO_CUH

#include "checked.h"
#include "cuda/host/mapops.cuh"

// struct kcp_conv as the kernels take it, without the rows before and after sequences:
// they are its last members, and a call that has any is not theirs.
#define KCP_CONV_WITHOUT_STATES
#define KCP_FIELD(io, when, name, shape, store) KCP_CONST_##io KCP_TYPE_##store *name;
struct conv_call {
#include "stages/call.def"
#include "stages/14.def"
};
#undef KCP_FIELD
#undef KCP_CONV_WITHOUT_STATES
static_assert(sizeof(struct conv_call) == offsetof(struct kcp_conv, x0),
              "a call begins as struct kcp_conv does");

static inline int conv_has_states(const void *args)
{
    const struct kcp_conv *a = (const struct kcp_conv *)args;
    return a->x0 || a->xt || a->dxt || a->dx0;
}

static inline int conv_states_refused(void)
{
    return kcp_refuse(KCP_NA, "14_conv: x0, xt, dxt, dx0: found one of them, expected "
                      "none: no kernel takes the rows before a sequence, the reference "
                      "does");
}

// Segment s of rank r lies in a run of local tokens, low to high, that follow one
// another. Row t below low is row low_at + t of the halo before, from high on row
// high_at + t of the halo after.
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

// The halo of a window of Wc rows, backward the gradient's; bytes a number.
static inline struct kcp_halo halo_of(const struct conv_call *a, int Wc, int backward,
                                      size_t bytes)
{
    return { a->plan, a->comm, Wc - 1, backward, bytes * a->D, a->stream,
             a->ops ? a->ops : &cuda_mapops, 0 };
}

#endif
