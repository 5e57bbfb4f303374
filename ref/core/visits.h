/* visits.h -- counts a rank's visits: runs of adjacent segments of one sequence.
 *
 * Book: chapter 07.  Checked by: tests/cli/run_cli.sh.
 * Next: ../../comm/form/scan.c, which needs memory for five maps per visit. */
#ifndef KCP_VISITS_H
#define KCP_VISITS_H

#include "kcp.h"

/* Limit of visits per rank in the form `scan`, which needs five maps per visit. With
 * more visits a call returns KCP_NA (core/checked.c). */
enum { KCP_SCAN_VISITS = 128 };

/* Returns the number of rank r's visits, counting only sequences that are on several
 * ranks. */
static inline int kcp_visits(const struct kcp_plan *plan, int r)
{
    const struct kcp_context *x = &plan->ctx[r];
    const struct kcp_segment *seg = plan->seg + x->seg0;
    int n = 0;
    for (int s = 0; s < x->NS; s++)
        n += (s == 0 || seg[s].prev != x->seg0 + s - 1) &&
             (seg[s].pre > 0 || seg[s].post > 0);
    return n;
}

#endif
