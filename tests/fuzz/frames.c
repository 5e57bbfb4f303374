/* frames.c -- any bytes from a rank that is connected: frames, or the rank is lost.
 *
 * Book: chapter 20.  Checked by: make fuzz.  Next: comm/backend/tcp_messages.c, whose
 * reader is fed here, a piece at a time, without its thread.
 *
 * Bytes: how many a caller waits for, how many this rank has sent, how the rest is cut.
 */
#include "comm/backend/tcp_messages.c"

#include <fcntl.h>

#define MUST(condition)                                                               \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "fuzz_frames: %s, line %d\n", #condition, __LINE__);      \
            abort();                                                                  \
        }                                                                             \
    } while (0)

double monotonic_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { R = 2 };
struct rank {
    struct tcp_rank p;
    int fd[R];
    atomic_int gone[R], broken[R];
    _Atomic double heard[R];
    _Atomic int64_t expected[R];
    struct incoming incoming[R];
    pthread_mutex_t writing[R];
};

static void start(struct rank *x, int pair[2], int64_t expected, int64_t largest)
{
    struct tcp_rank *p = &x->p;
    p->comm.R = R;
    p->fd = x->fd;
    p->gone = x->gone;
    p->broken = x->broken;
    p->heard = x->heard;
    p->expected = x->expected;
    p->incoming = x->incoming;
    p->writing = x->writing;
    p->seconds = 1;
    p->end = &p->inbox;
    p->largest = largest;
    p->announced = 1;                    /* nobody is told */
    p->wake[0] = p->wake[1] = -1;
    x->fd[0] = -1;
    x->fd[1] = pair[0];
    x->expected[1] = expected;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
}

/* What a rank may have said, and no more: frames whole, their sizes believable. */
static void look(const struct rank *x, int64_t expected, int64_t largest)
{
    for (const struct tcp_message *m = x->p.inbox; m; m = m->next) {
        const int64_t n = (int64_t)m->bytes;
        MUST(m->from == 1 && (m->kind == MESSAGE || m->kind == GATHERED));
        MUST(n <= EAGER || n <= largest || n == expected);
    }
    MUST(!x->p.failed || (x->p.rank >= 0 && x->p.rank < R));
    MUST(memchr(x->p.why, 0, sizeof x->p.why) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    if (size < 3 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 0;
    static const int64_t sizes[] = { NOTHING_EXPECTED, 0, 8, 64, 1000, EAGER + 1 };
    const int64_t expected = sizes[data[0] % 6], largest = data[1] % 2 ? 100 : 0;
    const size_t piece = 1 + data[2];
    struct rank *x = calloc(1, sizeof *x);
    MUST(x);
    start(x, pair, expected, largest);
    for (size_t at = 3; at < size && !x->gone[1]; at += piece) {
        const size_t n = size - at < piece ? size - at : piece;
        /* A rank that waits does not read: what fills its socket is the end. */
        if (send(pair[1], data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            break;
        for (int i = 0; i < 40 && !x->gone[1]; i++) {
            struct pollfd in = { pair[0], POLLIN, 0 };
            if (poll(&in, 1, 0) <= 0 && !x->incoming[1].waits) break;
            listen_to(&x->p, 1, in.revents & POLLIN);
            if (x->incoming[1].waits) break;
        }
        look(x, expected, largest);
    }
    close(pair[1]);
    for (int i = 0; i < 4 && !x->gone[1]; i++) listen_to(&x->p, 1, POLLIN | POLLHUP);
    look(x, expected, largest);
    while (x->p.inbox) {
        struct tcp_message *m = x->p.inbox;
        x->p.inbox = m->next;
        free(m);
    }
    free(x->incoming[1].message);
    close(pair[0]);
    free(x);
    return 0;
}
