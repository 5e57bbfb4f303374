/* bootstrap.c -- R processes find one another: a proven connection between any two.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh, tests/cli/network.sh.
 * Next: comm/backend/tcp.c.
 * Everybody calls rank 0, says where he listens, and gets the table of all; then a rank
 * calls those below it and is called by those above. All connections that are half open
 * are waited for together, so that one who says nothing, or nonsense, delays nobody.
 * Limits: R (R-1) / 2 connections, so hundreds of processes. */
#define _GNU_SOURCE                    /* POLLRDHUP */
#include "meeting_place.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MOST_OPEN = 256,          /* half-open connections; the oldest caller makes place */
    MOST_CALLS = 128,         /* of them our own */
    MOST_ACCEPTED = 64,       /* a turn: who calls without end must not hold it up */
};
static const double handshake_seconds = 5, again_seconds = 0.05, in_turn_seconds = 1;
/* ---- bytes on a connection */
static int wait_for(int fd, short what, double until)
{
    struct pollfd p = { fd, what, 0 };
    const double left = until - monotonic_seconds();
    return left > 0 && poll(&p, 1, (int)(left * 1000) + 1) > 0;
}

static int may_try_again(double until)
{
    return monotonic_seconds() <= until &&
           (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

int bootstrap_write(int fd, const void *data, size_t bytes, double until)
{
    const char *p = data;
    while (bytes) {
        errno = EAGAIN;
        const ssize_t k = wait_for(fd, POLLOUT, until)
                        ? send(fd, p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
        if (k > 0) {
            p += k;
            bytes -= (size_t)k;
        } else if (!may_try_again(until))
            return KCP_COMM;
    }
    return KCP_OK;
}

int bootstrap_read(int fd, void *data, size_t bytes, double until)
{
    char *p = data;
    while (bytes) {
        errno = EAGAIN;
        const ssize_t k = wait_for(fd, POLLIN, until)
                        ? recv(fd, p, bytes, MSG_DONTWAIT) : -1;
        if (k > 0) {
            p += k;
            bytes -= (size_t)k;
        } else if (k == 0 || !may_try_again(until))
            return KCP_COMM;
    }
    return KCP_OK;
}

/* ---- one rank's side of the meeting */
struct bootstrap {
    struct identity me;
    const struct meeting *at;
    struct job_key key;
    int *fd, missing;                  /* [R]; how many of them are still to come */
    struct address *where;             /* [R] where a rank can be called */
    int listening[MOST_LISTENING], listeners, from;    /* we answer ranks from..R-1 */
    struct place *place;               /* whom we call, until he is met */
    int places, in_turn;               /* in_turn: a rank's places one after another */
    double patience;                   /* with one connection */
    struct half_open open[MOST_OPEN];
    int opened, refused, twice;        /* twice: the rank that came two times, or -1 */
    int without_fd;                    /* there was no file descriptor left */
    double until;
    char *why;
    size_t n;
};

static void drop(struct bootstrap *b, int i, int and_close)
{
    if (and_close)
        close(b->open[i].fd);
    b->open[i] = b->open[--b->opened];
}

/* The oldest that somebody else has begun; -1: all are ours. */
static int oldest_caller(const struct bootstrap *b)
{
    int oldest = -1;
    for (int i = 0; i < b->opened; i++)
        if (!b->open[i].calls &&
            (oldest < 0 || b->open[i].until < b->open[oldest].until))
            oldest = i;
    return oldest;
}

static void add(struct bootstrap *b, int fd, int calls, int rank)
{
    if (b->opened == MOST_OPEN)
        drop(b, oldest_caller(b), 1);
    handshake_begin(&b->open[b->opened++], fd, calls, rank,
                    monotonic_seconds() + b->patience);
}

static int calls_open(const struct bootstrap *b)
{
    int n = 0;
    for (int i = 0; i < b->opened; i++)
        n += b->open[i].calls;
    return n;
}

/* Has the other end of a connection closed it? It may have said something before. */
static int is_closed(int fd)
{
    struct pollfd p = { fd, POLLRDHUP, 0 };
    return poll(&p, 1, 0) > 0;
}

/* A rank has proved itself. Is it there already, and alive, then two jobs have one name
 * and nobody can tell whose this one is. */
static void seat(struct bootstrap *b, const struct half_open *h)
{
    const int r = h->rank;
    if (!h->calls && r < b->from) {
        close(h->fd);
        b->refused++;
    } else if (b->fd[r] < 0) {
        struct address *a = &b->where[r];
        b->fd[r] = h->fd;
        b->missing--;
        a->len = sizeof a->at;
        getpeername(h->fd, (struct sockaddr *)&a->at, &a->len);
    } else if (is_closed(b->fd[r])) {
        close(b->fd[r]);
        b->fd[r] = h->fd;
    } else {
        close(h->fd);
        if (!h->calls)
            b->twice = r;
    }
}

static int is_called(const struct bootstrap *b, int rank)
{
    for (int i = 0; i < b->opened; i++)
        if (b->open[i].calls && b->open[i].rank == rank)
            return 1;
    return 0;
}

/* Whoever is to be called and is not on the line is called, every now and then. */
static void call_places(struct bootstrap *b)
{
    const double now = monotonic_seconds();
    int left = MOST_CALLS - calls_open(b);
    for (int i = 0; i < b->places && left > 0; i++) {
        struct place *p = &b->place[i];
        if (b->fd[p->rank] >= 0 || now < p->not_before ||
            (b->in_turn && is_called(b, p->rank)))
            continue;
        const int fd = address_call(&p->a);
        left -= fd >= 0;
        b->without_fd |= fd < 0 && (errno == EMFILE || errno == ENFILE);
        p->not_before = now + (fd < 0 && !b->in_turn ? again_seconds
                                                     : handshake_seconds);
        if (fd >= 0)
            add(b, fd, 1, p->rank);
    }
}

static void call_again_soon(struct bootstrap *b, int rank)
{
    const double soon = monotonic_seconds() + again_seconds;
    for (int i = 0; i < b->places && !b->in_turn; i++)
        if (b->place[i].rank == rank && b->place[i].not_before > soon)
            b->place[i].not_before = soon;
}

/* Those who have called are let in; without descriptors the oldest caller goes. */
static void let_in(struct bootstrap *b, int listening)
{
    int fd = 0;
    for (int i = 0; fd >= 0 && i < MOST_ACCEPTED; i++) {
        fd = accept(listening, NULL, NULL);
        if (fd >= 0) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
            add(b, fd, 0, -1);
        } else if (errno == EMFILE || errno == ENFILE) {
            const int oldest = oldest_caller(b);
            b->without_fd = 1;
            if (oldest >= 0)
                drop(b, oldest, 1);
            else
                poll(NULL, 0, 10);
        }
    }
}

//> turn
/* Wait a moment for whatever comes first; take every half-open connection as far as it
 * goes. */
static void take_turn(struct bootstrap *b)
{
    struct pollfd p[MOST_OPEN + MOST_LISTENING];
    const int n = b->opened;
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){ b->open[i].fd, handshake_events(&b->open[i]), 0 };
    for (int i = 0; i < b->listeners; i++)
        p[n + i] = (struct pollfd){ b->listening[i], POLLIN, 0 };
    poll(p, (nfds_t)(n + b->listeners), 20);
    for (int i = n - 1; i >= 0; i--) {
        struct half_open *h = &b->open[i];
        if (p[i].revents)
            handshake_step(h, &b->me);
        if (h->stage < MET && monotonic_seconds() < h->until)
            continue;
        const struct half_open done = *h;
        drop(b, i, done.stage != MET);
        if (done.stage == MET)
            seat(b, &done);
        else if (done.refused_at == (done.calls ? WELCOME : HELLO))
            b->refused++;
        if (done.calls && done.stage != MET)
            call_again_soon(b, done.rank);
    }
    for (int i = 0; i < b->listeners; i++)
        if (p[n + i].revents)
            let_in(b, b->listening[i]);
}
//< turn

static void close_half_open(struct bootstrap *b)
{
    while (b->opened)
        drop(b, 0, 1);
}

/* What is known of why a rank is missing, behind the sentence that says so. */
static void add_hints(struct bootstrap *b)
{
    size_t n = strlen(b->why);
    if (b->refused && n < b->n)
        snprintf(b->why + n, b->n - n, "; %d connection%s did not prove to be of this "
                 "job", b->refused, b->refused > 1 ? "s" : "");
    n = strlen(b->why);
    if (b->without_fd && n < b->n)
        snprintf(b->why + n, b->n - n, "; this process may open no more files "
                 "(ulimit -n)");
}

static int wait_for_all(struct bootstrap *b)
{
    while (b->missing && b->twice < 0 && monotonic_seconds() < b->until) {
        call_places(b);
        take_turn(b);
    }
    close_half_open(b);
    if (b->twice >= 0) {
        snprintf(b->why, b->n, "rank %d came twice: two jobs have one name; give each "
                 "a KCP_JOB or a MASTER_PORT of its own", b->twice);
        return KCP_COMM;
    }
    for (int r = 0; r < b->me.R && b->missing; r++)
        if (r != b->me.r && b->fd[r] < 0 && (r >= b->from || r < b->me.r)) {
            snprintf(b->why, b->n, "rank %d did not come in time (%d missing)", r,
                     b->missing);
            add_hints(b);
            return KCP_COMM;
        }
    return KCP_OK;
}

/* ---- rank 0 */
/* Each rank says at which port it listens; all get the table. */
static int hand_out_table(struct bootstrap *b)
{
    const size_t table = sizeof *b->where * (size_t)b->me.R;
    for (int r = 1; r < b->me.R; r++) {
        int32_t port;
        if (is_closed(b->fd[r]) ||
            bootstrap_read(b->fd[r], &port, sizeof port, b->until)) {
            snprintf(b->why, b->n, "rank %d was lost at the meeting", r);
            return KCP_COMM;
        }
        address_put_port(&b->where[r], port);
    }
    for (int r = 1; r < b->me.R; r++)
        if (bootstrap_write(b->fd[r], b->where, table, b->until)) {
            snprintf(b->why, b->n, "rank %d was lost at the meeting", r);
            return KCP_COMM;
        }
    return KCP_OK;
}

static int lead(struct bootstrap *b)
{
    struct own_file file = { .fd = -1 };
    struct address a;
    int err = place_open(b->at, b->until, &a, &b->listening[0], b->why, b->n);
    b->listeners = !err;
    if (!err && b->at->file[0])
        err = place_write(b->at, &a, &file, b->why, b->n);
    b->from = 1;
    b->missing = b->me.R - 1;
    if (!err)
        err = wait_for_all(b);
    own_file_remove(&file);
    return err ? err : hand_out_table(b);
}

/* ---- the others */
/* Is there one who knows who we are? He may have taken us for met. */
static int has_spoken(const struct bootstrap *b)
{
    for (int i = 0; i < b->opened; i++)
        if (b->open[i].stage == WELCOME)
            return 1;
    return 0;
}

/* Key and file may be a dead job's until rank 0 has come: they are read again before
 * each round of calls. */
static int find_rank_0(struct bootstrap *b)
{
    struct place place[MOST_PLACES];
    int found_key = 0;
    b->missing = 1;
    b->place = place;
    while (b->missing && monotonic_seconds() < b->until) {
        const int key = job_key_look(&b->key, b->why, b->n);
        const int places = key ? 0 : place_find(b->at, b->until, place, b->why, b->n);
        if (key == KCP_BAD || places < 0)
            return KCP_BAD;
        found_key |= !key;
        b->places = places;
        const double next = monotonic_seconds() + 1;
        call_places(b);
        while (b->missing && b->opened && monotonic_seconds() < b->until &&
               (monotonic_seconds() < next || has_spoken(b)))
            take_turn(b);
        close_half_open(b);
        if (b->missing)
            poll(NULL, 0, 20);
    }
    b->places = 0;
    if (!b->missing)
        return KCP_OK;
    if (!found_key) {
        snprintf(b->why, b->n, "rank 0's key did not come in time to %.160s: is the "
                 "folder shared? Else set KCP_SECRET to one word on all ranks, or "
                 "KCP_TRUST_NETWORK=1", b->key.file.path);
        return KCP_BAD;
    }
    if (b->at->file[0])
        snprintf(b->why, b->n, "rank 0 was not found through %.160s in time",
                 b->at->file);
    else
        snprintf(b->why, b->n, "rank 0 was not found at %s:%d in time", b->at->host,
                 place_port(b->at, 0));
    add_hints(b);
    return KCP_COMM;
}

static int follow(struct bootstrap *b)
{
    const int R = b->me.R, r = b->me.r;
    struct address mine = { .len = sizeof mine.at };
    int err = find_rank_0(b);
    if (err)
        return err;
    getsockname(b->fd[0], (struct sockaddr *)&mine.at, &mine.len);
    address_put_port(&mine, 0);
    b->listening[0] = address_listen(&mine);
    b->listeners = b->listening[0] >= 0;
    const int32_t port = b->listeners ? address_port(&mine) : 0;
    err = b->listeners ? bootstrap_write(b->fd[0], &port, sizeof port, b->until)
                       : KCP_COMM;
    if (!err)
        err = bootstrap_read(b->fd[0], b->where, sizeof *b->where * (size_t)R,
                             b->until);
    if (err) {
        snprintf(b->why, b->n, "rank 0 closed the meeting: a rank is missing, or there "
                 "twice, or of another job");
        return err;
    }
    struct place *place = calloc((size_t)r, sizeof *place);
    if (!place) {
        snprintf(b->why, b->n, "no memory for the places of %d ranks", r);
        return KCP_NO_MEMORY;
    }
    b->place = place;
    for (int j = 1; j < r; j++)
        if (b->where[j].len <= sizeof b->where[j].at)
            place[b->places++] = (struct place){ b->where[j], j, 0 };
    b->from = r + 1;
    b->missing = R - 2;
    err = wait_for_all(b);
    free(place);
    return err;
}

/* A rank's side, before it knows anybody; NULL: no memory. */
static struct bootstrap *meeting_begin(struct identity me, double until, int *fd,
                                       char *why, size_t n)
{
    struct bootstrap *b = calloc(1, sizeof *b);
    for (int r = 0; r < me.R; r++)
        fd[r] = -1;
    if (b)
        b->where = calloc((size_t)me.R, sizeof *b->where);
    if (!b || !b->where) {
        snprintf(why, n, "no memory for a meeting of %d ranks", me.R);
        free(b);
        return NULL;
    }
    b->me = me;
    b->fd = fd;
    b->twice = -1;
    b->patience = handshake_seconds;
    b->until = until;
    b->why = why;
    b->n = n;
    return b;
}

static int meeting_end(struct bootstrap *b, int err)
{
    close_half_open(b);
    for (int r = 0; r < b->me.R && err; r++) {
        if (b->fd[r] >= 0)
            close(b->fd[r]);
        b->fd[r] = -1;
    }
    free(b->where);
    free(b);
    return err;
}

int bootstrap_meet(const struct kcp_who *who, const struct meeting *at, double seconds,
                   int *fd, char *why, size_t n)
{
    const struct identity me = { NULL, at->job, who->R, who->r };
    const double until = monotonic_seconds() + seconds;
    struct bootstrap *b = meeting_begin(me, until, fd, why, n);
    int err = KCP_OK;
    if (!b)
        return KCP_NO_MEMORY;
    if (who->R > 1) {
        b->me.key = &b->key;
        b->at = at;
        err = job_key_open(&b->key, at, who->r, why, n);
        if (!err)
            err = who->r == 0 ? lead(b) : follow(b);
        job_key_close(&b->key);
        if (b->listeners)
            close(b->listening[0]);
    }
    return meeting_end(b, err);
}

int bootstrap_join(const struct identity *me, struct place *place, int places,
                   const int *listening, int listeners, double until, int *fd,
                   char *why, size_t n)
{
    struct bootstrap *b = meeting_begin(*me, until, fd, why, n);
    if (!b)
        return KCP_NO_MEMORY;
    memcpy(b->listening, listening, sizeof *listening * (size_t)listeners);
    b->listeners = listeners;
    b->place = place;
    b->places = places;
    b->in_turn = 1;
    b->patience = in_turn_seconds;
    b->from = me->r + 1;
    b->missing = me->R - 1;
    return meeting_end(b, wait_for_all(b));
}
