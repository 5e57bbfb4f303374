/* nccl.c -- communicator over NCCL with one GPU per rank: creation, failure and end.
 * Book: chapter 20.
 *
 * NCCL's unique id is sent through a file or over `host`, a communicator that needs no
 * GPU (threads of this process, or MPI). A watch thread checks `host` and NCCL for a
 * failure every 10 ms. */
#include "kcp.h"
#include <stdio.h>

#ifdef KCP_WITH_NCCL
#include "checked.h"
#include "nccl.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* Takes the lock and returns 1. If the caller made the communicator (w->ours = 0), an
 * NCCL call that hangs may hold the lock until the caller aborts the communicator. In
 * that case, waits only 200 ms and returns 0, so that fail() does not hang. */
static int lock_to_fail(struct nccl_rank *w)
{
    for (int i = 0; i < 20 && !w->ours; i++) {
        if (!pthread_mutex_trylock(&w->lock)) return 1;
        poll(NULL, 0, 10);
    }
    return w->ours && !pthread_mutex_lock(&w->lock);
}

/* Waits up to 2 s until no other thread has a group open, because a caller that made
 * the communicator may abort the communicator as soon as fail() returns. The group ends
 * soon, because after a failure every call in the group fails. */
static void wait_for_group(struct nccl_rank *w)
{
    for (int i = 0; i < 200 && w->grouped; i++) {
        if (pthread_equal(w->group_of, pthread_self())) return;
        poll(NULL, 0, 10);
    }
}

/* Records the first failure. Returns 1 if this failure is the first. Uses a separate
 * lock, so that lost() returns even if an NCCL call in another thread hangs. */
static int record_failure(struct nccl_rank *w, int rank, const char *why)
{
    pthread_mutex_lock(&w->recording);
    const int first = !w->failed;
    if (first) {
        w->rank = rank;
        snprintf(w->why, sizeof w->why, "%s", why);
        w->failed = 1;
    }
    pthread_mutex_unlock(&w->recording);
    return first;
}

/* Polls `host` every 10 ms (nccl.h explains `when`). Returns 1 if a rank is lost. */
static int host_reports(struct kcp_comm *host, enum reporting when, int *rank,
                        char *why, size_t n)
{
    int reports = 0;
    for (int i = 0; i < (int)when && host && !reports; i++) {
        if (i) poll(NULL, 0, 10);
        reports = host->lost(host, rank, why, n);
    }
    return reports;
}

/* Reports the failure to the ranks of `host` before calling NCCL, because the NCCL call
 * may block and gives other ranks fewer details than `host`. Aborts a communicator that
 * this library made, so that no stream waits forever. A communicator that the caller
 * made must be aborted by the caller. */
int nccl_fail(struct nccl_rank *w, int rank, int status, const char *why,
              enum reporting when)
{
    struct kcp_comm *host = w->host;
    int lost = rank == THIS_RANK ? w->number : rank;
    char reported[160] = "";
    const int is_reported = host_reports(host, when, &lost, reported, sizeof reported);
    const int first = record_failure(w, lost, is_reported ? reported : why);
    if (first && host && when != REPORT_NEVER && !is_reported)
        host->fail(host, status, why);
    ncclComm_t at = NULL;
    const int locked = lock_to_fail(w);
    if (locked && !w->grouped) {             /* if grouped, nccl_group aborts w->at */
        at = w->at;
        w->at = NULL;
    }
    if (locked) pthread_mutex_unlock(&w->lock);
    if (at && w->ours) w->nccl->ncclCommAbort(at);
    if (!w->ours) wait_for_group(w);
    return KCP_COMM;
}

/* Returns NCCL's asynchronous error, or ncclSuccess if another thread holds the lock
 * for more than `ms` milliseconds. */
static ncclResult_t async_error(struct nccl_rank *w, int ms)
{
    ncclResult_t result = ncclSuccess;
    for (; pthread_mutex_trylock(&w->lock); ms--) {
        if (ms <= 0) return ncclSuccess;
        poll(NULL, 0, 1);
    }
    if (w->at && !w->failed) w->nccl->ncclCommGetAsyncError(w->at, &result);
    pthread_mutex_unlock(&w->lock);
    return result == ncclInProgress ? ncclSuccess : result;
}

