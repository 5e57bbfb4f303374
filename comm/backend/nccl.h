/* nccl.h -- the NCCL calls that we use, found when the first communicator is made.
 *
 * Book: chapter 20.  Checked by: bench/check_gpus.sh.  Next: comm/backend/nccl.c.
 *
 * Not linked but opened, so that a program built with NCCL starts where there is none,
 * and uses the one that is loaded already (a caller's ncclComm_t is of that one). */
#ifndef KCP_NCCL_H
#define KCP_NCCL_H

#include "comm/options.h"

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

/* NULL, and why: no libnccl.so.2 here, or one without what we need. */
const struct nccl *nccl_open(char *why, size_t n);

enum { SHOWN_ROW = 1024 };              /* the most bytes that a rank shows at once */

struct nccl_rank {                          /* one rank; comm is its first member */
    struct kcp_comm comm;
    const struct nccl *nccl;
    ncclComm_t at;                     /* NULL once aborted */
    struct kcp_comm *_Atomic host;     /* who knows the lost; may be NULL */
    int number;                        /* by which lost() names this rank: the host's */
    int ours, device, *token;
    char *shown;                       /* R + 1 rows on the GPU, that ranks compare */
    double seconds;
    pthread_mutex_t lock, telling;     /* lock: while NCCL is called */
    pthread_t watch;
    int watching;
    atomic_int grouped;                /* under lock written; by whose thread: */
    pthread_t group_of;
    atomic_int watched, stop, failed;  /* the watch thread's and the caller's */
    int rank;                          /* of the first failure, under telling: */
    char why[300];
    struct kcp_window window;          /* comm.window leads here, where there are any */
    int *_Atomic kernels_end;          /* window.lost while it is allocated */
    char opened[KCP_WINDOW_RANKS];     /* rank's memory is of another process */
};

/* When the host ranks are told of a failure: at once, or after so many checks, 10 ms
 * apart, whether they know of one: NCCL may notice first that another rank is gone,
 * which is not this rank's failure. */
enum telling { TELL_NOBODY = 0, TELL_NOW = 1, TELL_LATER = 30 };
enum { THIS_RANK = -1 };               /* else the rank's number among the host's */
/* Remember the first failure, tell it, abort; returns KCP_COMM. */
int nccl_fail(struct nccl_rank *w, int rank, int status, const char *why,
              enum telling tell);
/* After a call: wait until NCCL has taken it over, or has failed, or time is up. */
int nccl_settle(struct nccl_rank *w, ncclComm_t at, ncclResult_t result,
                const char *call);
void nccl_calls(struct kcp_comm *c);
/* nccl_start.c: rank 0 makes the id and writes it to path, the others read it there. */
int nccl_id_by_file(const struct nccl *nccl, const char *path, int r, double seconds,
                    ncclUniqueId *id, char *why, size_t n);
/* is_quiet: after a barrier of all ranks, so that no kernel writes. */
void nccl_windows_free(struct nccl_rank *w, int is_quiet);

#pragma GCC visibility pop

#endif
