/* stranger.c -- whom ranks must stand: strangers at the door, and ranks that misbehave.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh, which runs it.
 * Next: comm/bootstrap.c.
 * Strangers know a port of this machine, and nothing else; each mode ends by itself
 * within SECONDS. The others are ranks of a job, by its environment. */
#define _DEFAULT_SOURCE
#include "comm/backend/tcp.h"
#include "comm/handshake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int call_port(int port)
{
    const struct sockaddr_in a = loopback(port);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

static int serve(int port, int backlog)
{
    const struct sockaddr_in a = loopback(port);
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&a, sizeof a) || listen(fd, backlog))
        return -1;
    return fd;
}

/* Who was sent away calls again: seats are never empty. */
static void come_again(int fd[], int n, int port)
{
    char heard[256];
    for (int i = 0; i < n; i++) {
        if (fd[i] >= 0 && (recv(fd[i], heard, sizeof heard, MSG_DONTWAIT) > 0 ||
                           errno == EAGAIN || errno == EWOULDBLOCK))
            continue;
        if (fd[i] >= 0)
            close(fd[i]);
        fd[i] = call_port(port);
    }
}

/* n callers who say nothing, or nonsense, as soon as somebody listens. */
static int knock(int port, int n, double seconds, int talk)
{
    const double until = monotonic_seconds() + seconds;
    int fd[512], called = 0;
    const int most = (int)(sizeof fd / sizeof *fd);
    while (called < n && called < most && monotonic_seconds() < until) {
        char noise[256];
        fd[called] = call_port(port);
        if (fd[called] < 0) {
            poll(NULL, 0, 5);
            continue;
        }
        memset(noise, 'x' + called % 3, sizeof noise);
        if (talk && send(fd[called], noise, sizeof noise, MSG_NOSIGNAL) < 0)
            talk = 1;
        called++;
    }
    printf("%d called\n", called);
    fflush(stdout);
    while (monotonic_seconds() < until) {
        poll(NULL, 0, 10);
        if (!talk)
            come_again(fd, called, port);
    }
    return called == n ? 0 : 1;
}

/* Callers who come and go as fast as they can: n processes of them. */
static int flood(int port, int n, double seconds)
{
    const double until = monotonic_seconds() + seconds;
    const pid_t first = getpid();
    long called = 0;
    for (int i = 1; i < n; i++)
        if (fork() == 0)
            break;
    while (monotonic_seconds() < until && (getpid() == first || getppid() == first)) {
        const int fd = call_port(port);
        if (fd < 0)
            poll(NULL, 0, 1);
        else if (called++ == 0) {
            printf("called\n");
            fflush(stdout);
        }
        if (fd >= 0)
            close(fd);
    }
    return called > 0 ? 0 : 1;
}

/* Another service: it listens and never answers; full: it does not even take calls. */
static int sit(int port, double seconds, int full)
{
    const int fd = serve(port, full ? 0 : 16);
    if (fd < 0)
        return 1;
    for (int i = 0; i < 3 && full; i++) {
        const struct sockaddr_in a = loopback(port);
        const int mine = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(mine, (const struct sockaddr *)&a, sizeof a) == 0)
            continue;
    }
    printf("listening\n");
    fflush(stdout);
    poll(NULL, 0, (int)(seconds * 1000));
    return 0;
}

/* In rank 0's place, without the key: it says what rank 0 says, and proves nothing. */
static int claim(int port, double seconds)
{
    const double until = monotonic_seconds() + seconds;
    const int fd = serve(port, 16);
    struct half_open h = { .fd = -1 };
    unsigned char nothing[PROOF_BYTES] = { 0 };
    if (fd < 0)
        return 1;
    memcpy(h.challenge.magic, "kcp 2", 5);
    printf("listening\n");
    fflush(stdout);
    while (monotonic_seconds() < until) {
        struct pollfd p = { fd, POLLIN, 0 };
        const int called = poll(&p, 1, 50) > 0 ? accept(fd, NULL, NULL) : -1;
        if (called >= 0 &&
            send(called, &h.challenge, sizeof h.challenge, MSG_NOSIGNAL) > 0 &&
            recv(called, &h.hello, sizeof h.hello, MSG_WAITALL) == sizeof h.hello)
            send(called, nothing, sizeof nothing, MSG_NOSIGNAL);
    }
    return 0;
}