//> watch
static void *watch_thread(void *arg)
{
    struct nccl_rank *w = arg;
    char why[160];
    int rank;
    cudaSetDevice(w->device);
    while (!w->stop && !w->failed) {
        struct kcp_comm *host = w->host;
        if (host && host->lost(host, &rank, why, sizeof why)) {
            nccl_fail(w, rank, KCP_COMM, why, REPORT_NEVER);
            break;
        }
        const ncclResult_t result = async_error(w, 0);
        if (result != ncclSuccess) {
            snprintf(why, sizeof why, "NCCL: %s", w->nccl->ncclGetErrorString(result));
            nccl_fail(w, THIS_RANK, KCP_COMM, why, REPORT_LATER);
        }
        poll(NULL, 0, 10);
    }
    w->watched = 1;
    return NULL;
}
//< watch

/* Reports the caller's failure. If NCCL has an error too, waits first for a report from
 * `host`, because the loss of another rank causes NCCL errors on this rank. */
static void nccl_comm_fail(struct kcp_comm *c, int status, const char *why)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    nccl_fail(w, THIS_RANK, status, why,
              async_error(w, 50) ? REPORT_LATER : REPORT_NOW);
}

static int nccl_comm_lost(struct kcp_comm *c, int *rank, char *why, size_t n)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    pthread_mutex_lock(&w->recording);
    const int failed = w->failed;
    if (failed && rank) *rank = w->rank;
    if (failed && why) snprintf(why, n, "%s", w->why);
    pthread_mutex_unlock(&w->recording);
    return failed;
}

static void nccl_comm_free(struct kcp_comm *c)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    w->stop = 1;
    for (int i = 0; i < 500 && w->watching && !w->watched; i++)
        poll(NULL, 0, 10);
    if (w->watching && !w->watched) {         /* the watch thread uses w */
        pthread_detach(w->watch);
        return;
    }
    if (w->watching) pthread_join(w->watch, NULL);
    if (w->ours && w->at && !w->failed &&
        !nccl_settle(w, w->at, w->nccl->ncclCommFinalize(w->at), "finalize"))
        w->nccl->ncclCommDestroy(w->at);
    if (w->token) cudaFree(w->token);
    if (w->shown) cudaFree(w->shown);
    pthread_mutex_destroy(&w->recording);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static int make_rank(struct nccl_rank **made, struct kcp_comm *host, char *why,
                     size_t n)
{
    double seconds;
    *made = NULL;
    if (kcp_timeout(&seconds, why, n)) return KCP_BAD;
    const struct nccl *nccl = nccl_open(why, n);
    struct nccl_rank *w = nccl ? calloc(1, sizeof *w) : NULL;
    if (!w) return KCP_CUDA;
    w->comm = (struct kcp_comm){ .backend = "nccl", .fail = nccl_comm_fail,
                                 .lost = nccl_comm_lost, .free = nccl_comm_free };
    nccl_calls(&w->comm);
    w->nccl = nccl;
    w->host = host;
    w->number = host ? host->r : -1;          /* -1 until begin_rank sets `number` */
    w->ours = 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->recording, NULL);
    w->seconds = seconds;
    if (cudaGetDevice(&w->device) ||
        cudaMalloc((void **)&w->token, sizeof *w->token) ||
        cudaMemset(w->token, 0, sizeof *w->token)) {
        snprintf(why, n, "no CUDA device");
        nccl_comm_free(&w->comm);
        return KCP_CUDA;
    }
    *made = w;
    return KCP_OK;
}

static int begin_rank(struct nccl_rank *w, struct kcp_comm **comm)
{
    if (w->nccl->ncclCommCount(w->at, &w->comm.R) ||
        w->nccl->ncclCommUserRank(w->at, &w->comm.r))
        return KCP_COMM;
    if (cudaMalloc((void **)&w->shown, ((size_t)w->comm.R + 1) * SHOWN_ROW))
        return KCP_NO_MEMORY;
    if (w->number < 0) w->number = w->comm.r;
    w->watching = !pthread_create(&w->watch, NULL, watch_thread, w);
    *comm = &w->comm;
    return KCP_OK;
}

/* Creates the NCCL communicator of R ranks from `id`. */
static int init_rank(struct nccl_rank *w, int R, int r, ncclUniqueId id,
                     struct kcp_comm **comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    w->comm.r = r;
    const ncclResult_t result =
        w->nccl->ncclCommInitRankConfig(&w->at, R, id, r, &config);
    const int err = nccl_settle(w, w->at, result, "init");
    return err ? err : begin_rank(w, comm);
}

/* Rank 0 creates the id and sends the id to the other ranks over `host`. */
static int id_over(struct nccl_rank *w, struct kcp_comm *host, ncclUniqueId *id)
{
    if (host->r > 0) return host->recv(host, id, sizeof *id, 0, NULL);
    int err = w->nccl->ncclGetUniqueId(id) ? KCP_COMM : KCP_OK;
    for (int r = 1; r < host->R && !err; r++)
        err = host->send(host, id, sizeof *id, r, NULL);
    return err;
}

