/* tcp.c -- ranks as processes: made over proven connections, ended with a goodbye.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh, processes killed and stopped.
 * Next: comm/backend/tcp_messages.c, what goes over the connections. */
#define _POSIX_C_SOURCE 200809L
#include "tcp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void tcp_comm_fail(struct kcp_comm *c, int status, const char *why)
{
    tcp_fail((struct tcp_rank *)c, c->r, status, why);
}

static int tcp_comm_lost(struct kcp_comm *c, int *rank, char *why, size_t n)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    pthread_mutex_lock(&p->lock);
    const int failed = p->failed;
    if (failed && rank)
        *rank = p->rank;
    if (failed && why)
        snprintf(why, n, "%s", p->why);
    pthread_mutex_unlock(&p->lock);
    return failed;
}

/* ---- children of a fork
 * They have no reader, and are no rank. A connection that one of them held would stay
 * open when this process is killed: nobody would know it for long. */
static pthread_mutex_t reading_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tcp_rank *reading;
static pthread_once_t at_fork = PTHREAD_ONCE_INIT;

static void before_fork(void) { pthread_mutex_lock(&reading_lock); }
static void after_fork(void) { pthread_mutex_unlock(&reading_lock); }

static void in_child(void)
{
    for (struct tcp_rank *p = reading; p; p = p->next) {
        for (int r = 0; r < p->comm.R; r++) {
            if (p->fd[r] >= 0)
                close(p->fd[r]);
            p->fd[r] = -1;
            p->gone[r] = 1;
        }
        for (int i = 0; i < 2; i++) {
            close(p->wake[i]);
            p->wake[i] = -1;
        }
        p->started = 0;
    }
    reading = NULL;
    after_fork();
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

static void add_reading(struct tcp_rank *p)
{
    pthread_once(&at_fork, watch_forks);
    pthread_mutex_lock(&reading_lock);
    p->next = reading;
    reading = p;
    pthread_mutex_unlock(&reading_lock);
}

static void remove_reading(const struct tcp_rank *p)
{
    pthread_mutex_lock(&reading_lock);
    for (struct tcp_rank **at = &reading; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    pthread_mutex_unlock(&reading_lock);
}

/* ---- its end */
/* Goodbye, and a moment for the others' goodbyes: nobody takes our end for a loss. One
 * deadline for all of it. Who has said goodbye is told too: of three ranks that end at
 * once each could wait for one that it had not told. */
static void part(struct tcp_rank *p)
{
    const struct frame f = { .kind = GOODBYE, .rank = p->comm.r };
    const int R = p->comm.R;
    if (p->failed)
        tcp_fail(p, p->rank, p->status, p->why);
    const double until = monotonic_seconds() + (p->failed ? 0.5 : p->parting);
    for (int r = 0; r < R; r++)
        if (r != p->comm.r)
            tcp_send_frame(p, r, f, NULL, p->gone[r] ? monotonic_seconds() : until);
    for (int left = 1; left && monotonic_seconds() < until;) {
        left = 0;
        for (int r = 0; r < R; r++)
            left += r != p->comm.r && !p->gone[r];
        if (left)
            poll(NULL, 0, 5);
    }
}

void tcp_say_goodbye(struct kcp_comm *c)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    const struct frame f = { .kind = GOODBYE, .rank = c->r };
    for (int r = 0; r < c->R && !p->failed; r++)
        if (r != c->r && !p->gone[r])
            tcp_send_frame(p, r, f, NULL, monotonic_seconds());
}

void tcp_drop(struct kcp_comm *c)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    if (p->started) {
        p->stop = 1;
        const ssize_t woken = write(p->wake[1], "", 1);
        (void)woken;                   /* else it looks at stop every 250 ms */
        pthread_join(p->reader, NULL);
        remove_reading(p);
    }
    for (int r = 0; r < c->R; r++)
        if (p->fd && p->fd[r] >= 0)
            close(p->fd[r]);
    while (p->inbox) {
        struct tcp_message *m = p->inbox;
        p->inbox = m->next;
        free(m);
    }
    for (int i = 0; i < 2; i++)
        if (p->wake[i] >= 0)
            close(p->wake[i]);
    for (int r = 0; r < c->R && p->incoming; r++)
        free(p->incoming[r].message);
    for (int r = 0; r < p->locks; r++)
        pthread_mutex_destroy(&p->writing[r]);
    pthread_cond_destroy(&p->change);
    pthread_mutex_destroy(&p->lock);
    free(p->fd);
    free(p->gone);
    free(p->broken);
    free(p->heard);
    free(p->expected);
    free(p->incoming);
    free(p->polled);
    free(p->writing);
    free(p);
}

