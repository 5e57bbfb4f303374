/* process_letters.c -- letters between processes: written, read by a thread, awaited.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh, processes killed and stopped.
 * Next: process_calls.c, what a rank may call.
 *
 * One thread reads what comes, into letters; so a send only waits for a receiver that
 * does not read, and a connection that closes is noticed at once, whatever the rank
 * does. A rank is lost when its connection closes before it said goodbye, when it is
 * silent (it is heard from every second), or when it says so itself. */
#include "tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static void told(struct process *p, int rank, int status, const char *why)
{
    pthread_mutex_lock(&p->lock);
    if (!p->failed) {
        p->failed = 1, p->rank = rank, p->status = status;
        snprintf(p->why, sizeof p->why, "%s", why);
    }
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
}

int process_post(struct process *p, int to, struct frame f, const void *data)
{
    const double until = monotonic_seconds() + p->seconds;
    pthread_mutex_lock(&p->writing[to]);
    int err = bootstrap_write(p->fd[to], &f, sizeof f, until);
    if (!err && f.bytes)
        err = bootstrap_write(p->fd[to], data, f.bytes, until);
    pthread_mutex_unlock(&p->writing[to]);
    return err;
}

/* The first failure counts: who fails because another did, passes that one on, lest its
 * own end look like the cause to those who hear of both. */
int process_announce(struct process *p, int rank, int status, const char *why)
{
    told(p, rank, status, why);
    const struct frame f = { FAILED, p->rank, p->status, 0, strlen(p->why) };
    for (int r = 0; r < p->comm.R; r++)
        if (r != p->comm.r && !p->gone[r])
            process_post(p, r, f, p->why);
    return KCP_COMM;
}

int process_reach(struct process *p, int to, struct frame f, const void *data,
                  const char *call)
{
    char why[96];
    if (p->failed)
        return KCP_COMM;
    if (!process_post(p, to, f, data))
        return KCP_OK;
    snprintf(why, sizeof why, "does not read what rank %d sends in %s", p->comm.r,
             call);
    poll(NULL, 0, 50);                 /* the reader knows better if it has ended */
    return process_announce(p, to, KCP_COMM, why);
}

/* The head is here: room for what follows it. */
static int make_room(struct coming *c, int r)
{
    if (c->f.kind == FAILED)
        return c->f.bytes < sizeof c->why ? KCP_OK : KCP_COMM;
    if (c->f.kind > GATHERED)
        return c->f.bytes ? KCP_COMM : KCP_OK;
    c->post = malloc(sizeof *c->post + c->f.bytes);
    if (!c->post)
        return KCP_NO_MEMORY;
    *c->post = (struct post){ NULL, r, c->f.kind, c->f.bytes };
    return KCP_OK;
}

/* One frame from rank r, all of it. */
static void take(struct process *p, int r, struct coming *c)
{
    if (c->f.kind == FAILED) {
        c->why[c->f.bytes] = 0;
        told(p, c->f.rank, c->f.status, c->why);
    }
    pthread_mutex_lock(&p->lock);
    if (c->f.kind == GOODBYE)
        p->gone[r] = 1;
    if (c->post)
        *p->end = c->post, p->end = &c->post->next;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    c->post = NULL, c->got = 0;
}

/* Nobody waits for a receiver here: a connection that is being written is alive. */
static void say_alive(struct process *p)
{
    const struct frame f = { .kind = ALIVE, .rank = p->comm.r };
    for (int r = 0; r < p->comm.R; r++)
        if (r != p->comm.r && !pthread_mutex_trylock(&p->writing[r])) {
            struct pollfd out = { p->fd[r], POLLOUT, 0 };
            if (!p->gone[r] && poll(&out, 1, 0) > 0)
                bootstrap_write(p->fd[r], &f, sizeof f, monotonic_seconds() + 1);
            pthread_mutex_unlock(&p->writing[r]);
        }
}

/* What is there of the frame that rank r sends, and no more: who stands still in the
 * middle of one must not keep us from hearing the others. */