/* Creates a communicator. Rank 0 sends the id over `host`, or through the file `path`
 * if `host` is NULL. On failure, calls host->fail unless `host` is NULL. */
static int meet(struct kcp_comm **comm, struct kcp_comm *host, const char *path, int R,
                int r, char *why, size_t n)
{
    ncclUniqueId id;
    struct nccl_rank *w;
    char unread[160];
    n = why ? n : sizeof unread;
    why = why ? why : unread;
    why[0] = 0;
    int err = make_rank(&w, host, why, n);
    if (!err && host) err = id_over(w, host, &id);
    else if (!err) err = nccl_id_by_file(w->nccl, path, r, w->seconds, &id, why, n);
    if (!err) err = init_rank(w, R, r, id, comm);
    if (!err) return KCP_OK;
    *comm = NULL;
    if (w && w->failed) snprintf(why, n, "%s", w->why);
    else if (!why[0]) snprintf(why, n, "NCCL did not start");
    if (w) nccl_comm_free(&w->comm);
    if (host) host->fail(host, err, why);
    return err;
}

int kcp_nccl_over(struct kcp_comm **comm, struct kcp_comm *host, char *why, size_t n)
{
    return comm && host ? meet(comm, host, NULL, host->R, host->r, why, n) : KCP_BAD;
}

int kcp_nccl_by_file(struct kcp_comm **comm, const char *path, int R, int r, char *why,
                     size_t n)
{
    const int is_right = comm && path && R >= 1 && r >= 0 && r < R;
    return is_right ? meet(comm, NULL, path, R, r, why, n) : KCP_BAD;
}

int kcp_nccl_from(struct kcp_comm **comm, struct ncclComm *nccl)
{
    char why[160] = "";
    if (!comm || !nccl) return KCP_BAD;
    *comm = NULL;
    struct nccl_rank *w;
    int err = make_rank(&w, NULL, why, sizeof why);
    if (err) return kcp_refuse(err, "kcp_nccl_from: %s", why);
    w->at = nccl;
    w->ours = 0;
    err = begin_rank(w, comm);
    if (err) nccl_comm_free(&w->comm);
    return err ? kcp_refuse(err, "kcp_nccl_from: invalid ncclComm_t, or out of memory")
               : KCP_OK;
}

int kcp_nccl_split(struct kcp_comm *from, int color, int key, struct kcp_comm **comm)
{
    struct nccl_rank *all = (struct nccl_rank *)from, *w;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    char why[160] = "";
    if (!comm || !from) return KCP_BAD;
    *comm = NULL;
    if (strcmp(from->backend, "nccl")) return KCP_NA;
    int err = make_rank(&w, all->host, why, sizeof why);
    if (err) return kcp_refuse(err, "kcp_nccl_split: %s", why);
    w->number = all->number;
    config.blocking = 0;
    pthread_mutex_lock(&all->lock);
    const int nccl_color = color < 0 ? NCCL_SPLIT_NOCOLOR : color;
    ncclResult_t result = ncclInternalError;
    const ncclComm_t whole = all->at;
    if (whole && !all->failed)
        result = all->nccl->ncclCommSplit(whole, nccl_color, key, &w->at, &config);
    pthread_mutex_unlock(&all->lock);
    if (result == ncclSuccess)                /* NCCL reports success */
        result = ncclInProgress;              /* before w->at is written */
    err = all->failed ? KCP_COMM : nccl_settle(all, whole, result, "split");
    if (!err && !w->at && color >= 0) err = KCP_COMM;
    if (!err && w->at) err = nccl_settle(w, w->at, ncclInProgress, "split");
    if (!err && w->at) err = begin_rank(w, comm);
    if (!*comm) nccl_comm_free(&w->comm);
    return err;
}

#else
int kcp_nccl_over(struct kcp_comm **comm, struct kcp_comm *host, char *why, size_t n)
{
    if (comm) *comm = NULL;
    if (why) snprintf(why, n, "built without NCCL");
    return KCP_NA;
}

int kcp_nccl_by_file(struct kcp_comm **comm, const char *path, int R, int r, char *why,
                     size_t n)
{
    return kcp_nccl_over(comm, NULL, why, n);
}

int kcp_nccl_from(struct kcp_comm **comm, struct ncclComm *nccl)
{
    return kcp_nccl_over(comm, NULL, NULL, 0);
}

int kcp_nccl_split(struct kcp_comm *from, int color, int key, struct kcp_comm **comm)
{
    return kcp_nccl_over(comm, NULL, NULL, 0);
}
#endif
