/* tcp_messages.c -- messages between processes: written, read by a thread, awaited.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh, tests/cli/network.sh.
 * Next: comm/backend/tcp_calls.c, what a rank may call.
 *
 * One thread reads what comes, into messages; so a send only waits for a receiver that
 * does not read, and a connection that closes is noticed at once, whatever the rank
 * does. A rank is lost when its connection closes before it said goodbye, when it is
 * silent (it is heard from every second), or when it says so itself.
 *
 * A frame says how long it is, and memory is asked for only when that is believable: up
 * to EAGER bytes, or what this rank itself has sent, at any time; more when a caller
 * waits for so much. Until then the rest stays with the sender. */
#define _GNU_SOURCE                    /* POLLRDHUP */
#include "tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    EAGER = 64 << 20,
    HEARD_MS = 2500,                  /* who lives is heard from more often than that */
    LOOK_MS = 200,                    /* a writer that waits looks for a failure */
};
static const double telling_seconds = 2;      /* to tell all that the job has failed */

/* ---- failure */
/* The first failure counts. */
static void remember(struct tcp_rank *p, int rank, int status, const char *why)
{
    pthread_mutex_lock(&p->lock);
    if (!p->failed) {
        p->rank = rank;
        p->status = status;
        snprintf(p->why, sizeof p->why, "%s", why);
        p->failed = 1;
    }
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
}

/* All are told together: whose buffers are full gets his word when there is place, and
 * keeps nobody else waiting. */
static void tell_all(struct tcp_rank *p, struct frame f, const char *words)
{
    const double until = monotonic_seconds() + telling_seconds;
    char told[4096] = { 0 };
    int left = 1;
    while (left && monotonic_seconds() < until) {
        left = 0;
        for (int r = 0; r < p->comm.R; r++) {
            if (r == p->comm.r || told[r] || p->gone[r] || p->broken[r])
                continue;
            struct pollfd out = { p->fd[r], POLLOUT, 0 };
            const int may_write = poll(&out, 1, 0) > 0;
            told[r] = may_write && !tcp_send_frame(p, r, f, words,
                                                   monotonic_seconds() + 0.1);
            left += !told[r];
        }
        if (left)
            poll(NULL, 0, 10);
    }
}

/* Who fails because another did, passes that one on, lest its own end look like the
 * cause to those who hear of both. */
int tcp_fail(struct tcp_rank *p, int rank, int status, const char *why)
{
    char words[sizeof p->why];
    remember(p, rank, status, why);
    if (atomic_exchange(&p->announced, 1))
        return KCP_COMM;
    pthread_mutex_lock(&p->lock);
    memcpy(words, p->why, sizeof words);
    const struct frame f = { FAILED, p->rank, p->status, 0, strlen(words) };
    pthread_mutex_unlock(&p->lock);
    tell_all(p, f, words);
    return KCP_COMM;
}

/* ---- writing */
static int lock_until(pthread_mutex_t *m, double until)
{
    struct timespec t;
    const double left = until - monotonic_seconds();
    if (left <= 0)
        return pthread_mutex_trylock(m);
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)left;
    t.tv_nsec += (long)((left - (double)(time_t)left) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return pthread_mutex_timedlock(m, &t);
}

/* In slices, so that a failure elsewhere ends the wait (unless this tells of one). A
 * frame that was cut short is the last on its connection. */
