/* meeting_place.c -- where rank 0 is: at a host and one of a few ports, or where a file
 * says.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh, tests/cli/processes.sh.
 * Next: comm/bootstrap.c, the meeting itself.
 * Rank 0 takes the first port that is free, and the others try them all: whoever
 * answers at a wrong one does not know the job's key. A file is rank 0's own, made
 * where nothing was, and holds the address that rank 0 listens at. */
#define _POSIX_C_SOURCE 200809L
#include "meeting_place.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char first_line[] = "kcp meeting 1";

/* ---- addresses */
int address_port(const struct address *a)
{
    return ntohs(a->at.ss_family == AF_INET6
                 ? ((const struct sockaddr_in6 *)&a->at)->sin6_port
                 : ((const struct sockaddr_in *)&a->at)->sin_port);
}

void address_put_port(struct address *a, int port)
{
    if (a->at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a->at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&a->at)->sin_port = htons((uint16_t)port);
}

/* How many addresses host has; MOST_ADDRESSES at most. As a number it asks nobody. */
static int ask_for(const char *host, int flags, struct address a[MOST_ADDRESSES])
{
    struct addrinfo hint = { .ai_socktype = SOCK_STREAM, .ai_flags = flags }, *found;
    int n = 0;
    if (getaddrinfo(host, "1", &hint, &found))
        return 0;
    for (struct addrinfo *f = found; f && n < MOST_ADDRESSES; f = f->ai_next) {
        if (f->ai_family != AF_INET && f->ai_family != AF_INET6)
            continue;
        memset(&a[n], 0, sizeof a[n]);
        memcpy(&a[n].at, f->ai_addr, f->ai_addrlen);
        a[n++].len = f->ai_addrlen;
    }
    freeaddrinfo(found);
    return n;
}

/* getaddrinfo has no time limit, and a name service that is dead may keep it for half a
 * minute: a thread asks, and whoever comes last frees what the two share. */
struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    char host[sizeof ((struct meeting *)NULL)->host];
    struct address a[MOST_ADDRESSES];
    int n, is_answered, is_left;
};

static void lookup_free(struct lookup *l)
{
    pthread_mutex_unlock(&l->lock);
    pthread_cond_destroy(&l->answered);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *lookup_thread(void *arg)
{
    struct lookup *l = arg;
    const int n = ask_for(l->host, 0, l->a);
    pthread_mutex_lock(&l->lock);
    l->n = n;
    l->is_answered = 1;
    pthread_cond_signal(&l->answered);
    if (l->is_left)
        lookup_free(l);
    else
        pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* 0 too when nobody has answered by until. */
static int resolve(const char *host, struct address a[MOST_ADDRESSES], double until)
{
    pthread_t thread;
    struct timespec end;
    int n = ask_for(host, AI_NUMERICHOST, a);
    struct lookup *l = n ? NULL : calloc(1, sizeof *l);
    if (!l)
        return n;
    snprintf(l->host, sizeof l->host, "%s", host);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->answered, NULL);
    pthread_mutex_lock(&l->lock);
    if (pthread_create(&thread, NULL, lookup_thread, l)) {
        lookup_free(l);
        return 0;
    }
    pthread_detach(thread);
    const double left = until - monotonic_seconds();
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += left > 0 ? (time_t)left + 1 : 0;
    for (int err = 0; !l->is_answered && !err;)
        err = pthread_cond_timedwait(&l->answered, &l->lock, &end);
    if (!l->is_answered) {
        l->is_left = 1;
        pthread_mutex_unlock(&l->lock);
        return 0;
    }
    n = l->n;
    memcpy(a, l->a, sizeof l->a);
    lookup_free(l);
    return n;
}

static int new_socket(const struct address *a)
{
    const int fd = socket(a->at.ss_family, SOCK_STREAM, 0);
    if (fd < 0)
        return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
}

/* A listening socket at this address, which then holds the port it got; -1: errno. */
int address_listen(struct address *a)
{
    const int on = 1, fd = new_socket(a);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&a->at, a->len) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&a->at, &a->len)) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

/* A connection that is on its way, or -1. */
int address_call(const struct address *a)
{
    const int fd = new_socket(a);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a->at, a->len) &&
        errno != EINPROGRESS) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

/* Rank 0's k-th port: the meeting's own, then some that follow from the job. */
int place_port(const struct meeting *at, int k)
{
    const int i = k + at->port_is_taken;
    return i == 0 ? at->port : 20000 + (int)((at->job / 10000 + 2477u * i) % 10000);
}

/* ---- rank 0's place */
int place_open(const struct meeting *at, double until, struct address *got,
               int *listening, char *why, size_t size)
{
    struct address a[MOST_ADDRESSES];
    const int n = resolve(at->host, a, until);
    int error = 0;
    for (int k = 0; k < MOST_PORTS && (k == 0 || error == EADDRINUSE); k++)
        for (int i = 0; i < n; i++) {
            address_put_port(&a[i], at->file[0] ? 0 : place_port(at, k));
            *got = a[i];
            *listening = address_listen(got);
            if (*listening >= 0)
                return KCP_OK;
            error = errno;
        }
    if (!n)
        snprintf(why, size, "rank 0 knows no address of %s", at->host);
    else
        snprintf(why, size, "rank 0 cannot listen at %s:%d: %s", at->host,
                 place_port(at, 0), strerror(error));
    return KCP_COMM;
}

int place_write(const struct meeting *at, const struct address *a,
                struct own_file *file, char *why, size_t n)
{
    char host[64], text[96];
    if (getnameinfo((const struct sockaddr *)&a->at, a->len, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST))
        return KCP_COMM;
    snprintf(text, sizeof text, "%s %d", host, address_port(a));
    return own_file_make(file, at->file, first_line, text, why, n);
}

/* "127.0.0.1 4711", as place_write has written it. */
static int read_place(const char *text, char *host, size_t size, int *port)
{
    const size_t n = strcspn(text, " ");
    char *end;
    if (n == 0 || n >= size || text[n] != ' ') return KCP_NA;
    memcpy(host, text, n);
    host[n] = 0;
    const long found = strtol(text + n + 1, &end, 10);
    *port = (int)found;
    return end == text + n + 1 || found < 1 || found > 65535 ? KCP_NA : KCP_OK;
}

/* Where rank 0 may be, as far as is known by now. */
int place_find(const struct meeting *at, double until, struct place place[MOST_PLACES],
               char *why, size_t size)
{
    char text[96] = "", host[64] = "";
    struct address a[MOST_ADDRESSES];
    int port = 0, n = 0;
    if (at->file[0]) {
        const int err = own_file_read(at->file, first_line, text, sizeof text, why,
                                      size);
        if (err || read_place(text, host, sizeof host, &port))
            return err == KCP_BAD ? -1 : 0;
    }
    const int addresses = resolve(host[0] ? host : at->host, a, until);
    for (int i = 0; i < addresses; i++)
        for (int k = 0; k < (host[0] ? 1 : MOST_PORTS); k++) {
            place[n].a = a[i];
            address_put_port(&place[n].a, host[0] ? port : place_port(at, k));
            place[n].rank = 0;
            place[n++].not_before = 0;
        }
    return n;
}
