/* threads.c -- ranks as threads of this process, each with its own struct kcp_comm.
 *
 * Book: chapter 07.  Checked by: tests/07_merge.c, failures injected.
 * Next: exchange.c, written over the calls that this file provides.
 *
 * One lock guards the world. A send copies its bytes into the receiver's mailbox and
 * never waits; receives, gathers and barriers wait, and wake when the world has failed.
 * It fails when a rank says so, when its body returns an error, when somebody waits for
 * a rank that has already left, and when all who are left wait for one another. */
#include "kcp.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct letter {
    struct letter *next;
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
    int from;                            /* IN_RECV: whose letter it waits for */
    int64_t round;                       /* IN_BARRIER: the one it entered */
    struct letter *mail, **end;          /* letters in order of arrival */
    const char *mine;                    /* all_gather: what it shows the others */
    size_t bytes;
};

struct world {
    int R, inside;                       /* ranks inside the barrier */
    int64_t round;                       /* barriers completed */
    int failed, status, rank;
    char why[160];
    pthread_mutex_t lock;
    pthread_cond_t change;
    int (*body)(struct kcp_comm *, void *);
    void *arg;
    kcp_copy *copy;                      /* between any two of the ranks' memories */
    struct member *member;
};

static int host_copy(void *to, const void *from, size_t bytes, struct CUstream_st *stream)
{
    if (bytes) memcpy(to, from, bytes);
    return KCP_OK;
}

/* The first failure counts; the lock is held. */
static int fail_locked(struct world *w, int rank, int status, const char *why)
{
    if (!w->failed) {
        w->failed = 1, w->status = status, w->rank = rank;
        snprintf(w->why, sizeof w->why, "%s", why);
        pthread_cond_broadcast(&w->change);
    }
    return KCP_COMM;
}

/* The oldest letter from a rank, unlinked; NULL: none has come. */
static struct letter **find(struct member *m, int from)
{
    struct letter **at = &m->mail;
    while (*at && (*at)->from != from)
        at = &(*at)->next;
    return at;
}

/* Can this wait still end? Whoever runs may end it; a letter that lies there does. */
static int stuck(struct world *w)
{
    for (int r = 0; r < w->R; r++) {
        struct member *m = &w->member[r];
        if (m->state == RUNNING || (m->state == IN_BARRIER && m->round < w->round) ||
            (m->state == IN_RECV && *find(m, m->from)))
            return 0;
    }
    return 1;
}

/* Sleep until something changes. The lock is held; state says what m waits for. */
static int wait_change(struct member *m, enum waiting state, const char *call)
{
    struct world *w = m->w;
    char why[96];
    m->state = state;
    for (int r = 0; r < w->R && !w->failed; r++)
        if (w->member[r].state == GONE && (state == IN_BARRIER || r == m->from)) {
            snprintf(why, sizeof why, "left while rank %d was in %s", m->comm.r, call);
            fail_locked(w, r, KCP_COMM, why);
        }
    if (!w->failed && stuck(w)) {
        snprintf(why, sizeof why, "in %s, and every other rank waits too", call);
        fail_locked(w, m->comm.r, KCP_COMM, why);
    }
    if (!w->failed)
        pthread_cond_wait(&w->change, &w->lock);
    m->state = RUNNING;
    return w->failed ? KCP_COMM : KCP_OK;
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
        err = wait_change(m, IN_BARRIER, call);
    return w->round > m->round ? KCP_OK : err;
}
//< barrier

static int barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    pthread_mutex_lock(&m->w->lock);
    const int err = barrier_locked(m, "barrier");
    pthread_mutex_unlock(&m->w->lock);
    return err;
}

/* all [R][bytes]; mine may be its own row of all. Each shows its row, copies those of
 * the others, and leaves when everybody has copied. */
static int all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    struct world *w = m->w;
    char *row = all;
    int err = w->copy(NULL, NULL, 0, stream);           /* what I show must be there */
    pthread_mutex_lock(&w->lock);
    m->mine = mine, m->bytes = bytes;
    if (!err) err = barrier_locked(m, "all_gather");
    for (int r = 0; r < w->R && !err; r++)
        if (w->member[r].bytes != bytes)
            err = fail_locked(w, c->r, KCP_COMM, "all_gather of unequal sizes");
    pthread_mutex_unlock(&w->lock);
    if (err)
        return err;

    for (int r = 0; r < w->R && !err; r++)
        if (w->member[r].mine != row + r * bytes)
            err = w->copy(row + r * bytes, w->member[r].mine, bytes, stream);
    pthread_mutex_lock(&w->lock);
    if (!err) err = barrier_locked(m, "all_gather");
    pthread_mutex_unlock(&w->lock);
    c->traffic.bytes += (int64_t)(c->R - 1) * (int64_t)bytes;
    c->traffic.collectives++;
    return err;
}

