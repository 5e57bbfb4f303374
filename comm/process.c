/* process.c -- ranks as processes: letters over boot's connections, and who was lost.
 *
 * Book: chapter 19.  Checked by: tests/processes.sh, processes killed and stopped.
 * Next: process_calls.c, what a rank may call.
 *
 * One thread reads what comes, into letters; so a send only waits for a receiver that
 * does not read, and a connection that closes is noticed at once, whatever the rank
 * does. A rank is lost when its connection closes before it said goodbye, when it is
 * silent (it is heard from every second), or when it says so itself. */
#include "process.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

static int post(struct process *p, int to, struct frame f, const void *data)
{
    const double until = boot_now() + p->seconds;
    pthread_mutex_lock(&p->writing[to]);
    int err = boot_write(p->fd[to], &f, sizeof f, until);
    if (!err && f.bytes)
        err = boot_write(p->fd[to], data, f.bytes, until);
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
            post(p, r, f, p->why);
    return KCP_COMM;
}

int process_reach(struct process *p, int to, struct frame f, const void *data,
                  const char *call)
{
    char why[96];
    if (p->failed)
        return KCP_COMM;
    if (!post(p, to, f, data))
        return KCP_OK;
    snprintf(why, sizeof why, "does not read what rank %d sends in %s", p->comm.r,
             call);
    poll(NULL, 0, 50);                 /* the reader knows better if it has ended */
    return process_announce(p, to, KCP_COMM, why);
}

/* One frame from rank r, its head read already. */
static int take(struct process *p, int r, const struct frame *f)
{
    const double until = boot_now() + p->seconds;
    char why[160] = "";
    if (f->kind == FAILED) {
        if (f->bytes >= sizeof why || boot_read_all(p->fd[r], why, f->bytes, until))
            return KCP_COMM;
        told(p, f->rank, f->status, why);
    }
    if (f->kind == GOODBYE) {
        pthread_mutex_lock(&p->lock);
        p->gone[r] = 1;
        pthread_cond_broadcast(&p->change);
        pthread_mutex_unlock(&p->lock);
    }
    if (f->kind > GATHERED)
        return KCP_OK;
    struct post *l = malloc(sizeof *l + f->bytes);
    if (!l)
        return KCP_NO_MEMORY;
    *l = (struct post){ NULL, r, f->kind, f->bytes };
    if (boot_read_all(p->fd[r], l->data, f->bytes, until)) {
        free(l);
        return KCP_COMM;
    }
    pthread_mutex_lock(&p->lock);
    *p->end = l, p->end = &l->next;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    return KCP_OK;
}

/* Nobody waits for a receiver here: a connection that is being written is alive. */
static void say_alive(struct process *p)
{
    const struct frame f = { .kind = ALIVE, .rank = p->comm.r };
    for (int r = 0; r < p->comm.R; r++)
        if (r != p->comm.r && !pthread_mutex_trylock(&p->writing[r])) {
            struct pollfd out = { p->fd[r], POLLOUT, 0 };
            if (!p->gone[r] && poll(&out, 1, 0) > 0)
                boot_write(p->fd[r], &f, sizeof f, boot_now() + 1);
            pthread_mutex_unlock(&p->writing[r]);
        }
}

//> lost
static void listen_to(struct process *p, int r)
{
    struct frame f;
    p->heard[r] = boot_now();
    if (boot_read_all(p->fd[r], &f, sizeof f, boot_now() + p->seconds) ||
        take(p, r, &f)) {
        if (!p->gone[r])
            told(p, r, KCP_COMM, "its connection closed: the process ended");
        pthread_mutex_lock(&p->lock);
        p->gone[r] = 1;
        pthread_mutex_unlock(&p->lock);
    }
}
//< lost

static void *reader(void *arg)
{
    struct process *p = arg;
    const int R = p->comm.R;
    double said = boot_now();
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
            if (r != p->comm.r && !p->gone[r] && boot_now() - p->heard[r] > p->seconds)
                told(p, r, KCP_COMM, "silent for longer than KCP_TIMEOUT_S");
        if (boot_now() - said > 1)
            say_alive(p), said = boot_now();
    }
    free(poll_);
    return NULL;
}

