/* boot.c -- R processes find one another: a connection between any two, by TCP.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh.  Next: process.c.
 * Everybody calls rank 0, tells who he is and where he listens, and gets the table of
 * all; then a rank calls those below it. Limits: R (R-1) / 2 connections, so hundreds
 * of processes; the key keeps jobs apart and is no secret: the network is trusted. */
#include "bootstrap.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct hello { char magic[8]; uint64_t key; int32_t R, r, port, pad; };
struct address { struct sockaddr_storage at; socklen_t len; };

static int ready(int fd, short what, double until)
{
    struct pollfd p = { fd, what, 0 };
    const double left = until - monotonic_seconds();
    return left > 0 && poll(&p, 1, (int)(left * 1000) + 1) > 0;
}

int bootstrap_write(int fd, const void *data, size_t bytes, double until)
{
    const char *p = data;
    while (bytes) {
        const ssize_t k = ready(fd, POLLOUT, until)
                        ? send(fd, p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
        if (k > 0)
            p += k, bytes -= (size_t)k;
        else if (monotonic_seconds() > until || (errno != EAGAIN && errno != EINTR))
            return KCP_COMM;
    }
    return KCP_OK;
}

int bootstrap_read(int fd, void *data, size_t bytes, double until)
{
    char *p = data;
    while (bytes) {
        const ssize_t k = ready(fd, POLLIN, until)
                        ? recv(fd, p, bytes, MSG_DONTWAIT) : -1;
        if (k > 0)
            p += k, bytes -= (size_t)k;
        else if (k == 0 || monotonic_seconds() > until || (errno != EAGAIN && errno != EINTR))
            return KCP_COMM;
    }
    return KCP_OK;
}

static int port_of(const struct address *a)
{
    return ntohs(a->at.ss_family == AF_INET6
                 ? ((const struct sockaddr_in6 *)&a->at)->sin6_port
                 : ((const struct sockaddr_in *)&a->at)->sin_port);
}

static void put_port(struct address *a, int port)
{
    if (a->at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a->at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&a->at)->sin_port = htons((uint16_t)port);
}

static int resolve(const char *host, int port, struct address *a)
{
    struct addrinfo hint = { .ai_socktype = SOCK_STREAM }, *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hint, &found))
        return KCP_COMM;
    memset(a, 0, sizeof *a);
    memcpy(&a->at, found->ai_addr, found->ai_addrlen);
    a->len = found->ai_addrlen;
    freeaddrinfo(found);
    return KCP_OK;
}

