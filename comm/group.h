/* group.h -- sends and receives as one group, which is closed even after a failure.
 *
 * Book: chapter 07.  Checked by: tests/20_clusters/stand_in/ranks.c.
 * Next: comm/form/chain.c and halo.c, which open groups. */
#ifndef KCP_GROUP_H
#define KCP_GROUP_H

#include "kcp.h"

/* Ends the group if its begin succeeded (opened == KCP_OK). Returns status, the first
 * failure inside the group, or else the status of the end. */
static inline int group_end(struct kcp_comm *comm, int opened, int status)
{
    const int closed = opened ? opened : comm->group(comm, 0);
    return status ? status : closed;
}

#endif
