/* stand_in.h -- what the tests over the stand-ins for CUDA and NCCL share.
 *
 * Book: chapter 20.  Checked by: tests/cli/nccl_stand_in.sh.  Next: forms.c. */
#ifndef KCP_STAND_IN_H
#define KCP_STAND_IN_H

#include "comm/backend/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4 };

/* ---- the stand-in's own, libnccl.c: groups that this thread has open; communicators
 * neither destroyed nor aborted; an asynchronous error of one */
int  stand_in_groups(void);
int  stand_in_alive(void);
void stand_in_error(ncclComm_t c);

/* ---- forms.c: an exchange on R ranks, run by rank body `exchange_rank` */
enum { XT = 256, XN = 3, XHV = 2, XK = 8, XV = 12, XMAP = XHV * XK * (XV + XK),
       XSTATE = XHV * XK * XV, XSEGMENTS = 16 };
struct exchange_job {
    int form, backward, on_stream;         /* on_stream: maps are applied on a stream */
    const struct kcp_plan *plan;
    ncclComm_t lent[MOST];                 /* the caller's; aborted after a failure */
    double maps[MOST][XSEGMENTS][XMAP], states[MOST][XSEGMENTS][XSTATE];
    struct kcp_traffic sent[MOST];
};
int exchange_rank(struct kcp_comm *comm, void *job);

/* ---- calls.c: a rank on a host communicator makes an NCCL one, the caller's, and
 * lends it; then body runs over it */
struct loan {
    ncclUniqueId id;
    atomic_int has_id;
    ncclComm_t *lent;                      /* [MOST] */
    int (*body)(struct kcp_comm *, void *arg);
    void *arg;
};
int lent_rank(struct kcp_comm *host, void *loan);

/* ---- each returns the number of what is wrong, and prints a line for each */
int forms(int R, int64_t L, int form, int is_planted);
int calls(void);
int late_ranks(int R, int is_planted);     /* late.c */
int lose_ranks(int form);                  /* lose.c */

#endif
