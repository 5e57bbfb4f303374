/* threads.h -- the world that thread ranks share: one lock, one member a rank.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.
 * Next: comm/backend/threads.c. */
#ifndef KCP_THREADS_H
#define KCP_THREADS_H

#include "kcp.h"

#include <pthread.h>

#pragma GCC visibility push(hidden)

struct thread_message {
    struct thread_message *next;
    int from;
    size_t bytes;
    char data[];
};

enum waiting { RUNNING, IN_BARRIER, IN_RECV, GONE };

struct member {                          /* one rank; comm is its first member */
    struct kcp_comm comm;
    struct world *w;
    pthread_t thread;
    enum waiting state;
    int from;                            /* IN_RECV: whose message it waits for */
    int64_t round;                       /* IN_BARRIER: the one it entered */
    struct thread_message *inbox, **end;         /* messages in order of arrival */
    pthread_cond_t wake;                 /* IN_RECV: a message has come, or will not */
    const char *mine;                    /* all_gather: what it shows the others */
    size_t bytes;
};

struct world {
    int R, inside;                       /* ranks inside the barrier */
    int64_t round;                       /* barriers completed */
    int showing;                         /* ranks in a gather that still copy */
    int64_t gathers;                     /* gathers completed */
    int failed, status, rank;
    char why[160];
    pthread_mutex_t lock;
    pthread_cond_t change;               /* IN_BARRIER: all are there, or will not be */
    int (*body)(struct kcp_comm *, void *);
    void *arg;
    kcp_copy *copy;                      /* between any two of the ranks' memories */
    struct member *member;
};

/* All three with the lock held. The first failure counts; the return is KCP_COMM. */
int threads_fail(struct world *w, int rank, int status, const char *why);
/* Sleep until something changes; KCP_COMM when the world has failed. */
int threads_wait(struct member *m, enum waiting state, const char *call);
/* The link to the oldest message from a rank; *link is NULL when none has come. */
struct thread_message **threads_message(struct member *m, int from);
kcp_copy threads_host_copy;
/* all_gather, send, recv, group, barrier of a comm. */
void threads_calls(struct kcp_comm *c);

#pragma GCC visibility pop

#endif
