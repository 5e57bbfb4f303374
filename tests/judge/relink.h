/* relink.h -- plans whose segments follow one another in a wrong order.
 *
 * Book: chapter 06.  Checked by: tests/08_forward/owners.c, tests/13_backward/owners.c.
 * Next: relink.c.
 * These are likely mistakes if a rank owns several ranges: the fold treats a shard as
 * one stretch, or assigns the second half of a zigzag in the order of the first. */
#ifndef KCP_RELINK_H
#define KCP_RELINK_H

#include "kcp.h"

enum relink {
    BY_SHARD,                  /* order by rank: a whole shard in a row */
    UNMIRRORED,                /* first segments of all ranks, then second ones */
    SWAPPED,                   /* two neighbours of different owners exchanged */
};

/* Makes a shallow copy of a plan with new segments copy->seg, which the caller
 * frees. The first and the last segment of a sequence keep their places. KCP_NA: the
 * new order is also right. */
int plan_relinked(const struct kcp_plan *plan, enum relink how, struct kcp_plan *copy);

#endif
