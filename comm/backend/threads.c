/* threads.c -- ranks as threads of this process, each with its own struct kcp_comm.
 * Book: chapter 07.
 *
 * The run fails if a rank calls fail(), if `body` returns an error, if a rank waits for
 * a rank that has returned, if all remaining ranks wait for each other, or if the ranks
 * of a message or gather pass unequal sizes. Then each later send, receive, gather or
 * barrier returns KCP_COMM, and the run reports the rank and the reason. A send never
 * waits, because it copies its bytes to the receiver's inbox. */
#include "kcp.h"

#include "checked.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536 };

struct thread_message {
    struct thread_message *next;
    int from;
    size_t bytes;
    char data[];
};

enum waiting { RUNNING, IN_BARRIER, IN_RECV, GONE };

struct member {                          /* data of one rank; `comm` must be first */
    struct kcp_comm comm;
    struct world *w;
    pthread_t thread;
    enum waiting state;
    int from;                            /* IN_RECV: rank of the sender */
    int64_t round;                       /* IN_BARRIER: number of that barrier */
    struct thread_message *inbox, **end;         /* messages in order of arrival */
    pthread_cond_t wake;                 /* signals a message, failure or rank's end */
    const char *mine;                    /* all_gather: this rank's row */
    size_t bytes;
};

struct world {
    int R, inside;                       /* inside: number of ranks in the barrier */
    int64_t round;                       /* number of completed barriers */
    int showing;                         /* ranks that still copy gathered data */
    int64_t gathers;                     /* number of completed gathers */
    int failed, status, rank;
    char why[160];
    pthread_mutex_t lock;
    pthread_cond_t change;    /* signalled if a barrier, gather or rank ends or fails */
    int (*body)(struct kcp_comm *, void *);
    void *arg;
    kcp_copy *copy;                      /* copies between the memories of two ranks */
    struct member *member;
};

/* Records the first failure and returns KCP_COMM. The caller holds the lock. */
static int threads_fail(struct world *w, int rank, int status, const char *why)
{
    if (!w->failed) {
        w->failed = 1;
        w->status = status;
        w->rank = rank;
        snprintf(w->why, sizeof w->why, "%s", why);
        pthread_cond_broadcast(&w->change);
        for (int r = 0; r < w->R; r++) pthread_cond_signal(&w->member[r].wake);
    }
    return KCP_COMM;
}

/* Returns the address of the pointer to the oldest message from rank `from`. If there
 * is no such message, that pointer is NULL. */
static struct thread_message **threads_message(struct member *m, int from)
{
    struct thread_message **at = &m->inbox;
    while (*at && (*at)->from != from) at = &(*at)->next;
    return at;
}

/* Returns 1 if there is a deadlock: every rank has returned, or waits for a message
 * that has not arrived or for a barrier that is not complete. */
static int all_wait(struct world *w)
{
    for (int r = 0; r < w->R; r++) {
        struct member *m = &w->member[r];
        if (m->state == RUNNING || (m->state == IN_BARRIER && m->round < w->round) ||
            (m->state == IN_RECV && *threads_message(m, m->from)))
            return 0;
    }
    return 1;
}

/* Tests for a deadlock, then sleeps until another rank signals. Returns KCP_COMM if the
 * run has failed. */
static int threads_wait(struct member *m, enum waiting state, const char *call)
{
    struct world *w = m->w;
    char why[96];
    m->state = state;
    for (int r = 0; r < w->R && !w->failed; r++)
        if (w->member[r].state == GONE && (state == IN_BARRIER || r == m->from)) {
            snprintf(why, sizeof why, "it ended while rank %d waited in %s", m->comm.r,
                     call);
            threads_fail(w, r, KCP_COMM, why);
        }
    if (!w->failed && all_wait(w)) {
        snprintf(why, sizeof why, "it waits in %s, and every other rank waits or "
                 "has returned", call);
        threads_fail(w, m->comm.r, KCP_COMM, why);
    }
    if (!w->failed)
        pthread_cond_wait(state == IN_RECV ? &m->wake : &w->change, &w->lock);
    m->state = RUNNING;
    return w->failed ? KCP_COMM : KCP_OK;
}

/* ---- the calls of a rank */
static int host_copy(void *to, const void *from, size_t bytes,
                     struct CUstream_st *stream)
{
    if (bytes) memcpy(to, from, bytes);
    return KCP_OK;
}

