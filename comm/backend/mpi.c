/* mpi.c -- communicator over MPI: one process per rank, and messages in host memory.
 * Book: chapter 20.
 *
 * A call posts send and receive requests, and polls them until all are complete.
 * Between polls the call also tests whether another rank has reported a failure, and
 * whether KCP_TIMEOUT_S seconds have passed. In a group, `send` and `recv` only post;
 * the group's end waits. Each MPI call holds a lock, except in kcp_mpi_over and
 * mpi_free. If a process dies, the launcher (mpirun, srun) ends all processes. */
#ifdef KCP_WITH_MPI
#include <mpi.h>

#include "kcp_mpi.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef KCP_MPI_PIECE
#define KCP_MPI_PIECE (1 << 30)    /* maximum bytes per MPI message */
#endif
enum tag { MESSAGE, GATHERED, FAILED };
enum kind { SEND, RECV };

struct note { int rank, status; char why[160]; };
struct posted { MPI_Request request; enum kind kind; int peer, bytes; };
struct mpi_rank {                      /* `comm` must be first */
    struct kcp_comm comm;
    MPI_Comm at;                       /* duplicate of the caller's MPI_Comm */
    double seconds;
    pthread_mutex_t lock;              /* around every MPI call */
    int grouped, n, capacity, failed;
    struct posted *posted;
    struct note note;                  /* the first failure */
};

int kcp_mpi_has_failed;

/* ---- failure: only the first failure is recorded. The caller holds the lock. */
static int fail_locked(struct mpi_rank *p, int rank, int status, const char *why)
{
    if (p->failed) return KCP_COMM;
    p->failed = kcp_mpi_has_failed = 1;
    p->note = (struct note){ rank, status, "" };
    snprintf(p->note.why, sizeof p->note.why, "%s", why);
    for (int r = 0; r < p->comm.R; r++) {
        MPI_Request sent;              /* is not waited for; mpi_free keeps p->note */
        if (r != p->comm.r && !MPI_Isend(&p->note, sizeof p->note, MPI_BYTE, r, FAILED,
                                         p->at, &sent))
            MPI_Request_free(&sent);
    }
    return KCP_COMM;
}

/* Returns KCP_COMM if this rank has failed or has received a FAILED message. */
static int check_notes(struct mpi_rank *p)
{
    int is_there = 0;
    MPI_Status s;
    if (!p->failed && !MPI_Iprobe(MPI_ANY_SOURCE, FAILED, p->at, &is_there, &s) &&
        is_there && !MPI_Recv(&p->note, sizeof p->note, MPI_BYTE, s.MPI_SOURCE, FAILED,
                              p->at, &s))
        p->failed = kcp_mpi_has_failed = 1;
    return p->failed ? KCP_COMM : KCP_OK;
}

static int fail_size(struct mpi_rank *p, const char *call, int peer)
{
    char why[80];
    snprintf(why, sizeof why, "%s: rank %d sent a message of another size than "
             "expected", call, peer);
    return fail_locked(p, p->comm.r, KCP_COMM, why);
}

static int fail_mpi(struct mpi_rank *p, int peer, int code, const char *call)
{
    char words[MPI_MAX_ERROR_STRING] = "", why[160];
    int class = 0, n;
    MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE) return fail_size(p, call, peer);
    MPI_Error_string(code, words, &n);
    snprintf(why, sizeof why, "%s, rank %d: %.120s", call, peer, words);
    return fail_locked(p, p->comm.r, KCP_COMM, why);
}

/* ---- post, and wait */
static int make_room(struct mpi_rank *p)
{
    const int capacity = 2 * p->capacity + 16;
    if (p->n < p->capacity) return KCP_OK;
    struct posted *posted = realloc(p->posted, sizeof *posted * (size_t)capacity);
    if (!posted) return fail_locked(p, p->comm.r, KCP_NO_MEMORY, "out of memory");
    p->posted = posted;
    p->capacity = capacity;
    return KCP_OK;
}

static int post_piece(struct mpi_rank *p, char *data, int bytes, int peer,
                      enum kind kind, enum tag tag, const char *call)
{
    MPI_Request request;
    int code;
    if (make_room(p)) return KCP_COMM;
    if (kind == RECV)
        code = MPI_Irecv(data, bytes, MPI_BYTE, peer, (int)tag, p->at, &request);
    else code = MPI_Isend(data, bytes, MPI_BYTE, peer, (int)tag, p->at, &request);
    if (code) return fail_mpi(p, peer, code, call);
    p->posted[p->n++] = (struct posted){ request, kind, peer, bytes };
    return KCP_OK;
}

