/* relink.h -- builds plans that link a sequence's segments in a wrong order.
 *
 * Book: chapter 06.  Checked by: tests/08_forward/owners.c.
 * Next: relink.c.
 * The plans imitate mistakes that are likely if a rank owns several ranges: a fold that
 * treats a shard as one stretch; or a zigzag layout with a second half that is not
 * mirrored. */
#ifndef KCP_RELINK_H
#define KCP_RELINK_H

#include "kcp.h"

enum relink {
    BY_SHARD,                  /* by rank: all segments of a rank, then of the next */
    UNMIRRORED,                /* first segments of all ranks, then second ones */
    SWAPPED,                   /* two neighbours of different owners exchanged */
};

/* Makes a shallow copy of a plan with new segments copy->seg, which the caller frees.
 * The first and the last segment of each sequence keep their places. Returns KCP_NA if
 * the new order is the right order. */
int plan_relinked(const struct kcp_plan *plan, enum relink how, struct kcp_plan *copy);

#endif