//> barrier
static int barrier_locked(struct member *m, const char *call)
{
    struct world *w = m->w;
    int err = w->failed ? KCP_COMM : KCP_OK;
    m->round = w->round;
    if (!err && ++w->inside == w->R) {
        w->inside = 0;
        w->round++;
        pthread_cond_broadcast(&w->change);
    }
    while (!err && w->round == m->round)
        err = threads_wait(m, IN_BARRIER, call);
    return w->round > m->round ? KCP_OK : err;
}
//< barrier

static int threads_barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    pthread_mutex_lock(&m->w->lock);
    const int err = barrier_locked(m, "barrier");
    pthread_mutex_unlock(&m->w->lock);
    return err;
}

/* Gathers the row `mine` of every rank into `all` [R][bytes]. `mine` may point into
 * `all`. Each rank publishes its row and copies the other rows. Then each rank waits
 * until all ranks have copied all rows, because another rank may still read the waiting
 * rank's row. A rank whose copy failed also waits. */
static int gather(struct member *m, const void *mine, void *all, size_t bytes,
                  kcp_copy *copy, struct CUstream_st *stream)
{
    struct world *w = m->w;
    char *row = all;
    int err = copy(NULL, NULL, 0, stream);     /* waits until `mine` is written */
    pthread_mutex_lock(&w->lock);
    m->mine = mine;
    m->bytes = bytes;
    const int64_t this_one = w->gathers;
    w->showing++;
    if (!err) err = barrier_locked(m, "all_gather");
    if (err) w->showing--;                              /* no rank will copy */
    const int shown = !err;
    for (int r = 0; r < w->R && !err; r++)
        if (w->member[r].bytes != bytes)
            err = threads_fail(w, m->comm.r, KCP_COMM, "all_gather of unequal sizes");
    pthread_mutex_unlock(&w->lock);
    if (!shown) return err;

    for (int r = 0; r < w->R && !err; r++)
        if (w->member[r].mine != row + r * bytes)
            err = copy(row + r * bytes, w->member[r].mine, bytes, stream);
    pthread_mutex_lock(&w->lock);
    if (!--w->showing) {
        w->gathers++;
        pthread_cond_broadcast(&w->change);
    }
    while (w->gathers == this_one) pthread_cond_wait(&w->change, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return err;
}

static int threads_all_gather(struct kcp_comm *c, const void *mine, void *all,
                              size_t bytes, struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    const int err = gather(m, mine, all, bytes, m->w->copy, stream);
    c->traffic.bytes += (int64_t)(c->R - 1) * (int64_t)bytes;
    c->traffic.collectives++;
    return err;
}

static int threads_show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                        struct CUstream_st *stream)
{
    return gather((struct member *)c, mine, all, bytes, host_copy, NULL);
}

static int threads_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                        struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    if (to < 0 || to >= c->R || to == c->r) return KCP_BAD;
    struct thread_message *message = malloc(sizeof *message + bytes);
    if (!message) return KCP_NO_MEMORY;
    *message = (struct thread_message){ NULL, c->r, bytes };
    int err = m->w->copy(message->data, data, bytes, stream);

    pthread_mutex_lock(&m->w->lock);
    struct member *other = &m->w->member[to];
    if (m->w->failed) err = KCP_COMM;
    *other->end = message;
    other->end = &message->next;
    pthread_cond_signal(&other->wake);
    pthread_mutex_unlock(&m->w->lock);
    c->traffic.bytes += (int64_t)bytes;
    c->traffic.messages++;
    return err;
}

static int threads_recv(struct kcp_comm *c, void *data, size_t bytes, int from,
                        struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    struct thread_message **at, *message = NULL;
    if (from < 0 || from >= c->R || from == c->r) return KCP_BAD;
    pthread_mutex_lock(&m->w->lock);
    int err = m->w->failed ? KCP_COMM : KCP_OK;
    m->from = from;
    at = threads_message(m, from);
    while (!err && !*at) {
        err = threads_wait(m, IN_RECV, "recv");
        at = threads_message(m, from);
    }
    if (!err) {
        message = *at;
        *at = message->next;
        if (!*at) m->end = at;
        if (message->bytes != bytes)
            err = threads_fail(m->w, c->r, KCP_COMM, "it received a message of another "
                               "size than expected");
    }
    pthread_mutex_unlock(&m->w->lock);
    if (!err) err = m->w->copy(data, message->data, bytes, stream);
    free(message);
    return err;
}