/* Posts a message in pieces of at most KCP_MPI_PIECE bytes. Pieces with equal tags
 * arrive in order. A message of 0 bytes is also sent. */
static int post(struct mpi_rank *p, const void *data, size_t bytes, int peer,
                enum kind kind, enum tag tag, const char *call)
{
    char *at = (char *)data;
    int err = check_notes(p);
    do {
        const int k = bytes < KCP_MPI_PIECE ? (int)bytes : KCP_MPI_PIECE;
        if (!err) err = post_piece(p, at, k, peer, kind, tag, call);
        at += k;
        bytes -= (size_t)k;
    } while (bytes && !err);
    return err;
}

/* Cancels the pending receives, because the caller may reuse the buffers. Sends in
 * flight are not cancelled, because MPI 4.0 deprecates cancelling a send. */
static void drop_requests(struct mpi_rank *p)
{
    for (int i = 0; i < p->n; i++) {
        if (p->posted[i].request == MPI_REQUEST_NULL) continue;
        if (p->posted[i].kind == RECV) MPI_Cancel(&p->posted[i].request);
        MPI_Request_free(&p->posted[i].request);
    }
    p->n = 0;
}

/* Pauses between two polls, because there may be more ranks than cores. `turn` counts
 * the polls. The first 200 pauses only yield, the next 1,800 pauses sleep for 20 us,
 * and later pauses sleep for 500 us. */
static void pause_unlocked(struct mpi_rank *p, int turn)
{
    const struct timespec nap = { 0, turn < 2000 ? 20000 : 500000 };
    pthread_mutex_unlock(&p->lock);
    if (turn < 200) sched_yield();
    else nanosleep(&nap, NULL);
    pthread_mutex_lock(&p->lock);
}

/* Tests one request. A message shorter than expected is an error. */
static int test_request(struct mpi_rank *p, int i, const char *call)
{
    const struct posted *x = &p->posted[i];
    MPI_Status s;
    int done = 0, got = 0;
    const int code = MPI_Test(&p->posted[i].request, &done, &s);
    if (code) return fail_mpi(p, x->peer, code, call);
    if (!done || x->kind != RECV) return KCP_OK;
    if (MPI_Get_count(&s, MPI_BYTE, &got) || got != x->bytes)
        return fail_size(p, call, x->peer);
    return KCP_OK;
}

/* Waits for all requests. Tests each request separately, to find an error in one
 * request while other requests are incomplete. */
static int wait_all(struct mpi_rank *p, const char *call, int err)
{
    const double until = MPI_Wtime() + p->seconds;
    char why[160];
    int first = 0;
    for (int turn = 0; !err && first < p->n; turn++) {
        for (int i = first; i < p->n && !err; i++)
            if (p->posted[i].request != MPI_REQUEST_NULL)
                err = test_request(p, i, call);
        while (first < p->n && p->posted[first].request == MPI_REQUEST_NULL)
            first++;
        if (err || first == p->n) break;
        err = check_notes(p);
        if (!err && MPI_Wtime() > until) {
            snprintf(why, sizeof why, "%s did not complete within %.0f s", call,
                     p->seconds);
            err = fail_locked(p, p->posted[first].peer, KCP_COMM, why);
        }
        if (!err) pause_unlocked(p, turn);
    }
    drop_requests(p);
    return err ? KCP_COMM : KCP_OK;
}

/* ---- the calls */
static int gather(struct mpi_rank *p, const void *mine, void *all, size_t bytes,
                  const char *call)
{
    const int R = p->comm.R, r = p->comm.r;
    char *row = all;
    int err = KCP_OK;
    if (bytes && row + (size_t)r * bytes != mine)
        memcpy(row + (size_t)r * bytes, mine, bytes);
    pthread_mutex_lock(&p->lock);
    for (int d = 1; d < R && !err; d++) {
        const int from = (r + R - d) % R;
        err = post(p, row + (size_t)from * bytes, bytes, from, RECV, GATHERED, call);
    }
    for (int d = 1; d < R && !err; d++)
        err = post(p, mine, bytes, (r + d) % R, SEND, GATHERED, call);
    err = wait_all(p, call, err);
    pthread_mutex_unlock(&p->lock);
    return err;
}

static int mpi_all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                          struct CUstream_st *stream)
{
    c->traffic.bytes += (int64_t)(c->R - 1) * (int64_t)bytes;
    c->traffic.collectives++;
    return gather((struct mpi_rank *)c, mine, all, bytes, "all_gather");
}

