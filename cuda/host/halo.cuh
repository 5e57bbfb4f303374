// halo.cuh -- what surrounds a segment in its shard, and the rows that it lacks.
// Book: chapter 14.
// Checked by: tests/14_conv/checks.c.
// Next: cuda/14_conv/v1_row.cu.
#ifndef KCP_HALO_CUH
#define KCP_HALO_CUH

#include "cuda/host/mapops.cuh"

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
static inline struct kcp_halo halo_of(const struct kcp_conv *a, int Wc, int backward,
                                      size_t bytes)
{
    return { a->plan, a->comm, Wc - 1, backward, bytes * a->D, a->stream,
             a->ops ? a->ops : &cuda_mapops, 0 };
}

#endif