/* A group needs no work, because no send waits. Returns KCP_OK even after a failure. */
static int threads_group(struct kcp_comm *c, int begin)
{
    return KCP_OK;
}

static void threads_comm_fail(struct kcp_comm *c, int status, const char *why)
{
    struct member *m = (struct member *)c;
    pthread_mutex_lock(&m->w->lock);
    threads_fail(m->w, c->r, status, why);
    pthread_mutex_unlock(&m->w->lock);
}

static int threads_comm_lost(struct kcp_comm *c, int *rank, char *why, size_t n)
{
    struct world *w = ((struct member *)c)->w;
    pthread_mutex_lock(&w->lock);
    const int failed = w->failed;
    if (failed && rank) *rank = w->rank;
    if (failed && why) snprintf(why, n, "%s", w->why);
    pthread_mutex_unlock(&w->lock);
    return failed;
}

static void threads_comm_free(struct kcp_comm *c)    /* kcp_threads_run frees c */
{
}

/* Wakes the ranks that wait for this rank, and one more rank, which tests for a
 * deadlock. */
static void leave_world(struct member *m)
{
    struct world *w = m->w;
    int woken = 0;
    m->state = GONE;
    pthread_cond_broadcast(&w->change);
    for (int r = 0; r < w->R; r++) {
        struct member *other = &w->member[r];
        if (other->state == IN_RECV && (other->from == m->comm.r || !woken++))
            pthread_cond_signal(&other->wake);
    }
}

static void *thread_main(void *arg)
{
    struct member *m = arg;
    struct world *w = m->w;
    const int err = w->body(&m->comm, w->arg);
    char why[64];
    snprintf(why, sizeof why, "returned status %d", err);

    pthread_mutex_lock(&w->lock);
    if (err) threads_fail(w, m->comm.r, err, why);
    leave_world(m);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int kcp_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                    char *why, size_t n)
{
    return kcp_threads_run_on(R, body, arg, why, n, host_copy);
}

/* A thread that cannot be created counts as a failed rank. */
int kcp_threads_run_on(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                       char *why, size_t n, kcp_copy *copy)
{
    struct world w = { .R = R, .body = body, .arg = arg, .copy = copy };
    if (R < 1 || R > MOST_RANKS || !body || !copy)
        return kcp_refuse(KCP_BAD, "threads: 'body' or 'copy' is NULL, or R = %d is "
                          "not in [1,%d]", R, MOST_RANKS);
    w.member = calloc((size_t)R, sizeof *w.member);
    if (!w.member) return KCP_NO_MEMORY;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.change, NULL);
    for (int r = 0; r < R; r++) {
        struct member *m = &w.member[r];
        m->comm = (struct kcp_comm){
            .R = R, .r = r, .backend = "threads", .all_gather = threads_all_gather,
            .send = threads_send, .recv = threads_recv, .group = threads_group,
            .barrier = threads_barrier, .show = threads_show,
            .fail = threads_comm_fail, .lost = threads_comm_lost,
            .free = threads_comm_free };
        m->w = &w;
        m->end = &m->inbox;
        pthread_cond_init(&m->wake, NULL);
    }
    int made = 0;
    while (made < R && !pthread_create(&w.member[made].thread, NULL, thread_main,
                                       &w.member[made]))
        made++;
    if (made < R)
        threads_comm_fail(&w.member[made].comm, KCP_NO_MEMORY,
                          "its thread could not be created");
    for (int r = 0; r < made; r++) pthread_join(w.member[r].thread, NULL);

    if (w.failed && why) snprintf(why, n, "rank %d: %s", w.rank, w.why);
    for (int r = 0; r < R; r++) {
        for (struct thread_message *l = w.member[r].inbox, *next; l; l = next) {
            next = l->next;
            free(l);
        }
        pthread_cond_destroy(&w.member[r].wake);
    }
    free(w.member);
    pthread_cond_destroy(&w.change);
    pthread_mutex_destroy(&w.lock);
    return w.failed ? w.status : KCP_OK;
}
