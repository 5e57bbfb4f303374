/* relink.h -- plans whose segments follow one another in a wrong order.
 *
 * Book: chapter 06.  Checked by: tests/08_forward/owners.c, tests/13_backward/owners.c.
 * Next: relink.c.
 * What goes wrong first where a rank owns several ranges: the fold takes a shard for
 * one stretch, or deals the second half out in the order of the first. */
#ifndef KCP_RELINK_H
#define KCP_RELINK_H

#include "kcp.h"

enum relink {
    BY_SHARD,                  /* a sequence's segments, rank after rank */
    UNMIRRORED,                /* every rank's first segment, then every second, ... */
    SWAPPED,                   /* the first two of different owners, exchanged */
};

/* A shallow copy with segments of its own, copy->seg, for the caller to free. The first
 * and the last segment of a sequence stay where they are. KCP_NA: the order is right
 * all the same. */
int plan_relinked(const struct kcp_plan *plan, enum relink how, struct kcp_plan *copy);

#endif