static int mpi_show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                    struct CUstream_st *stream)
{
    return gather((struct mpi_rank *)c, mine, all, bytes, "all_gather");
}

/* The barrier is a gather of 0 bytes: unlike MPI_Barrier, it reports a missing rank. */
static int mpi_barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    char none[1] = { 0 };
    return gather((struct mpi_rank *)c, none, none, 0, "barrier");
}

static int move(struct kcp_comm *c, const void *data, size_t bytes, int peer,
                enum kind kind)
{
    struct mpi_rank *p = (struct mpi_rank *)c;
    const char *call = kind == RECV ? "recv" : "send";
    if (peer < 0 || peer >= c->R || peer == c->r) return KCP_BAD;
    pthread_mutex_lock(&p->lock);
    int err = post(p, data, bytes, peer, kind, MESSAGE, call);
    if (!p->grouped) err = wait_all(p, call, err);
    pthread_mutex_unlock(&p->lock);
    return err;
}

static int mpi_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                    struct CUstream_st *stream)
{
    c->traffic.bytes += (int64_t)bytes;
    c->traffic.messages++;
    return move(c, data, bytes, to, SEND);
}

static int mpi_recv(struct kcp_comm *c, void *data, size_t bytes, int from,
                    struct CUstream_st *stream)
{
    return move(c, data, bytes, from, RECV);
}

static int mpi_group(struct kcp_comm *c, int begin)
{
    struct mpi_rank *p = (struct mpi_rank *)c;
    pthread_mutex_lock(&p->lock);
    const int was = p->grouped;
    int err = KCP_OK;
    p->grouped = begin;
    if (!begin && was) err = wait_all(p, "group", check_notes(p));
    pthread_mutex_unlock(&p->lock);
    return err;
}

static void mpi_fail(struct kcp_comm *c, int status, const char *why)
{
    struct mpi_rank *p = (struct mpi_rank *)c;
    pthread_mutex_lock(&p->lock);
    if (!check_notes(p)) fail_locked(p, c->r, status, why);
    pthread_mutex_unlock(&p->lock);
}

static int mpi_lost(struct kcp_comm *c, int *rank, char *why, size_t n)
{
    struct mpi_rank *p = (struct mpi_rank *)c;
    pthread_mutex_lock(&p->lock);
    const int failed = check_notes(p) != KCP_OK;
    if (failed && rank) *rank = p->note.rank;
    if (failed && why) snprintf(why, n, "%s", p->note.why);
    pthread_mutex_unlock(&p->lock);
    return failed;
}

/* After a failure, p is not freed, because MPI may still send p->note and because
 * MPI_Comm_free would wait for all ranks. */
static void mpi_free(struct kcp_comm *c)
{
    struct mpi_rank *p = (struct mpi_rank *)c;
    if (c->barrier(c, NULL)) return;
    MPI_Comm_free(&p->at);
    pthread_mutex_destroy(&p->lock);
    free(p->posted);
    free(p);
}

int kcp_mpi_over(struct kcp_comm **comm, MPI_Comm over, double seconds, char *why,
                 size_t n)
{
    int level = MPI_THREAD_SINGLE, err = KCP_OK;
    if (!comm) return KCP_BAD;
    *comm = NULL;
    if (!(seconds > 0)) err = kcp_timeout(&seconds, why, n);
    if (err) return err;
    if (MPI_Query_thread(&level) || level < MPI_THREAD_SERIALIZED) {
        if (why)
            snprintf(why, n, "MPI provides only thread level %d: initialize MPI with "
                     "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE", level);
        return KCP_BAD;
    }
    struct mpi_rank *p = calloc(1, sizeof *p);
    if (!p) return KCP_NO_MEMORY;
    p->comm = (struct kcp_comm){ .backend = "mpi", .all_gather = mpi_all_gather,
        .send = mpi_send, .recv = mpi_recv, .group = mpi_group, .barrier = mpi_barrier,
        .show = mpi_show, .fail = mpi_fail, .lost = mpi_lost, .free = mpi_free };
    p->seconds = seconds;
    if (MPI_Comm_dup(over, &p->at) ||
        MPI_Comm_set_errhandler(p->at, MPI_ERRORS_RETURN) ||
        MPI_Comm_size(p->at, &p->comm.R) || MPI_Comm_rank(p->at, &p->comm.r)) {
        if (why) snprintf(why, n, "MPI_Comm_dup failed");
        free(p);
        return KCP_COMM;
    }
    pthread_mutex_init(&p->lock, NULL);
    *comm = &p->comm;
    return KCP_OK;
}
#endif
typedef int kcp_mpi_is_not_empty;
