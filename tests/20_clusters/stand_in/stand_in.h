/* stand_in.h -- what the tests over the stand-ins for CUDA and NCCL share.
 *
 * Book: chapter 20.  Checked by: tests/cli/nccl_stand_in.sh.  Next: forms.c. */
#ifndef KCP_STAND_IN_H
#define KCP_STAND_IN_H

#define _DEFAULT_SOURCE
#include "comm/backend/nccl.h"
#include "tests/20_clusters/layer.h"

#include <stdio.h>

enum { MOST = 4, FORMS = 4, IDS = 4 };

/* Memory of all processes: answers of ranks that are threads, on 1 to 4 of them. */
struct shared {
    struct answers want[MOST + 1][FORMS][2];
    int calls[MOST + 1][FORMS];            /* of rank 1 in a pass */
    _Atomic double soonest;                /* that another knew of a caller's fail */
};
extern struct shared *shared;
extern struct lossy_layer *layer_of_model[2];     /* their inputs: KDA, GDN */

/* ---- calls.c: a rank's calls, each waited for; before one of them it is lost */
struct striking {
    struct kcp_comm own;
    struct kcp_comm *comm;
    ncclComm_t lent;                       /* NULL: ours, or aborted already */
    int calls, at, in_group, group_calls;
    double stuck;                          /* seconds until a stream counts as hung */
    void (*strike)(void);
    void (*in_its_group)(void);            /* at the second call in a group */
};
extern _Thread_local struct striking me;
void calls_wait(struct kcp_comm *comm, ncclComm_t lent);
void calls_as_before(void);
/* The owner of a lent communicator ends what hangs; else its stream is waited for. */
void owner_ends(void);
/* A rank's pass, forward and backward, of model 0 or 1 on comm. */
int  pass_on(struct kcp_comm *comm, struct lossy_layer *a, int R, enum kcp_form form);
/* Numbers of this rank's rows that are not the threads'. */
int  wrong_rows(const struct lossy_layer *a, int R, int r, enum kcp_form form);

struct lossy_layer *own_layer(int model);  /* of this rank, with the inputs of all */

/* What a caller does who knows nothing of us; share: rank 0's id goes to the others. */
struct meet { ncclUniqueId id; atomic_int is_there; };
ncclComm_t lend(struct meet *m, int R, int r, int blocking);

/* ---- ranks.c: a trial, of ranks that are processes */
enum { LOST = 1 };
enum way { NOBODY, KILLED, STOPPED, ABORTED, OUTSIDE, IN_GROUP, KNOWN_IN_GROUP, HANGS,
           NOTICED, OURS, EARLY, UNWATCHED, DEAF, DROPPED, FREED, LEFT, CAPTURED, PAIR,
           TWO, WAYS };
struct seen {
    int done, status, lost, files[2], tasks[2], wrong, again, other;
    size_t free[2];                        /* of its GPU's memory */
    double ended;
    char why[320];
};
struct trial {
    int R, form, way, at;
    struct meet meet[IDS];
    _Atomic double struck;
    double died;                           /* rank 1, as the trial's process saw it */
    atomic_int calls;
    struct seen seen[MOST];
    char dir[200];
};
extern struct trial *now;                  /* of this process */
/* What a process holds, files, threads and memory of its GPU, before and after. */
void hold(struct seen *x);
void hold_again(struct seen *x);

/* ---- lose.c: one is lost. uses.c: nobody is, of what a caller may do */
void lose_one(struct trial *t, int r);
void abort_ours(void);
void use_and_end(struct trial *t, int r);
void capture_first(struct trial *t, int r);
void pair_first(struct trial *t, int r);
void use_two(struct trial *t, int r);
int  stand_in_groups(void);                /* that this thread has open: moves.c */
int  stand_in_gathers(ncclComm_t at);      /* that this rank has called: libnccl.c */

/* ---- forms.c: every form bit for bit; the number of what is wrong */
int forms_threads(int lent);
int forms_exchange(void);
int forms_split(void);
int late_ranks(void);                      /* late.c */

#pragma GCC visibility push(hidden)
extern int wrongs;
#define EXPECT(yes, ...)                                                              \
    do {                                                                              \
        if (!(yes)) { wrongs++; printf("  FAIL  " __VA_ARGS__); printf("\n"); }        \
    } while (0)
#pragma GCC visibility pop

#endif
