/* nccl_calls.c -- send, recv, all_gather, group and barrier over NCCL, with a timeout.
 * Book: chapter 20.
 *
 * A communicator that this library made is non-blocking: a call returns at once, and
 * this file polls until NCCL has put the work on the stream. So such a call holds the
 * lock only briefly, and another thread can abort the communicator. While a group is
 * open, NCCL uses the communicator, so an abort waits for the group's end. */
#ifdef KCP_WITH_NCCL
#include "nccl.h"
#include "base/clock.h"

#include <sched.h>
#include <stdio.h>

int nccl_settle(struct nccl_rank *w, ncclComm_t at, ncclResult_t result,
                const char *call)
{
    const double until = seconds_now() + w->seconds;
    char why[160] = "";
    while (result == ncclInProgress && !why[0]) {
        sched_yield();
        pthread_mutex_lock(&w->lock);
        if (w->failed) result = ncclInternalError;
        else if (w->nccl->ncclCommGetAsyncError(at, &result))
            result = ncclInternalError;
        pthread_mutex_unlock(&w->lock);
        if (seconds_now() > until)
            snprintf(why, sizeof why, "%s did not complete within %.0f s", call,
                     w->seconds);
    }
    if (w->failed) return KCP_COMM;
    if (result == ncclSuccess) return KCP_OK;
    if (!why[0])
        snprintf(why, sizeof why, "%s: NCCL: %s", call,
                 w->nccl->ncclGetErrorString(result));
    return nccl_fail(w, THIS_RANK, KCP_COMM, why, REPORT_LATER);
}

/* Makes an NCCL call, or returns KCP_COMM if the communicator has failed. Inside a
 * group the call does not wait, because the end of the group waits. */
#define CALL(w, name, call)                                                           \
    ncclResult_t result = ncclInternalError;                                          \
    pthread_mutex_lock(&(w)->lock);                                                   \
    const ncclComm_t at = (w)->at;             /* a failure sets w->at to NULL */      \
    const int there = at && !(w)->failed, grouped = (w)->grouped;                     \
    if (there) result = (w)->nccl->call;                                              \
    pthread_mutex_unlock(&(w)->lock);                                                 \
    if (!there) return KCP_COMM;                                                      \
    if (grouped && result == ncclInProgress) result = ncclSuccess;                    \
    return nccl_settle(w, at, result, name)

static int nccl_all_gather(struct kcp_comm *c, const void *mine, void *all,
                           size_t bytes, struct CUstream_st *stream)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    c->traffic.bytes += (int64_t)(c->R - 1) * (int64_t)bytes;
    c->traffic.collectives++;
    CALL(w, "all_gather", ncclAllGather(mine, all, bytes, ncclChar, w->at, stream));
}

static int nccl_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                     struct CUstream_st *stream)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    if (to < 0 || to >= c->R || to == c->r) return KCP_BAD;
    c->traffic.bytes += (int64_t)bytes;
    c->traffic.messages++;
    CALL(w, "send", ncclSend(data, bytes, ncclChar, to, w->at, stream));
}

static int nccl_recv(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    if (from < 0 || from >= c->R || from == c->r) return KCP_BAD;
    CALL(w, "recv", ncclRecv(data, bytes, ncclChar, from, w->at, stream));
}

static int nccl_group(struct kcp_comm *c, int begin)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    pthread_mutex_lock(&w->lock);
    const int was = w->grouped, failed = w->failed || !w->at;
    ncclResult_t result = ncclSuccess;
    int opened = 0;
    if (begin && !failed) {
        result = w->nccl->ncclGroupStart();
        opened = result == ncclSuccess;
    }
    if (opened) {
        w->group_of = pthread_self();
        w->grouped = 1;
    }
    if (!begin && was) {
        w->grouped = 0;                    /* cleared first: ncclGroupEnd may hang */
        result = w->nccl->ncclGroupEnd();
        if (w->failed && w->at && w->ours) w->nccl->ncclCommAbort(w->at);
        if (w->failed) w->at = NULL;
    }
    const ncclComm_t at = w->at;
    pthread_mutex_unlock(&w->lock);
    if (opened)                            /* even if w->failed has become 1, */
        return KCP_OK;                     /* the caller must end this group */
    return failed ? KCP_COMM : nccl_settle(w, at, result, "group");
}

//> wait
static int wait_for_stream(struct nccl_rank *w, struct CUstream_st *stream,
                           const char *call)
{
    const double until = seconds_now() + w->seconds;
    char why[160];
    for (;;) {
        const cudaError_t cuda = cudaStreamQuery(stream);
        if (w->failed) return KCP_COMM;
        if (cuda == cudaSuccess) return KCP_OK;
        if (cuda != cudaErrorNotReady)
            snprintf(why, sizeof why, "%s: %s", call, cudaGetErrorString(cuda));
        else if (seconds_now() > until)
            snprintf(why, sizeof why, "%s: work on the stream did not complete within "
                     "%.0f s", call, w->seconds);
        else {
            sched_yield();
            continue;
        }
        if (cuda == cudaErrorNotReady)
            return nccl_fail(w, THIS_RANK, KCP_COMM, why, REPORT_LATER);
        return nccl_fail(w, THIS_RANK, KCP_CUDA, why, REPORT_NOW);
    }
}

/* Returns 1 if a graph captures the stream, or if the state of the stream is
 * unknown. */
static int is_captured(struct CUstream_st *stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &capture) ||
           capture != cudaStreamCaptureStatusNone;
}

static int sum_tokens(struct nccl_rank *w, struct CUstream_st *stream)
{
    CALL(w, "barrier", ncclAllReduce(w->token, w->token, 1, ncclInt, ncclSum, w->at,
                                     stream));
}

/* Waits for all ranks and for the work on the stream. */
static int nccl_barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    const int err = sum_tokens(w, stream);
    return err ? err : wait_for_stream(w, stream, "barrier");
}
//< wait

/* Gathers one row of host memory per rank. The rows pass through GPU memory. */
static int nccl_show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                     struct CUstream_st *stream)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    if (is_captured(stream)) return KCP_NA;
    const struct kcp_traffic before = c->traffic;
    const size_t R = (size_t)c->R;
    if (bytes > SHOWN_ROW) return KCP_BAD;
    char *own = w->shown + R * bytes;
    int err = cudaMemcpyAsync(own, mine, bytes, cudaMemcpyHostToDevice, stream)
            ? nccl_fail(w, THIS_RANK, KCP_CUDA, "cudaMemcpyAsync failed", REPORT_NOW)
            : KCP_OK;
    if (!err) err = nccl_all_gather(c, own, w->shown, bytes, stream);
    c->traffic = before;
    if (!err) err = wait_for_stream(w, stream, "the comparison of plans");
    if (!err && cudaMemcpyAsync(all, w->shown, R * bytes, cudaMemcpyDeviceToHost,
                                stream))
        err = nccl_fail(w, THIS_RANK, KCP_CUDA, "cudaMemcpyAsync failed", REPORT_NOW);
    return err ? err : wait_for_stream(w, stream, "the comparison of plans");
}

void nccl_calls(struct kcp_comm *c)
{
    c->all_gather = nccl_all_gather;
    c->send = nccl_send;
    c->recv = nccl_recv;
    c->group = nccl_group;
    c->barrier = nccl_barrier;
    c->show = nccl_show;
    c->show_waits = 1;
}
#endif
typedef int kcp_nccl_calls_is_not_empty;