static void tcp_comm_free(struct kcp_comm *c)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    if (p->started)
        part(p);
    tcp_drop(c);
}

static struct tcp_rank *make_rank(const struct kcp_who *who, double seconds)
{
    const size_t R = (size_t)who->R;
    struct tcp_rank *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->comm = (struct kcp_comm){ .R = who->R, .r = who->r, .backend = "processes",
        .fail = tcp_comm_fail, .lost = tcp_comm_lost, .free = tcp_comm_free };
    tcp_calls(&p->comm);
    p->seconds = p->parting = seconds;
    p->end = &p->inbox;
    p->wake[0] = p->wake[1] = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
    p->fd = malloc(R * sizeof *p->fd);
    p->gone = calloc(R, sizeof *p->gone);
    p->broken = calloc(R, sizeof *p->broken);
    p->heard = calloc(R, sizeof *p->heard);
    p->expected = calloc(R, sizeof *p->expected);
    p->incoming = calloc(R, sizeof *p->incoming);
    p->polled = calloc(R + 1, sizeof *p->polled);
    p->writing = calloc(R, sizeof *p->writing);
    for (size_t r = 0; r < R && p->fd; r++)
        p->fd[r] = -1;
    if (!p->fd || !p->gone || !p->broken || !p->heard || !p->expected || !p->incoming ||
        !p->polled || !p->writing || pipe(p->wake)) {
        tcp_comm_free(&p->comm);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(p->wake[i], F_SETFD, FD_CLOEXEC);
        fcntl(p->wake[i], F_SETFL, O_NONBLOCK);
    }
    return p;
}

static int start_reader(struct tcp_rank *p)
{
    const int on = 1;
    for (int r = 0; r < p->comm.R; r++) {
        p->heard[r] = monotonic_seconds();
        p->expected[r] = NOTHING_EXPECTED;
        pthread_mutex_init(&p->writing[r], NULL);
        p->locks++;
        if (p->fd[r] >= 0)
            setsockopt(p->fd[r], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    p->started = !pthread_create(&p->reader, NULL, tcp_reader, p);
    if (p->started)
        add_reading(p);
    return p->started ? KCP_OK : KCP_NO_MEMORY;
}

int tcp_over(struct kcp_comm **comm, const struct kcp_who *who, double seconds,
             double parting, int *fd, char *why, size_t n)
{
    struct tcp_rank *p = make_rank(who, seconds);
    int err = p ? KCP_OK : KCP_NO_MEMORY;
    for (int r = 0; r < who->R && !err; r++)
        p->fd[r] = fd[r];
    if (!err) {
        p->parting = parting;
        err = start_reader(p);
    }
    if (err)
        snprintf(why, n, "no memory, or no thread, to watch %d ranks", who->R);
    for (int r = 0; r < who->R && p && err; r++)
        p->fd[r] = -1;                 /* they stay the caller's */
    if (err && p)
        tcp_drop(&p->comm);
    *comm = err ? NULL : &p->comm;
    return err;
}

/* kcp.h says the rest. One process alone gets a comm too, of one rank. */
int kcp_processes(struct kcp_comm **comm, struct kcp_who *who, char *why, size_t n)
{
    struct meeting at;
    struct env_options asked;
    if (!comm || !who)
        return KCP_BAD;
    *comm = NULL;
    int err = launcher_env_options(&asked, why, n);
    if (!err)
        err = launcher_env_read(who, &at, why, n);
    if (err)
        return err;
    struct tcp_rank *p = make_rank(who, (double)asked.seconds);
    if (!p) {
        snprintf(why, n, "no memory, or no file descriptors, for %d ranks", who->R);
        return KCP_NO_MEMORY;
    }
    err = bootstrap_meet(who, &at, p->seconds, p->fd, why, n);
    if (!err && start_reader(p)) {
        snprintf(why, n, "no thread to read what other ranks send");
        err = KCP_NO_MEMORY;
    }
    if (err)
        tcp_comm_free(&p->comm);
    else
        *comm = &p->comm;
    return err;
}
