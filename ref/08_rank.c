/* 08_rank.c -- functions shared by the programs of chapters 08, 13, 14, 15 and 16.
 * Book: chapter 08. */
#include "08_rank.h"

#include <stdlib.h>

void *rank_zeros(struct rank_arrays *x, int64_t numbers)
{
    void *p = calloc(numbers > 0 ? numbers : 1, sizeof(double));
    if (!p) x->full = 1;
    x->at[x->n++] = p;
    return p;
}

void rank_enter(const void *args, int back, const double *given, double *to)
{
    const struct kcp_call *c = args;
    const struct kcp_segment *seg = c->plan->seg + c->plan->ctx[c->r].seg0;
    const int64_t KV = (int64_t)c->HV * c->K * c->V;
    for (int s = 0; s < c->NS; s++)
        if (given && (back ? seg[s].last : seg[s].first))
            ref_state(c, 0, given + seg[s].n * KV, to + s * KV);
}

void rank_leave(const void *args, int back, const double *from, const double *given,
                double *to)
{
    const struct kcp_call *c = args;
    const struct kcp_segment *seg = c->plan->seg + c->plan->ctx[c->r].seg0;
    const int64_t KV = (int64_t)c->HV * c->K * c->V;
    for (int s = 0; s < c->NS; s++)
        if (back ? seg[s].first : seg[s].last)
            ref_state(c, 1, from + s * KV, to + seg[s].n * KV);
    rank_pass(c, back, given, KV, to);
}

void rank_pass(const void *args, int back, const double *from, int64_t numbers,
               double *to)
{
    const struct kcp_call *c = args;
    const int *owner = back ? c->plan->h0_rank : c->plan->ht_rank;
    const int64_t *cu = c->plan->cu_seqlens;
    for (int n = 0; n < c->plan->N; n++)
        for (int64_t e = n * numbers; owner[n] == c->r && e < (n + 1) * numbers; e++)
            if (cu[n] == cu[n + 1]) to[e] = from ? from[e] : 0;
}

int rank_end(const void *args, struct rank_arrays *x, int status, const char *name)
{
    const struct kcp_call *c = args;
    kcp_checked_leave();
    for (int j = 0; j < x->n; j++) free(x->at[j]);
    if (status && status != KCP_COMM && c->comm)
        c->comm->fail(c->comm, status, kcp_why_or(name));
    return status;
}