static int read_some(struct process *p, int r)
{
    struct coming *c = &p->coming[r];
    const size_t head = sizeof c->f, all = head + (c->got < head ? 0 : c->f.bytes);
    char *data = c->post ? c->post->data : c->why;
    char *at = c->got < head ? (char *)&c->f + c->got : data + (c->got - head);
    const ssize_t k = recv(p->fd[r], at, all - c->got, MSG_DONTWAIT);
    if (k <= 0)
        return k < 0 && (errno == EAGAIN || errno == EINTR) ? KCP_OK : KCP_COMM;
    p->heard[r] = monotonic_seconds();
    c->got += (size_t)k;
    if (c->got < all)
        return KCP_OK;
    const int err = all == head ? make_room(c, r) : KCP_OK;
    if (!err && c->got == head + c->f.bytes)
        take(p, r, c);
    return err;
}

//> lost
static void listen_to(struct process *p, int r)
{
    if (!read_some(p, r))
        return;
    if (!p->gone[r])
        told(p, r, KCP_COMM, "its connection closed: the process ended");
    pthread_mutex_lock(&p->lock);
    p->gone[r] = 1;
    pthread_mutex_unlock(&p->lock);
}
//< lost

void *process_reader(void *arg)
{
    struct process *p = arg;
    const int R = p->comm.R;
    double said = monotonic_seconds();
    struct pollfd *poll_ = calloc((size_t)R + 1, sizeof *poll_);
    for (int stop = 0; poll_ && !stop;) {
        for (int r = 0; r < R; r++)
            poll_[r] = (struct pollfd){ p->gone[r] ? -1 : p->fd[r], POLLIN, 0 };
        poll_[R] = (struct pollfd){ p->stop[0], POLLIN, 0 };
        poll(poll_, (nfds_t)R + 1, 250);
        stop = poll_[R].revents != 0;
        for (int r = 0; r < R && !stop; r++)
            if (poll_[r].revents)
                listen_to(p, r);
        for (int r = 0; r < R && !stop; r++)
            if (r != p->comm.r && !p->gone[r] && monotonic_seconds() - p->heard[r] > p->seconds)
                told(p, r, KCP_COMM, "silent for longer than KCP_TIMEOUT_S");
        if (monotonic_seconds() - said > 1)
            say_alive(p), said = monotonic_seconds();
    }
    free(poll_);
    return NULL;
}

enum { HEARD_MS = 2500 };           /* who lives is heard from more often than that */

/* Whom we wait for may himself wait: the one not heard of is the lost one. */
static int silent(const struct process *p, int from)
{
    const double now = monotonic_seconds();
    for (int r = 0; r < p->comm.R; r++)
        if (r != p->comm.r && now - p->heard[r] > HEARD_MS / 1e3 &&
            p->heard[r] < p->heard[from])
            from = r;
    return from;
}

/* Is it time to name one? Who began to wait early on a busy machine may be the first
 * whose time is up, while the lost one's last word is still fresh: as long as all are
 * heard from, one word's time more. */
static int too_long(const struct process *p, int from, double until)
{
    const double now = monotonic_seconds(), word = HEARD_MS / 1e3;
    const int quiet = now - p->heard[silent(p, from)] > word;
    return now > (quiet ? until : until + word);
}

struct post *process_wait(struct process *p, int from, int kind, const char *call)
{
    const double until = monotonic_seconds() + p->seconds;
    struct post *l = NULL, **at;
    char why[160] = "";
    pthread_mutex_lock(&p->lock);
    while (!p->failed && !l && !why[0]) {
        for (at = &p->mail; *at && ((*at)->from != from || (*at)->kind != kind);)
            at = &(*at)->next;
        if ((l = *at)) {
            *at = l->next;
            if (!*at)
                p->end = at;
            break;
        }
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += 1;
        if (p->gone[from])
            snprintf(why, sizeof why, "left while rank %d was in %s", p->comm.r, call);
        else if (too_long(p, from, until)) {
            from = silent(p, from);
            snprintf(why, sizeof why, "rank %d waited in %s longer than KCP_TIMEOUT_S",
                     p->comm.r, call);
        } else
            pthread_cond_timedwait(&p->change, &p->lock, &t);
    }
    pthread_mutex_unlock(&p->lock);
    if (why[0])
        process_announce(p, from, KCP_COMM, why);
    return l;
}