/* A connection to oneself looks like one to a listener; the handshake must see it. */
static int is_self_refused(int port)
{
    const struct sockaddr_in a = loopback(port);
    const struct job_key key = { .source = KEY_NONE };
    const struct identity me = { &key, 1, 2, 1 };
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct half_open h;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&a, sizeof a) ||
        connect(fd, (const struct sockaddr *)&a, sizeof a))
        return 1;
    handshake_begin(&h, fd, 1, 0, monotonic_seconds() + 1);
    return handshake_step(&h, &me) == REFUSED ? 0 : 1;
}

/* The race that a thread sanitizer must see, before its silence counts. */
static int raced;
static void *race(void *arg)
{
    for (int i = 0; i < 1000; i++)
        raced += i;
    return arg;
}

static int race_on_purpose(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, race, NULL))
        return 1;
    race(NULL);
    pthread_join(thread, NULL);
    return raced < 0;
}

/* ---- ranks */
static int tell(struct kcp_comm *c, int err)
{
    char why[200] = "";
    int rank = -1;
    if (c->lost(c, &rank, why, sizeof why))
        printf("rank %d: %s\n", rank, why);
    fflush(stdout);
    return err ? 1 : 0;
}

/* Rank 1 holds a seat and sends a frame that no rank sends; rank 0 waits for eight
 * bytes from it. */
static int frame(struct kcp_comm *c, const char *what)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    char body[4096] = { 0 };
    struct frame f = { .kind = GATHERED, .rank = 1, .bytes = UINT64_MAX - 23 };
    if (c->r == 0)
        return c->recv(c, body, 8, 1, NULL);
    if (!strcmp(what, "kind"))
        f.kind = 77;
    else if (!strcmp(what, "terabytes"))
        f.bytes = 1ull << 45;
    else if (!strcmp(what, "words"))
        f = (struct frame){ FAILED, 1, KCP_COMM, 0, 4000 };
    else if (!strcmp(what, "blames"))
        f = (struct frame){ FAILED, 1 << 20, KCP_COMM, 0, 3 };
    if (bootstrap_write(p->fd[0], &f, sizeof f, monotonic_seconds() + 5) ||
        bootstrap_write(p->fd[0], body, sizeof body, monotonic_seconds() + 5))
        return KCP_COMM;
    return c->recv(c, body, 8, 0, NULL);
}