static int send_to(struct kcp_comm *c, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    if (to < 0 || to >= c->R || to == c->r)
        return KCP_BAD;
    struct letter *letter = malloc(sizeof *letter + bytes);
    if (!letter)
        return KCP_NO_MEMORY;
    *letter = (struct letter){ NULL, c->r, bytes };
    int err = m->w->copy(letter->data, data, bytes, stream);

    pthread_mutex_lock(&m->w->lock);
    struct member *other = &m->w->member[to];
    if (m->w->failed) err = KCP_COMM;
    *other->end = letter;
    other->end = &letter->next;
    pthread_cond_broadcast(&m->w->change);
    pthread_mutex_unlock(&m->w->lock);
    c->traffic.bytes += (int64_t)bytes;
    c->traffic.messages++;
    return err;
}

static int recv_from(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    struct letter **at, *letter = NULL;
    if (from < 0 || from >= c->R || from == c->r)
        return KCP_BAD;
    pthread_mutex_lock(&m->w->lock);
    int err = m->w->failed ? KCP_COMM : KCP_OK;
    m->from = from;
    while (!err && !*(at = find(m, from)))
        err = wait_change(m, IN_RECV, "recv");
    if (!err) {
        letter = *at;
        *at = letter->next;
        if (!*at)
            m->end = at;
        if (letter->bytes != bytes)
            err = fail_locked(m->w, c->r, KCP_COMM, "received another size than asked");
    }
    pthread_mutex_unlock(&m->w->lock);
    if (!err) err = m->w->copy(data, letter->data, bytes, stream);
    free(letter);
    return err;
}

/* Sends do not wait, so a group has nothing to bind together. */
static int group(struct kcp_comm *c, int begin)
{
    return KCP_OK;
}

static void fail(struct kcp_comm *c, int status, const char *why)
{
    struct member *m = (struct member *)c;
    pthread_mutex_lock(&m->w->lock);
    fail_locked(m->w, c->r, status, why);
    pthread_mutex_unlock(&m->w->lock);
}

static int lost(struct kcp_comm *c, int *rank, char *why, size_t n)
{
    struct world *w = ((struct member *)c)->w;
    pthread_mutex_lock(&w->lock);
    const int failed = w->failed;
    if (failed && rank)
        *rank = w->rank;
    if (failed && why)
        snprintf(why, n, "%s", w->why);
    pthread_mutex_unlock(&w->lock);
    return failed;
}

static void free_comm(struct kcp_comm *c)    /* kcp_threads_run owns it */
{
}

static void *run(void *arg)
{
    static const char *const name[] = { "KCP_OK", "KCP_NA", "KCP_BAD", "KCP_NO_MEMORY",
                                        "KCP_COMM", "KCP_CUDA", "KCP_MISMATCH" };
    struct member *m = arg;
    struct world *w = m->w;
    const int err = w->body(&m->comm, w->arg);
    char why[64];
    const int known = err > 0 && err < (int)(sizeof name / sizeof *name);
    snprintf(why, sizeof why, "returned %s (%d)", known ? name[err] : "a status", err);

    pthread_mutex_lock(&w->lock);
    m->state = GONE;
    if (err)
        fail_locked(w, m->comm.r, err, why);
    pthread_cond_broadcast(&w->change);      /* who waits for it learns so */
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int kcp_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                    char *why, size_t n)
{
    return kcp_threads_run_on(R, body, arg, why, n, host_copy);
}

/* Starts the ranks, waits for all of them; kcp.h says the rest. A thread that cannot
 * be made is a rank that has left. KCP_BAD: R < 1. */
int kcp_threads_run_on(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                       char *why, size_t n, kcp_copy *copy)
{
    struct world w = { .R = R, .body = body, .arg = arg, .copy = copy };
    if (R < 1)
        return KCP_BAD;
    w.member = calloc((size_t)R, sizeof *w.member);
    if (!w.member)
        return KCP_NO_MEMORY;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.change, NULL);
    for (int r = 0; r < R; r++) {
        struct member *m = &w.member[r];
        m->comm = (struct kcp_comm){
            .R = R, .r = r, .backend = "threads", .all_gather = all_gather,
            .send = send_to, .recv = recv_from, .group = group, .barrier = barrier,
            .fail = fail, .lost = lost, .free = free_comm };
        m->w = &w;
        m->end = &m->mail;
    }
    int made = 0;
    while (made < R && !pthread_create(&w.member[made].thread, NULL, run,
                                       &w.member[made]))
        made++;
    if (made < R)
        fail(&w.member[made].comm, KCP_NO_MEMORY, "its thread could not be made");
    for (int r = 0; r < made; r++)
        pthread_join(w.member[r].thread, NULL);

    if (w.failed && why)
        snprintf(why, n, "rank %d: %s", w.rank, w.why);
    for (int r = 0; r < R; r++)
        for (struct letter *l = w.member[r].mail, *next; l; l = next) {
            next = l->next;
            free(l);
        }
    free(w.member);
    pthread_cond_destroy(&w.change);
    pthread_mutex_destroy(&w.lock);
    return w.failed ? w.status : KCP_OK;
}
