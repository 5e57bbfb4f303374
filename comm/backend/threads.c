/* threads.c -- ranks as threads of this process, each with its own struct kcp_comm.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c, failures injected.
 * Next: comm/backend/threads_calls.c, what a rank may call.
 *
 * The world fails when a rank says so, when its body returns an error, when somebody
 * waits for a rank that has left, and when all who are left wait for one another. Then
 * every call on every rank returns KCP_COMM, and the run says who and why. */
#include "threads.h"

#include "checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536 };           /* as of a plan */

int threads_fail(struct world *w, int rank, int status, const char *why)
{
    if (!w->failed) {
        w->failed = 1;
        w->status = status;
        w->rank = rank;
        snprintf(w->why, sizeof w->why, "%s", why);
        pthread_cond_broadcast(&w->change);
        for (int r = 0; r < w->R; r++)
            pthread_cond_signal(&w->member[r].wake);
    }
    return KCP_COMM;
}

struct thread_message **threads_message(struct member *m, int from)
{
    struct thread_message **at = &m->inbox;
    while (*at && (*at)->from != from)
        at = &(*at)->next;
    return at;
}

/* Can this wait still end? Whoever runs may end it; a message that lies there does. */
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

/* Before it sleeps it asks who could still wake it. */
int threads_wait(struct member *m, enum waiting state, const char *call)
{
    struct world *w = m->w;
    char why[96];
    m->state = state;
    for (int r = 0; r < w->R && !w->failed; r++)
        if (w->member[r].state == GONE && (state == IN_BARRIER || r == m->from)) {
            snprintf(why, sizeof why, "left while rank %d was in %s", m->comm.r, call);
            threads_fail(w, r, KCP_COMM, why);
        }
    if (!w->failed && all_wait(w)) {
        snprintf(why, sizeof why, "in %s, and every other rank waits too", call);
        threads_fail(w, m->comm.r, KCP_COMM, why);
    }
    if (!w->failed)
        pthread_cond_wait(state == IN_RECV ? &m->wake : &w->change, &w->lock);
    m->state = RUNNING;
    return w->failed ? KCP_COMM : KCP_OK;
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
    if (failed && rank)
        *rank = w->rank;
    if (failed && why)
        snprintf(why, n, "%s", w->why);
    pthread_mutex_unlock(&w->lock);
    return failed;
}

static void threads_comm_free(struct kcp_comm *c)    /* kcp_threads_run owns it */
{
}

/* Who waits for the rank that left learns so; one more of those who sleep asks whether
 * they now all wait for one another. */
static void leave_world(struct member *m)
{
    struct world *w = m->w;
    int asked = 0;
    m->state = GONE;
    pthread_cond_broadcast(&w->change);
    for (int r = 0; r < w->R; r++) {
        struct member *other = &w->member[r];
        if (other->state == IN_RECV && (other->from == m->comm.r || !asked++))
            pthread_cond_signal(&other->wake);
    }
}

static void *thread_main(void *arg)
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
    if (err)
        threads_fail(w, m->comm.r, err, why);
    leave_world(m);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int threads_host_copy(void *to, const void *from, size_t bytes,
                      struct CUstream_st *stream)
{
    if (bytes)
        memcpy(to, from, bytes);
    return KCP_OK;
}

int kcp_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                    char *why, size_t n)
{
    return kcp_threads_run_on(R, body, arg, why, n, threads_host_copy);
}

/* Starts the ranks, waits for all of them; kcp.h says the rest. A thread that cannot
 * be made is a rank that has left. KCP_BAD: R < 1. */
int kcp_threads_run_on(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                       char *why, size_t n, kcp_copy *copy)
{
    struct world w = { .R = R, .body = body, .arg = arg, .copy = copy };
    if (R < 1 || R > MOST_RANKS || !body || !copy)
        return kcp_refuse(KCP_BAD, "threads: found %d ranks%s, expected 1 to %d", R,
                          body ? "" : " and no body", MOST_RANKS);
    w.member = calloc((size_t)R, sizeof *w.member);
    if (!w.member)
        return KCP_NO_MEMORY;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.change, NULL);
    for (int r = 0; r < R; r++) {
        struct member *m = &w.member[r];
        m->comm = (struct kcp_comm){
            .R = R, .r = r, .backend = "threads", .fail = threads_comm_fail,
            .lost = threads_comm_lost, .free = threads_comm_free };
        threads_calls(&m->comm);
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
                          "its thread could not be made");
    for (int r = 0; r < made; r++)
        pthread_join(w.member[r].thread, NULL);

    if (w.failed && why)
        snprintf(why, n, "rank %d: %s", w.rank, w.why);
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
