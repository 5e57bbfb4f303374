/* watch.h -- connections by which ranks that met elsewhere know one another.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/watch.c.  Next: comm/watch.c. */
#ifndef KCP_WATCH_H
#define KCP_WATCH_H

#include "kcp.h"

#pragma GCC visibility push(hidden)

/* What the ranks have: a gather of host memory, which every rank calls. */
struct watch_gather {
    int R, r;
    int (*rows)(void *arg, const void *mine, void *all, size_t bytes);
    void *arg;
};

/* Every rank calls it. All get a communicator over proven connections of its own, of
 * which only fail, lost and free are used, or none does: then *watch is NULL, and why
 * says why not. Not KCP_OK: the gather failed. */
int watch_open(struct kcp_comm **watch, const struct watch_gather *by, char *why,
               size_t n);
/* This process ends, in order: nobody takes it for lost. Returns at once. */
void watch_leave(struct kcp_comm *watch);

#pragma GCC visibility pop

#endif
