/* tcp.h -- one rank of a job of processes: connections, messages, who was lost.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh.  Next: comm/backend/tcp.c. */
#ifndef KCP_TCP_H
#define KCP_TCP_H

#include "comm/bootstrap.h"

#include <pthread.h>
#include <stdatomic.h>

#pragma GCC visibility push(hidden)

enum kind { MESSAGE, GATHERED, ALIVE, FAILED, GOODBYE };
struct frame { int32_t kind, rank, status, pad; uint64_t bytes; };

struct tcp_message {
    struct tcp_message *next;
    int from, kind;
    size_t bytes;
    char data[];
};

/* The frame that is coming from a rank: so many bytes of it, head first, are here. */
struct incoming {
    struct frame f;
    size_t got;
    int waits;                         /* its body, until somebody expects it */
    struct tcp_message *message;       /* or, of a failure, the words: */
    char why[160];
};

enum { NOTHING_EXPECTED = -1 };

/* What the reader thread and the callers share is atomic, or under lock. */
struct tcp_rank {                      /* comm is its first member */
    struct kcp_comm comm;
    struct tcp_rank *next;             /* of this process, those with a reader */
    double seconds;                    /* the timeout */
    double parting;                    /* how long free waits for the others' goodbye */
    int *fd;                           /* [R] */
    atomic_int *gone;                  /* [R] it said goodbye, or is lost */
    atomic_int *broken;                /* [R] a frame to it was cut short: no more */
    _Atomic double *heard;             /* [R] when */
    _Atomic int64_t *expected;         /* [R] bytes that a caller waits for, or -1 */
    _Atomic int64_t largest;           /* message that this rank itself has sent */
    struct incoming *incoming;         /* [R] the reader's */
    pthread_mutex_t lock, *writing;    /* [R] one frame at a time on a connection */
    pthread_cond_t change;
    pthread_t reader;
    struct pollfd *polled;             /* [R+1] the reader's */
    int started, locks, wake[2];       /* a pipe that wakes the reader */
    atomic_int stop, failed, announced;
    int rank, status;                  /* of the first failure, under lock: */
    char why[160];
    struct tcp_message *inbox, **end;
};

/* The thread that reads, until p->stop. */
void *tcp_reader(void *tcp_rank);
/* A frame to a rank, whatever has failed; KCP_COMM: not by then. */
int tcp_send_frame(struct tcp_rank *p, int to, struct frame f, const void *data,
                   double until);
/* A frame to a rank that is there to read it; KCP_COMM, and all are told, if not. */
int tcp_send_or_fail(struct tcp_rank *p, int to, struct frame f, const void *data,
                     const char *call);
/* From now on a frame of so many bytes from a rank is waited for. */
void tcp_expect(struct tcp_rank *p, int from, int64_t bytes);
/* The oldest message of this kind from a rank, waited for; NULL: the job failed. */
struct tcp_message *tcp_await(struct tcp_rank *p, int from, int kind, const char *call);
/* The job has failed: remembered here, told to everybody once; returns KCP_COMM. */
int tcp_fail(struct tcp_rank *p, int rank, int status, const char *why);
/* A rank over connections that are there; from now on they are its own. */
int tcp_over(struct kcp_comm **comm, const struct kcp_who *who, double seconds,
             double parting, int *fd, char *why, size_t n);
/* To all that are left: this process ends in order. Waits for nobody. */
void tcp_say_goodbye(struct kcp_comm *comm);
/* Who has said goodbye, or has not been heard of for longer than who lives; -1: all
 * are there. */
int tcp_suspect(const struct kcp_comm *comm);
/* As free, but nobody is told. */
void tcp_drop(struct kcp_comm *comm);
/* all_gather, send, recv, group, barrier of a comm. */
void tcp_calls(struct kcp_comm *c);

#pragma GCC visibility pop

#endif