/* What is sent until every buffer to rank 1 is full, and no call hangs. */
static void fill_buffers(struct kcp_comm *c)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    static const char zeros[1 << 16];
    for (int quiet = 0; quiet < 20; quiet++) {
        while (send(p->fd[1], zeros, sizeof zeros, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
            quiet = 0;
        poll(NULL, 0, 10);
    }
}

/* Rank 1 stands still, and every buffer to it fills: rank 0 sends, or ("waits") waits
 * for its answer, or ("third") sends while rank 2 is killed. */
static int full(struct kcp_comm *c, const char *what)
{
    const size_t bytes = 1 << 20;
    char *data = calloc(1, bytes);
    int err = data ? KCP_OK : KCP_NO_MEMORY;
    if (c->r == 1)
        raise(SIGSTOP);
    if (c->r == 2) {
        poll(NULL, 0, 1500);
        raise(SIGKILL);
    }
    if (!strcmp(what, "waits")) {
        fill_buffers(c);
        err = c->recv(c, data, bytes, 1, NULL);
    }
    for (int i = 0; i < 500 && !err; i++)
        err = c->send(c, data, bytes, 1, NULL);
    free(data);
    return err;
}

/* More than is taken before it is waited for: round a ring, and to one who is late. */
static int large(struct kcp_comm *c)
{
    const size_t bytes = 80 << 20, half = bytes / 2;
    unsigned char *out = malloc(bytes), *in = calloc(1, bytes);
    int err = out && in ? KCP_OK : KCP_NO_MEMORY;
    if (!err)
        memset(out, c->r + 1, bytes);
    const int next = (c->r + 1) % c->R, last = (c->r + c->R - 1) % c->R;
    if (c->r == 0 && !err)
        err = c->send(c, out, bytes, 1, NULL);
    if (c->r == 1 && !err) {
        poll(NULL, 0, 1500);
        err = c->recv(c, in, bytes, 0, NULL);
        if (!err && (in[0] != 1 || in[half] != 1 || in[bytes - 1] != 1))
            err = KCP_BAD;
    }
    if (!err)
        err = c->send(c, out, bytes, next, NULL);
    if (!err)
        err = c->recv(c, in, bytes, last, NULL);
    const int says = last + 1;
    if (!err && (in[0] != says || in[half] != says || in[bytes - 1] != says))
        err = KCP_BAD;
    free(out);
    free(in);
    return err;
}

/* Rank 0 has no memory for what rank 1 rightly sends. */
static int hungry(struct kcp_comm *c)
{
    const size_t bytes = 512u << 20;
    char *data = malloc(bytes);
    struct rlimit none = { 256u << 20, 256u << 20 };
    if (!data)
        return KCP_NO_MEMORY;
    if (c->r == 1)
        memset(data, 0, bytes);
    if (c->r == 0 && setrlimit(RLIMIT_AS, &none))
        return KCP_BAD;
    const int err = c->r ? c->send(c, data, bytes, 0, NULL)
                         : c->recv(c, data, bytes, 1, NULL);
    free(data);
    return err;
}

static int as_rank(const char *mode, const char *what)
{
    struct kcp_comm *c;
    struct kcp_who who;
    char why[300] = "";
    int err = kcp_processes(&c, &who, why, sizeof why);
    if (err) {
        fprintf(stderr, "rank %d: %s\n", who.r, why);
        return err == KCP_BAD ? 2 : 1;
    }
    const double began = monotonic_seconds();
    if (!strcmp(mode, "frame"))
        err = frame(c, what);
    else if (!strcmp(mode, "full"))
        err = full(c, what);
    else if (!strcmp(mode, "large"))
        err = large(c);
    else
        err = hungry(c);
    if (!err)
        err = c->barrier(c, NULL);
    const int status = tell(c, err);
    c->free(c);
    printf("ended after %.1f s\n", monotonic_seconds() - began);
    return status;
}

/* A rank's hello of one start, with its proof, said again to the next start of the same
 * job: what was random there is random anew, so it proves nothing. */
static int replay(int port, double seconds)
{
    const double until = monotonic_seconds() + seconds;
    struct challenge mine = { .magic = "kcp 2" }, theirs;
    unsigned char welcome[PROOF_BYTES];
    struct hello heard;
    const int door = serve(port, 1);
    if (door < 0)
        return 1;
    printf("listening\n");
    fflush(stdout);
    int fd = accept(door, NULL, NULL);
    if (send(fd, &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine ||
        recv(fd, &heard, sizeof heard, MSG_WAITALL) != sizeof heard)
        return 1;
    close(fd);
    close(door);
    printf("heard rank %d of %d\n", heard.caller, heard.R);
    fflush(stdout);
    while ((fd = call_port(port)) < 0 && monotonic_seconds() < until)
        poll(NULL, 0, 5);
    if (recv(fd, &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs ||
        send(fd, &heard, sizeof heard, MSG_NOSIGNAL) != sizeof heard)
        return 1;
    const int welcomed = recv(fd, welcome, sizeof welcome, MSG_WAITALL) > 0;
    printf("%s\n", welcomed ? "welcomed" : "refused");
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "", *what = argc > 2 ? argv[2] : "";
    const int port = atoi(what), n = argc > 3 ? atoi(argv[3]) : 0;
    const double seconds = argc > 4 ? atof(argv[4]) : 5;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-stranger %s\n", kcp_version());
        return 0;
    }
    if (!strcmp(mode, "silent") || !strcmp(mode, "garbage"))
        return knock(port, n, seconds, *mode == 'g');
    if (!strcmp(mode, "flood"))
        return flood(port, n, seconds);
    if (!strcmp(mode, "sits") || !strcmp(mode, "busy"))
        return sit(port, seconds, *mode == 'b');
    if (!strcmp(mode, "claims"))
        return claim(port, seconds);
    if (!strcmp(mode, "replays"))
        return replay(port, seconds);
    if (!strcmp(mode, "race"))
        return race_on_purpose();
    if (!strcmp(mode, "self"))
        return is_self_refused(port);
    return as_rank(mode, what);
}
