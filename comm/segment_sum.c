/* segment_sum.c -- sums over the segments of all ranks, in token order.
 * Book: chapters 13 and 14.
 *
 * Rounding depends on the order of additions, so segments are added in token order for
 * any number of ranks. */
#include "checked.h"
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 17 };              /* numbers per gather (1 MiB) */

/* Computes sum = sum_j part_j over all segments j of the plan, in token order. In the
 * gather, every rank sends `rows` rows: the maximum number of segments per rank. */
int kcp_segment_sum(const struct kcp_plan *plan, struct kcp_comm *comm,
                    const double *part, int64_t n, double *sum)
{
    if (!plan || (plan->R > 1 && !comm) || n < 0 || (n && !sum))
        return kcp_refuse(KCP_BAD, "segment_sum: 'plan', 'comm' or 'sum' is NULL, or "
                          "n is negative");
    const int R = plan->R, r = R > 1 ? comm->r : 0;
    if (!part && n && plan->ctx[r].NS)
        return kcp_refuse(KCP_BAD, "segment_sum: 'part' is NULL");
    int64_t rows = 1;
    for (int j = 0; j < R; j++)
        if (plan->ctx[j].NS > rows) rows = plan->ctx[j].NS;
    int64_t most = PIECE / (R * rows);          /* columns in one piece */
    if (most > n) most = n;
    if (most < 1) most = 1;
    double *mine = calloc(rows * most, sizeof *mine);
    double *all = malloc(sizeof *all * R * rows * most);
    int status = mine && all ? KCP_OK : KCP_NO_MEMORY;

    for (int64_t i0 = 0; i0 < n && !status; i0 += most) {
        const int64_t m = n - i0 < most ? n - i0 : most;
        for (int s = 0; s < plan->ctx[r].NS; s++)
            memcpy(mine + s * m, part + s * n + i0, sizeof *mine * m);
        if (R > 1)
            status = comm->all_gather(comm, mine, all, sizeof *mine * rows * m, NULL);
        else memcpy(all, mine, sizeof *mine * rows * m);
        //> segment-order
        for (int64_t i = 0; i < m; i++) sum[i0 + i] = 0;
        for (int j = 0; j < plan->S; j++) {
            const struct kcp_segment *g = &plan->seg[plan->order[j]];
            const int64_t s = plan->order[j] - plan->ctx[g->rank].seg0;
            for (int64_t i = 0; i < m; i++)
                sum[i0 + i] += all[(g->rank * rows + s) * m + i];
        }
        //< segment-order
    }
    free(mine);
    free(all);
    return status;
}

int kcp_parameter_sum(const struct kcp_call *c, const double *part, int64_t n,
                      double *sum)
{
    if (!c || n < 0 || (n && !sum) || (n && c->NS && !part))
        return kcp_refuse(KCP_BAD, "parameter_sum: the call, 'part' or 'sum' is NULL, "
                          "or n is negative");
    if (!(c->part & KCP_SUM_LOCAL))
        return kcp_segment_sum(c->plan, c->comm, part, n, sum);
    for (int64_t i = 0; i < n; i++) sum[i] = 0;
    for (int s = 0; s < c->NS; s++)
        for (int64_t i = 0; i < n; i++) sum[i] += part[s * n + i];
    return KCP_OK;
}
