/* nccl.h -- NCCL's functions, loaded at run time, and the data of a rank.
 * Book: chapter 20.
 *
 * The first communicator opens libnccl, so that a program can start without libnccl. If
 * the caller has already loaded libnccl, that copy is used. */
#pragma once

#include "kcp.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#pragma GCC visibility push(hidden)

#define NCCL_CALLS(F)                                                                 \
    F(ncclGetUniqueId) F(ncclCommInitRankConfig) F(ncclCommSplit)                     \
    F(ncclCommGetAsyncError) F(ncclCommAbort) F(ncclCommFinalize) F(ncclCommDestroy)  \
    F(ncclCommCount) F(ncclCommUserRank) F(ncclGetErrorString) F(ncclAllGather)       \
    F(ncclAllReduce) F(ncclSend) F(ncclRecv) F(ncclGroupStart) F(ncclGroupEnd)
#define NCCL_MEMBER(f) __typeof__(f) *f;
struct nccl { NCCL_CALLS(NCCL_MEMBER) };

/* Returns NULL if libnccl.so.2, or one of these functions, is missing. Then `why` has
 * the name of the missing library or function. */
const struct nccl *nccl_open(char *why, size_t n);

enum { SHOWN_ROW = 1024 };              /* maximum bytes per rank in show() */

struct nccl_rank {                          /* data of one rank; `comm` must be first */
    struct kcp_comm comm;
    const struct nccl *nccl;
    ncclComm_t at;                     /* NULL after an abort */
    struct kcp_comm *_Atomic host;     /* reports lost ranks; may be NULL */
    int number;                        /* this rank's number in reports of lost() */
    int ours, device, *token;          /* ours: this library made `at` */
    char *shown;                       /* R + 1 rows on the GPU, for show() */
    double seconds;
    pthread_mutex_t lock, recording;   /* lock: held during NCCL calls */
    pthread_t watch;
    int watching;
    atomic_int grouped;                /* 1: thread `group_of` has an open group */
    pthread_t group_of;
    atomic_int watched, stop, failed;  /* shared with the watch thread */
    int rank;                          /* first failed rank, guarded by `recording` */
    char why[300];
};

/* NCCL may notice the loss of another rank before `host` does. Therefore nccl_fail
 * first polls `host` up to `when` times, 10 ms apart. If `host` reports no lost rank,
 * nccl_fail reports the failure to `host`, unless `when` is REPORT_NEVER. */
enum reporting { REPORT_NEVER = 0, REPORT_NOW = 1, REPORT_LATER = 30 };
enum { THIS_RANK = -1 };               /* passed as `rank` to nccl_fail: this rank */
/* Reports the first failure, aborts w->at if w->ours is 1, and returns KCP_COMM. */
int nccl_fail(struct nccl_rank *w, int rank, int status, const char *why,
              enum reporting when);
/* Waits until NCCL has accepted or rejected the NCCL call that returned `result`, or
 * until the timeout has passed. */
int nccl_settle(struct nccl_rank *w, ncclComm_t at, ncclResult_t result,
                const char *call);
void nccl_calls(struct kcp_comm *c);
/* Rank 0 creates the id and writes the id to the file `path`. Other ranks read `path`
 * (nccl_start.c). */
int nccl_id_by_file(const struct nccl *nccl, const char *path, int r, double seconds,
                    ncclUniqueId *id, char *why, size_t n);

#pragma GCC visibility pop