/* A listening socket at this address, which then holds the port it got; -1: errno. */
static int listen_at(struct address *a, int backlog)
{
    const int on = 1, fd = socket(a->at.ss_family, SOCK_STREAM, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&a->at, a->len) || listen(fd, backlog) ||
        getsockname(fd, (struct sockaddr *)&a->at, &a->len)) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static int call(const struct address *a)
{
    const int fd = socket(a->at.ss_family, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a->at, a->len)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Rank 0's end: at the address of the meeting, or anywhere, told by the file. */
static int open_meeting(const struct meeting *at, int R, char *why, size_t n)
{
    struct address a = { .at.ss_family = AF_INET, .len = sizeof(struct sockaddr_in) };
    char name[256] = "127.0.0.1", next[300];
    if (!at->file[0] && resolve(at->host, at->port, &a)) {
        snprintf(why, n, "rank 0 knows no address of %s", at->host);
        return -1;
    }
    const int fd = listen_at(&a, R + 16);
    if (fd < 0)
        snprintf(why, n, "rank 0 cannot listen at %s:%d: %s", at->host, at->port,
                 strerror(errno));
    if (fd < 0 || !at->file[0])
        return fd;
    gethostname(name, sizeof name - 1);
    snprintf(next, sizeof next, "%s.new", at->file);
    FILE *f = fopen(next, "w");
    const int wrong = !f || fprintf(f, "%s %d\n", name, port_of(&a)) < 0;
    if ((f && fclose(f)) || wrong || rename(next, at->file)) {
        snprintf(why, n, "rank 0 cannot write %.200s: %s", at->file, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

/* The others': tried again until somebody is there; an old file names nobody. */
static int call_meeting(const struct meeting *at, double until, char *why, size_t n)
{
    struct address a;
    for (int fd; monotonic_seconds() < until; poll(NULL, 0, 20)) {
        char host[256] = "";
        int port = at->port;
        FILE *f = at->file[0] ? fopen(at->file, "r") : NULL;
        if (f && fscanf(f, "%255s %d", host, &port) != 2)
            host[0] = 0;
        if (f)
            fclose(f);
        if (at->file[0] && !host[0])
            continue;
        if (!resolve(host[0] ? host : at->host, port, &a) && (fd = call(&a)) >= 0)
            return fd;
    }
    if (at->file[0])
        snprintf(why, n, "rank 0 was not found through %.200s in time", at->file);
    else
        snprintf(why, n, "rank 0 was not found at %s:%d in time", at->host, at->port);
    return -1;
}

/* Callers come in any order; fd [r] of ranks above low is filled, where [r] tells the
 * address that a rank can be called at. Who says another word is sent away. */
static int receive(int at, const struct hello *me, int low, double until, int *fd,
                   struct address *where, char *why, size_t n)
{
    for (int missing = me->R - 1 - low; missing;) {
        struct address from = { .len = sizeof from.at };
        struct hello h;
        const int s = ready(at, POLLIN, until)
                    ? accept(at, (struct sockaddr *)&from.at, &from.len) : -1;
        if (s < 0 && monotonic_seconds() < until)
            continue;
        if (s < 0) {
            int r = low + 1;
            while (fd[r] >= 0)
                r++;
            snprintf(why, n, "rank %d did not come in time (%d missing)", r, missing);
            return KCP_COMM;
        }
        const double soon = monotonic_seconds() + 5 < until ? monotonic_seconds() + 5 : until;
        if (bootstrap_read(s, &h, sizeof h, soon) || memcmp(h.magic, me->magic, 8) ||
            h.key != me->key || h.R != me->R || h.r <= low || h.r >= me->R ||
            fd[h.r] >= 0) {
            close(s);
            continue;
        }
        fd[h.r] = s, missing--;
        put_port(&from, h.port);
        where[h.r] = from;
    }
    return KCP_OK;
}

static int meet_all(struct hello *me, const struct meeting *at, double until, int *fd,
                    struct address *where, char *why, size_t n)
{
    const size_t table = sizeof *where * (size_t)me->R;
    int err = KCP_OK, mine = -1, R = me->R;
    if (me->r == 0) {
        mine = open_meeting(at, R, why, n);
        err = mine < 0 ? KCP_COMM : receive(mine, me, 0, until, fd, where, why, n);
        if (at->file[0] && mine >= 0)
            remove(at->file);
        for (int r = 1; r < R && !err; r++)
            err = bootstrap_write(fd[r], where, table, until);
    } else if ((fd[0] = call_meeting(at, until, why, n)) < 0) {
        err = KCP_COMM;
    } else {
        struct address a = { .len = sizeof a.at };
        getsockname(fd[0], (struct sockaddr *)&a.at, &a.len);
        put_port(&a, 0);
        mine = listen_at(&a, R + 16);
        me->port = mine < 0 ? 0 : port_of(&a);
        err = mine < 0 ? KCP_COMM : bootstrap_write(fd[0], me, sizeof *me, until);
        if (!err)
            err = bootstrap_read(fd[0], where, table, until);
        if (err)
            snprintf(why, n, "rank 0 closed the meeting: a rank is missing, or there "
                     "twice, or of another job");
        for (int r = 1; r < me->r && !err; r++)
            if ((fd[r] = call(&where[r])) < 0 ||
                bootstrap_write(fd[r], me, sizeof *me, until)) {
                snprintf(why, n, "rank %d was lost at the meeting", r);
                err = KCP_COMM;
            }
        if (!err)
            err = receive(mine, me, me->r, until, fd, where, why, n);
    }
    if (mine >= 0)
        close(mine);
    return err;
}

int bootstrap_meet(const struct kcp_who *who, const struct meeting *at, double seconds,
              int *fd, char *why, size_t n)
{
    struct hello me = { "kcp 1", at->key, who->R, who->r, 0, 0 };
    struct address *where = calloc((size_t)who->R, sizeof *where);
    if (!where) return KCP_NO_MEMORY;
    for (int r = 0; r < who->R; r++) fd[r] = -1;
    const int err = meet_all(&me, at, monotonic_seconds() + seconds, fd, where, why, n);
    for (int r = 0; r < who->R && err; r++)
        if (fd[r] >= 0)
            close(fd[r]), fd[r] = -1;
    free(where);
    return err;
}