static int write_all(struct tcp_rank *p, int to, const void *data, size_t bytes,
                     double until, int tells)
{
    const char *at = data;
    while (bytes) {
        struct pollfd out = { p->fd[to], POLLOUT, 0 };
        const ssize_t k = poll(&out, 1, LOOK_MS) > 0
                        ? send(p->fd[to], at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return KCP_COMM;
        if (k > 0) {
            at += k;
            bytes -= (size_t)k;
        }
        if (bytes && (monotonic_seconds() > until || (p->failed && !tells)))
            return KCP_COMM;
    }
    return KCP_OK;
}

int tcp_send_frame(struct tcp_rank *p, int to, struct frame f, const void *data,
                   double until)
{
    const int tells = f.kind == FAILED || f.kind == GOODBYE;
    if (p->broken[to] || lock_until(&p->writing[to], until))
        return KCP_COMM;
    int err = p->broken[to] ? KCP_COMM : KCP_OK;
    if (!err)
        err = write_all(p, to, &f, sizeof f, until, tells);
    if (!err && f.bytes)
        err = write_all(p, to, data, f.bytes, until, tells);
    if (err && !p->broken[to]) {
        p->broken[to] = 1;
        shutdown(p->fd[to], SHUT_WR);
    }
    pthread_mutex_unlock(&p->writing[to]);
    return err;
}

/* A full pipe wakes it too. */
static void wake_reader(struct tcp_rank *p)
{
    const ssize_t written = write(p->wake[1], "", 1);
    (void)written;
}

int tcp_send_or_fail(struct tcp_rank *p, int to, struct frame f, const void *data,
                     const char *call)
{
    char why[96];
    if (p->failed)
        return KCP_COMM;
    if (f.bytes > (uint64_t)p->largest) {
        p->largest = (int64_t)f.bytes;
        wake_reader(p);
    }
    if (!tcp_send_frame(p, to, f, data, monotonic_seconds() + p->seconds))
        return KCP_OK;
    snprintf(why, sizeof why, "does not read what rank %d sends in %s", p->comm.r,
             call);
    poll(NULL, 0, 50);                 /* the reader knows better if it has ended */
    return tcp_fail(p, to, KCP_COMM, why);
}

/* Nobody waits for a receiver here: a connection that is being written is alive. */
static void say_alive(struct tcp_rank *p)
{
    const struct frame f = { .kind = ALIVE, .rank = p->comm.r };
    for (int r = 0; r < p->comm.R; r++) {
        struct pollfd out = { p->fd[r], POLLOUT, 0 };
        if (r == p->comm.r || p->gone[r] || p->broken[r] || poll(&out, 1, 0) <= 0 ||
            pthread_mutex_trylock(&p->writing[r]))
            continue;
        if (write_all(p, r, &f, sizeof f, monotonic_seconds() + 0.1, 1)) {
            p->broken[r] = 1;
            shutdown(p->fd[r], SHUT_WR);
        }
        pthread_mutex_unlock(&p->writing[r]);
    }
}

/* ---- reading */
static int lose(struct tcp_rank *p, int r, const char *why)
{
    if (!p->gone[r])
        remember(p, r, KCP_COMM, why);
    p->gone[r] = 1;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    return KCP_COMM;
}

/* The head of a frame from r is here. Is it one that r may send? */
static int check_head(struct tcp_rank *p, int r, const struct incoming *in)
{
    char why[160];
    const struct frame *f = &in->f;
    const int is_body = f->kind == MESSAGE || f->kind == GATHERED;
    if (f->kind < MESSAGE || f->kind > GOODBYE ||
        (f->kind == FAILED && (f->rank < 0 || f->rank >= p->comm.R)) ||
        (!is_body && f->bytes >= (f->kind == FAILED ? sizeof in->why : 1)))
        return lose(p, r, "it sends what no rank sends");
    if (is_body && f->bytes > INT64_MAX / 2) {
        snprintf(why, sizeof why, "it sends a message of %llu bytes, more than there "
                 "can be", (unsigned long long)f->bytes);
        return lose(p, r, why);
    }
    return KCP_OK;
}

/* A place for what follows the head, once it is believable. */
static int allocate_message(struct tcp_rank *p, int r, struct incoming *in)
{
    char why[160];
    const int64_t bytes = (int64_t)in->f.bytes, awaited = p->expected[r];
    if (in->f.kind > GATHERED)
        return KCP_OK;
    const int is_eager = bytes <= EAGER || bytes <= p->largest;
    if (!is_eager && awaited == NOTHING_EXPECTED) {
        in->waits = 1;
        return KCP_OK;
    }
    if (!is_eager && bytes != awaited) {
        snprintf(why, sizeof why, "it sends a message of %lld bytes, expected %lld",
                 (long long)bytes, (long long)awaited);
        return lose(p, r, why);
    }
    in->waits = 0;
    in->message = malloc(sizeof *in->message + (size_t)bytes);
    if (!in->message) {
        snprintf(why, sizeof why, "no memory for a message of %lld bytes from rank %d",
                 (long long)bytes, r);
        return tcp_fail(p, p->comm.r, KCP_NO_MEMORY, why);
    }
    *in->message = (struct tcp_message){ NULL, r, in->f.kind, (size_t)bytes };
    return KCP_OK;
}

/* One frame from rank r, all of it. */
static void deliver(struct tcp_rank *p, int r, struct incoming *in)
{
    if (in->f.kind == FAILED) {
        in->why[in->f.bytes] = 0;
        remember(p, in->f.rank, in->f.status, in->why);
    }
    pthread_mutex_lock(&p->lock);
    if (in->f.kind == GOODBYE)
        p->gone[r] = 1;
    if (in->message) {
        *p->end = in->message;
        p->end = &in->message->next;
    }
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    in->message = NULL;
    in->got = 0;
}

/* What is there of the frame that rank r sends, and no more: who stands still in the
 * middle of one must not keep us from hearing the others. */
static void read_some(struct tcp_rank *p, int r)
{
    struct incoming *in = &p->incoming[r];
    const size_t head = sizeof in->f;
    const size_t all = head + (in->got < head ? 0 : in->f.bytes);
    char *body = in->message ? in->message->data : in->why;
    char *at = in->got < head ? (char *)&in->f + in->got : body + (in->got - head);
    const ssize_t k = recv(p->fd[r], at, all - in->got, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (k <= 0) {
        lose(p, r, "its connection closed: the process ended");
        return;
    }
    p->heard[r] = monotonic_seconds();
    in->got += (size_t)k;
    if (in->got < all)
        return;
    if (all == head && (check_head(p, r, in) || allocate_message(p, r, in))) {
        p->gone[r] = 1;
        return;
    }
    if (!in->waits && in->got == head + in->f.bytes)
        deliver(p, r, in);
}

//> lost
/* A rank whose frame waits for a caller is alive as long as its connection is open. */
static void listen_to(struct tcp_rank *p, int r, short events)
{
    struct incoming *in = &p->incoming[r];
    if (in->waits) {
        p->heard[r] = monotonic_seconds();
        if (events & (POLLRDHUP | POLLHUP | POLLERR))
            lose(p, r, "its connection closed: the process ended");
        else if (allocate_message(p, r, in))
            p->gone[r] = 1;
    } else if (events)
        read_some(p, r);
}
//< lost

static void poll_all(struct tcp_rank *p)
{
    const int R = p->comm.R;
    char drained[64];
    for (int r = 0; r < R; r++) {
        const short what = p->incoming[r].waits ? POLLRDHUP : POLLIN;
        p->polled[r] = (struct pollfd){ p->gone[r] ? -1 : p->fd[r], what, 0 };
    }
    p->polled[R] = (struct pollfd){ p->wake[0], POLLIN, 0 };
    poll(p->polled, (nfds_t)R + 1, 250);
    if (p->polled[R].revents && read(p->wake[0], drained, sizeof drained) < 0)
        poll(NULL, 0, 10);
}

/* Who stood still himself, as a job does that is suspended, has heard nobody: that is
 * not their silence. */
static double forgive_all(struct tcp_rank *p, double last_turn)
{
    const double now = monotonic_seconds();
    for (int r = 0; r < p->comm.R && now - last_turn > HEARD_MS / 1e3; r++)
        p->heard[r] = now;
    return now;
}

void *tcp_reader(void *arg)
{
    struct tcp_rank *p = arg;
    const int R = p->comm.R;
    double said = monotonic_seconds(), turn = said;
    while (!p->stop) {
        poll_all(p);
        turn = forgive_all(p, turn);
        for (int r = 0; r < R && !p->stop; r++)
            if (r != p->comm.r && !p->gone[r])
                listen_to(p, r, p->polled[r].revents);
        for (int r = 0; r < R && !p->stop; r++)
            if (r != p->comm.r && !p->gone[r] &&
                monotonic_seconds() - p->heard[r] > p->seconds)
                remember(p, r, KCP_COMM, "silent for longer than KCP_TIMEOUT_S");
        if (monotonic_seconds() - said > 1) {
            say_alive(p);
            said = monotonic_seconds();
        }
    }
    return NULL;
}

/* ---- waiting */
/* Whom we wait for may himself wait: the one not heard of is the lost one. */
static int least_heard(const struct tcp_rank *p, int from)
{
    const double now = monotonic_seconds();
    for (int r = 0; r < p->comm.R; r++)
        if (r != p->comm.r && now - p->heard[r] > HEARD_MS / 1e3 &&
            p->heard[r] < p->heard[from])
            from = r;
    return from;
}

int tcp_suspect(const struct kcp_comm *comm)
{
    const struct tcp_rank *p = (const struct tcp_rank *)comm;
    const double now = monotonic_seconds();
    for (int r = 0; r < comm->R; r++)
        if (r != comm->r && (p->gone[r] || now - p->heard[r] > HEARD_MS / 1e3))
            return r;
    return -1;
}

/* Is it time to name one? Who began to wait early on a busy machine may be the first
 * whose time is up, while the lost one's last word is still fresh: as long as all are
 * heard from, one word's time more. */
static int too_long(const struct tcp_rank *p, int from, double until)
{
    const double now = monotonic_seconds(), word = HEARD_MS / 1e3;
    const int quiet = now - p->heard[least_heard(p, from)] > word;
    return now > (quiet ? until : until + word);
}

void tcp_expect(struct tcp_rank *p, int from, int64_t bytes)
{
    const int64_t was = atomic_exchange(&p->expected[from], bytes);
    if (bytes > EAGER && was != bytes)
        wake_reader(p);
}

struct tcp_message *tcp_await(struct tcp_rank *p, int from, int kind, const char *call)
{
    const double until = monotonic_seconds() + p->seconds;
    struct tcp_message *found = NULL, **at;
    char why[160] = "";
    pthread_mutex_lock(&p->lock);
    while (!p->failed && !found && !why[0]) {
        for (at = &p->inbox; *at && ((*at)->from != from || (*at)->kind != kind);)
            at = &(*at)->next;
        found = *at;
        if (found) {
            *at = found->next;
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
            from = least_heard(p, from);
            snprintf(why, sizeof why, "rank %d waited in %s longer than KCP_TIMEOUT_S",
                     p->comm.r, call);
        } else
            pthread_cond_timedwait(&p->change, &p->lock, &t);
    }
    pthread_mutex_unlock(&p->lock);
    if (why[0])
        tcp_fail(p, from, KCP_COMM, why);
    return found;
}
