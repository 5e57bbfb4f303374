/* group.h -- sends and receives as one group, which is closed whatever fails in it.
 *
 * Book: chapter 07.  Checked by: tests/20_clusters/stand_in/ranks.c.
 * Next: comm/form/chain.c, halo.c, who open groups. */
#ifndef KCP_GROUP_H
#define KCP_GROUP_H

#include "kcp.h"

/* The end of a group whose begin returned `opened`: one that is not open stays closed.
 * What failed in it counts before what its end says. */
static inline int group_end(struct kcp_comm *comm, int opened, int status)
{
    const int closed = opened ? opened : comm->group(comm, 0);
    return status ? status : closed;
}

#endif
