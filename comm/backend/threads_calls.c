/* threads_calls.c -- what a thread rank may call: messages, a barrier, a gather.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.
 * Next: comm/form/exchange.c, written over these calls.
 *
 * A send copies its bytes into the receiver's mailbox and never waits; receives,
 * gathers and barriers wait, and wake when the world has failed. */
#include "threads.h"

#include <stdlib.h>
#include <string.h>

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

/* all [R][bytes]; mine may be its own row of all. Each shows its row, copies those of
 * the others, and leaves when all have copied: when the world fails meanwhile, too.
 * Who leaves gives its row back to the system, and somebody may still read there. */
static int gather(struct member *m, const void *mine, void *all, size_t bytes,
                  kcp_copy *copy, struct CUstream_st *stream)
{
    struct world *w = m->w;
    char *row = all;
    int err = copy(NULL, NULL, 0, stream);              /* what I show must be there */
    pthread_mutex_lock(&w->lock);
    m->mine = mine;
    m->bytes = bytes;
    const int64_t this_one = w->gathers;
    w->showing++;
    if (!err) err = barrier_locked(m, "all_gather");
    if (err) w->showing--;                              /* nobody copies */
    const int shown = !err;
    for (int r = 0; r < w->R && !err; r++)
        if (w->member[r].bytes != bytes)
            err = threads_fail(w, m->comm.r, KCP_COMM, "all_gather of unequal sizes");
    pthread_mutex_unlock(&w->lock);
    if (!shown)
        return err;

    for (int r = 0; r < w->R && !err; r++)
        if (w->member[r].mine != row + r * bytes)
            err = copy(row + r * bytes, w->member[r].mine, bytes, stream);
    pthread_mutex_lock(&w->lock);
    if (!--w->showing) {
        w->gathers++;
        pthread_cond_broadcast(&w->change);
    }
    while (w->gathers == this_one)
        pthread_cond_wait(&w->change, &w->lock);
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
    return gather((struct member *)c, mine, all, bytes, threads_host_copy, NULL);
}

static int threads_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                        struct CUstream_st *stream)
{
    struct member *m = (struct member *)c;
    if (to < 0 || to >= c->R || to == c->r)
        return KCP_BAD;
    struct thread_message *message = malloc(sizeof *message + bytes);
    if (!message)
        return KCP_NO_MEMORY;
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
    if (from < 0 || from >= c->R || from == c->r)
        return KCP_BAD;
    pthread_mutex_lock(&m->w->lock);
    int err = m->w->failed ? KCP_COMM : KCP_OK;
    m->from = from;
    while (!err && !*(at = threads_message(m, from)))
        err = threads_wait(m, IN_RECV, "recv");
    if (!err) {
        message = *at;
        *at = message->next;
        if (!*at)
            m->end = at;
        if (message->bytes != bytes)
            err = threads_fail(m->w, c->r, KCP_COMM, "a message of another size");
    }
    pthread_mutex_unlock(&m->w->lock);
    if (!err) err = m->w->copy(data, message->data, bytes, stream);
    free(message);
    return err;
}

/* Sends do not wait, so a group has nothing to bind together. */
static int threads_group(struct kcp_comm *c, int begin)
{
    return KCP_OK;
}

void threads_calls(struct kcp_comm *c)
{
    c->all_gather = threads_all_gather;
    c->send = threads_send;
    c->recv = threads_recv;
    c->group = threads_group;
    c->barrier = threads_barrier;
    c->show = threads_show;
}
