/* process.h -- one rank of a job of processes: connections, letters, who was lost.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh.  Next: process.c. */
#ifndef KCP_PROCESS_H
#define KCP_PROCESS_H

#include "comm/bootstrap.h"

#include <pthread.h>

enum kind { LETTER, GATHERED, ALIVE, FAILED, GOODBYE };
struct frame { int32_t kind, rank, status, pad; uint64_t bytes; };

struct post {
    struct post *next;
    int from, kind;
    size_t bytes;
    char data[];
};

/* The frame that is coming from a rank: so many bytes of it, head first, are here. */
struct coming {
    struct frame f;
    size_t got;
    struct post *post;                 /* of a letter; of a failure the words */
    char why[160];
};

struct process {                       /* comm is its first member */
    struct kcp_comm comm;
    double seconds;                    /* the timeout */
    int *fd, *gone;                    /* [R]; gone: it said goodbye */
    double *heard;                     /* [R] when */
    struct coming *coming;             /* [R] */
    pthread_mutex_t lock, *writing;    /* [R] one frame at a time on a connection */
    pthread_cond_t change;
    pthread_t reader;
    int started, stop[2];              /* a pipe that wakes the reader for good */
    int failed, rank, status;
    char why[160];
    struct post *mail, **end;
};

/* A frame to a rank, as it stands; and the thread that reads, until p->stop. */
int process_post(struct process *p, int to, struct frame f, const void *data);
void *process_reader(void *process);
/* A frame to a rank that is there to read it; KCP_COMM, and all are told, if not. */
int process_reach(struct process *p, int to, struct frame f, const void *data,
                  const char *call);
/* The oldest letter of this kind from a rank, waited for; NULL when the job failed. */
struct post *process_wait(struct process *p, int from, int kind, const char *call);
/* The job has failed: remembered here, told to everybody; returns KCP_COMM. */
int process_announce(struct process *p, int rank, int status, const char *why);
/* all_gather, send, recv, group, barrier of a comm. */
void process_calls(struct kcp_comm *c);

#endif
