/* process.c -- ranks as processes: made over boot's connections, ended with a goodbye.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh, processes killed and stopped.
 * Next: process_letters.c, what goes over the connections. */
#include "tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
    const double until = monotonic_seconds() + (p->failed ? 0.5 : p->seconds);
    if (p->started && p->failed)
        process_announce(p, p->rank, p->status, p->why);
    for (int r = 0; r < c->R && p->started; r++)
        if (r != c->r)
            process_post(p, r, f, NULL);
    for (int left = p->started; left && monotonic_seconds() < until;) {
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
    for (int r = 0; r < c->R && p->coming; r++)
        free(p->coming[r].post);
    free(p->fd), free(p->gone), free(p->heard), free(p->coming), free(p->writing);
    free(p);
}

/* kcp.h says the rest. One process alone gets a comm too, of one rank. */
int kcp_processes(struct kcp_comm **comm, struct kcp_who *who, char *why, size_t n)
{
    struct meeting at;
    double seconds;
    *comm = NULL;
    int err = launcher_env_timeout(&seconds, why, n);
    if (!err)
        err = launcher_env_read(who, &at, why, n);
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
    p->coming = calloc(R, sizeof *p->coming);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
    err = p->fd && p->gone && p->heard && p->coming && p->writing && !pipe(p->stop)
        ? KCP_OK : KCP_NO_MEMORY;
    for (size_t r = 0; r < R && p->fd; r++)
        p->fd[r] = -1;
    if (!err)
        err = bootstrap_meet(who, &at, seconds, p->fd, why, n);
    for (size_t r = 0; r < R && !err; r++) {
        const int on = 1;
        p->heard[r] = monotonic_seconds();
        pthread_mutex_init(&p->writing[r], NULL);
        if (p->fd[r] >= 0)
            setsockopt(p->fd[r], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    p->started = !err && !pthread_create(&p->reader, NULL, process_reader, p);
    if (!err && !p->started)
        err = KCP_NO_MEMORY;
    if (err)
        free_comm(&p->comm);
    else
        *comm = &p->comm;
    return err;
}
