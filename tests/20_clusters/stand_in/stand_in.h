/* stand_in.h -- what the tests over the stand-ins for CUDA and NCCL share.
 *
 * Book: chapter 20.  Checked by: tests/cli/nccl_stand_in.sh.  Next: forms.c. */
#ifndef KCP_STAND_IN_H
#define KCP_STAND_IN_H

#define _DEFAULT_SOURCE
#include "comm/backend/nccl.h"
#include "tests/20_clusters/layer.h"

#include <stdio.h>

enum { MOST = 4, FORMS = 4 };

/* Answers of ranks over threads, 1 to 4 of them, and their inputs: KDA, GDN. */
extern struct answers want[MOST + 1][FORMS][2];
extern struct lossy_layer *layer_of_model[2];

/* ---- calls.c: a rank's calls, each waited for; `strike` runs before one of them */
struct striking {
    struct kcp_comm own;
    struct kcp_comm *comm;
    ncclComm_t lent;                       /* NULL: ours, or aborted already */
    int calls, at, in_group, group_calls;
    double stuck;                          /* seconds until a stream counts as hung */
    void (*strike)(void *), (*in_its_group)(void *);   /* the latter: its second call */
    void *arg;
};
extern _Thread_local struct striking me;
void calls_wait(struct kcp_comm *comm, ncclComm_t lent);
void calls_as_before(void);
/* The owner of a lent communicator aborts it; the device's stream is waited for. */
void owner_ends(void);
/* A rank's pass, forward and backward, of model 0 or 1 on comm. */
int  pass_on(struct kcp_comm *comm, struct lossy_layer *a, int R, enum kcp_form form);
/* How many of this rank's arrays differ from the threads'. */
int  wrong_rows(const struct lossy_layer *a, int R, int r, enum kcp_form form);

/* A caller's communicator; the id travels in m. */
struct meet { ncclUniqueId id; atomic_int is_there; };
ncclComm_t lend(struct meet *m, int R, int r, int blocking);

/* ---- what the stand-ins know: groups that this thread has open (moves.c); an
 * asynchronous error of the communicators on this thread's device (libnccl.c) */
int  stand_in_groups(void);
void stand_in_error(void);

/* ---- each returns the number of what is wrong, and prints a line for each */
int forms_threads(int lent);               /* forms.c: every form bit for bit */
int forms_exchange(int is_planted);       /* a call is left out: it must be wrong */
int forms_split(void);
int late_ranks(void);                      /* late.c */
enum { FEW, SOME, ALL };                   /* calls before which a rank is lost */
int lose_ranks(int how_many);              /* lose.c */
int use_by_file(void);
int use_captured(void);
int use_opened(void);

#endif
