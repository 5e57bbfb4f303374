/* segment_sum.c -- sums over all tokens that do not depend on who held which.
 *
 * Book: chapters 13 and 14.  Checked by: tests/14_conv.c.  Next: ref/14_conv.c.
 * Rounding depends on the order of additions; segments have one, ranks have not.
 */
#include "kcp.h"
#include <stdlib.h>
#include <string.h>

/* sum = sum_j part_j over all segments j of the plan, in global order. */
int kcp_segment_sum(const struct kcp_plan *plan, struct kcp_comm *comm,
                    const double *part, int64_t n, double *sum)
{
    const int R = plan->R, r = R > 1 ? comm->r : 0;
    int rows = 1, status = KCP_OK;
    for (int j = 0; j < R; j++)
        if (plan->ctx[j].NS > rows)
            rows = plan->ctx[j].NS;

    /* Ranks hold different numbers of segments: pad to the largest. */
    const size_t bytes = sizeof(double) * rows * n;
    double *mine = calloc(rows * n, sizeof *mine), *all = malloc(R * bytes);
    if (!mine || !all) {
        free(mine);
        free(all);
        return KCP_NO_MEMORY;
    }
    if (plan->ctx[r].NS)
        memcpy(mine, part, sizeof(double) * plan->ctx[r].NS * n);
    if (R > 1)
        status = comm->all_gather(comm, mine, all, bytes, NULL);
    else
        memcpy(all, mine, bytes);

    memset(sum, 0, sizeof *sum * n);
    for (int j = 0; j < R; j++)
        for (int s = 0; s < plan->ctx[j].NS; s++)
            for (int64_t i = 0; i < n; i++)
                sum[i] += all[((int64_t)j * rows + s) * n + i];
    free(mine);
    free(all);
    return status;
}