/* Who waits for us may himself be waited for: the one not heard of is the lost one. */
static int silent(const struct process *p, int from)
{
    const double now = boot_now();
    for (int r = 0; r < p->comm.R; r++)
        if (r != p->comm.r && now - p->heard[r] > 2.5 &&
            p->heard[r] < p->heard[from])
            from = r;
    return from;
}

struct post *process_wait(struct process *p, int from, int kind, const char *call)
{
    const double until = boot_now() + p->seconds;
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
        else if (boot_now() > until) {
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

static void fail(struct kcp_comm *c, int status, const char *why)
{
    process_announce((struct process *)c, c->r, status, why);
}

static int lost(struct kcp_comm *c, int *rank, char *why, size_t n)
{
    struct process *p = (struct process *)c;
    pthread_mutex_lock(&p->lock);
    const int failed = p->failed;
    if (failed && rank)
        *rank = p->rank;
    if (failed && why)
        snprintf(why, n, "%s", p->why);
    pthread_mutex_unlock(&p->lock);
    return failed;
}

/* Goodbye, and a moment for the others' goodbyes: nobody takes our end for a loss. */
static void free_comm(struct kcp_comm *c)
{
    struct process *p = (struct process *)c;
    const struct frame f = { .kind = GOODBYE, .rank = c->r };
    const double until = boot_now() + (p->failed ? 0.5 : p->seconds);
    if (p->started && p->failed)
        process_announce(p, p->rank, p->status, p->why);
    for (int r = 0; r < c->R && p->started; r++)
        if (r != c->r)
            post(p, r, f, NULL);
    for (int left = p->started; left && boot_now() < until;) {
        pthread_mutex_lock(&p->lock);
        left = 0;
        for (int r = 0; r < c->R; r++)
            left += r != c->r && !p->gone[r];
        pthread_mutex_unlock(&p->lock);
        if (left)
            poll(NULL, 0, 5);
    }
    if (p->started && write(p->stop[1], "", 1) == 1)
        pthread_join(p->reader, NULL);
    for (int r = 0; r < c->R; r++)
        if (p->fd && p->fd[r] >= 0)
            close(p->fd[r]);
    while (p->mail) {
        struct post *l = p->mail;
        p->mail = l->next;
        free(l);
    }
    for (int i = 0; i < 2; i++)
        if (p->stop[i] >= 0)
            close(p->stop[i]);
    free(p->fd), free(p->gone), free(p->heard), free(p->writing);
    free(p);
}

/* kcp.h says the rest. One process alone gets a comm too, of one rank. */
int kcp_processes(struct kcp_comm **comm, struct kcp_who *who, char *why, size_t n)
{
    struct meeting at;
    double seconds;
    *comm = NULL;
    int err = boot_timeout(&seconds, why, n);
    if (!err)
        err = boot_read(who, &at, why, n);
    struct process *p = err ? NULL : calloc(1, sizeof *p);
    if (!p)
        return err ? err : KCP_NO_MEMORY;
    const size_t R = (size_t)who->R;
    p->comm = (struct kcp_comm){ .R = who->R, .r = who->r, .backend = "processes",
        .fail = fail, .lost = lost, .free = free_comm };
    process_calls(&p->comm);
    p->seconds = seconds, p->end = &p->mail, p->stop[0] = p->stop[1] = -1;
    p->fd = malloc(R * sizeof *p->fd), p->gone = calloc(R, sizeof *p->gone);
    p->heard = calloc(R, sizeof *p->heard), p->writing = calloc(R, sizeof *p->writing);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
    err = p->fd && p->gone && p->heard && p->writing && !pipe(p->stop) ? KCP_OK
                                                                     : KCP_NO_MEMORY;
    for (size_t r = 0; r < R && p->fd; r++)
        p->fd[r] = -1;
    if (!err)
        err = boot_meet(who, &at, seconds, p->fd, why, n);
    for (size_t r = 0; r < R && !err; r++) {
        const int on = 1;
        p->heard[r] = boot_now();
        pthread_mutex_init(&p->writing[r], NULL);
        if (p->fd[r] >= 0)
            setsockopt(p->fd[r], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    p->started = !err && !pthread_create(&p->reader, NULL, reader, p);
    if (!err && !p->started)
        err = KCP_NO_MEMORY;
    if (err)
        free_comm(&p->comm);
    else
        *comm = &p->comm;
    return err;
}
