/* gather.h -- gathers the rows and states of all ranks on each rank, for mutants.
 * Book: chapters 14 and 15. */
#pragma once

#include "kcp.h"

#include <stdlib.h>
#include <string.h>

/* Gathers the rows of all ranks, `width` numbers per token, in token order. */
static inline int gather_rows(const struct kcp_call *c, int64_t width,
                              const double *mine, double *all)
{
    const struct kcp_plan *p = c->plan;
    int64_t most = 1;
    for (int r = 0; r < p->R; r++)
        if (p->cuts[r + 1] - p->cuts[r] > most) most = p->cuts[r + 1] - p->cuts[r];
    const size_t n = (size_t)(most * width);
    double *one = calloc(n * (size_t)(p->R + 1) + 1, sizeof *one), *wire = one + n;
    if (!one) return KCP_NO_MEMORY;
    int status = KCP_OK;
    memcpy(one, mine, sizeof *one * (size_t)(c->T * width));
    if (p->R > 1)
        status = c->comm->all_gather(c->comm, one, wire, sizeof *one * n, NULL);
    else memcpy(wire, one, sizeof *one * n);
    for (int r = 0; r < p->R && !status; r++)
        kcp_plan_give(p, r, sizeof *all * (size_t)width, wire + (size_t)r * n, all);
    free(one);
    return status;
}

/* Gathers states [N,width], where row n comes from rank owner[n]. If `from` is NULL,
 * sets the states to 0. */
static inline int gather_states(const struct kcp_call *c, const int *owner,
                                int64_t width, const double *from, double *to)
{
    const int64_t n = c->N * width;
    const size_t bytes = sizeof *to * (size_t)n;
    double *all = malloc(bytes * (size_t)c->plan->R + 1);
    int status = all ? KCP_OK : KCP_NO_MEMORY;
    memset(to, 0, bytes);
    if (!status && from && n && c->plan->R > 1)
        status = c->comm->all_gather(c->comm, from, all, bytes, NULL);
    else if (!status && from) memcpy(all, from, bytes);
    for (int64_t e = 0; e < n && from && !status; e++)
        to[e] = all[owner[e / width] * n + e];
    free(all);
    return status;
}
