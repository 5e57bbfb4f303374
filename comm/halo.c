/* halo.c -- the rows of a token tensor that lie just across a cut.
 *
 * Book: chapter 14.  Checked by: tests/14_conv/checks.c.  Next: comm/segment_sum.c.
 * Every rank knows the plan, so nobody asks: each computes who needs what. */
#include "checked.h"

struct token_range { int64_t begin, end; };      /* global tokens; begin >= end: none */

/* spec 10.  What rank r lacks, reach rows at most and never beyond its sequence: before
 * its cut for its first sequence, or (backward) after it for its last one. */
static struct token_range wanted(const struct kcp_halo *h, int r)
{
    const struct kcp_plan *p = h->plan;
    const struct kcp_context *x = &p->ctx[r];
    if (!x->NS)
        return (struct token_range){ x->begin, x->begin };
    if (!h->backward) {
        const int64_t start = p->cu_seqlens[p->seg[x->seg0].n];
        const int64_t far = x->begin - h->reach;
        return (struct token_range){ far > start ? far : start, x->begin };
    }
    const int64_t end = p->cu_seqlens[p->seg[x->seg0 + x->NS - 1].n + 1];
    const int64_t far = x->end + h->reach;
    return (struct token_range){ x->end, far < end ? far : end };
}

/* The part of what rank `to` lacks that rank `from` holds. */
static struct token_range held_by(const struct kcp_halo *h, int from, int to)
{
    struct token_range s = wanted(h, to);
    const struct kcp_context *x = &h->plan->ctx[from];
    if (s.begin < x->begin)
        s.begin = x->begin;
    if (s.end > x->end)
        s.end = x->end;
    return s;
}

int64_t kcp_halo_rows(const struct kcp_halo *h, int r)
{
    const struct token_range s = wanted(h, r);
    return s.end - s.begin;
}

/* Sends before receives, in rank order, as one group: a rank whose rows reach several
 * short shards sends to each of them, and one that lacks nothing stays silent. */
int kcp_halo_run(const struct kcp_halo *h, const void *x, void *halo)
{
    if (!h->plan || (h->plan->R > 1 && !h->comm) || h->reach < 0)
        return kcp_refuse(KCP_BAD, "halo: no plan, no comm, or less than no rows");
    struct kcp_comm *comm = h->comm;
    const int R = h->plan->R, r = R > 1 ? comm->r : 0;
    const int64_t mine = h->plan->ctx[r].begin, first = wanted(h, r).begin;
    const size_t row = h->row_bytes;
    int status = KCP_OK, open = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < R && !status; j++) {
            const struct token_range s = pass ? held_by(h, j, r) : held_by(h, r, j);
            if (j == r || s.begin >= s.end)
                continue;
            if (!open) {
                open = 1;
                status = comm->group(comm, 1);
                if (status)
                    break;
            }
            //> halo-rows
            const size_t bytes = (size_t)(s.end - s.begin) * row;
            if (pass == 0)
                status = comm->send(comm, (const char *)x + (s.begin - mine) * row,
                                    bytes, j, h->stream);
            else
                status = comm->recv(comm, (char *)halo + (s.begin - first) * row,
                                    bytes, j, h->stream);
            //< halo-rows
        }
    if (open) {
        const int closed = comm->group(comm, 0);
        if (!status)
            status = closed;
    }
    return status;
}

struct kcp_traffic kcp_halo_formula(const struct kcp_halo *h, int r)
{
    struct kcp_traffic sum = { 0, 0, 0 };
    for (int j = 0; j < h->plan->R; j++) {
        const struct token_range s = held_by(h, r, j);
        if (j == r || s.begin >= s.end)
            continue;
        sum.bytes += (s.end - s.begin) * (int64_t)h->row_bytes;
        sum.messages++;
    }
    return sum;
}
