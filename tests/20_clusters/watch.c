/* watch.c -- ranks that lend a communicator: who is lost is known, or why nobody is.
 *
 * Book: chapter 20.  Checked by: itself, on processes that die, leave, lie and refuse.
 * Next: ../../comm/watch.c; bench/gpu_faults.sh asks it over NCCL.
 *
 * A rank is a process here, and the gather that a caller's communicator would be is
 * memory that they share. It can be told to give a rank other bytes. */
#define _DEFAULT_SOURCE
#include "tests/judge/judge.h"

#include "comm/backend/tcp.h"
#include "comm/handshake.h"
#include "comm/watch.h"
#include "tests/entries.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { R = 3, LOST = 1, ROW = 4096, WAYS_MS = 15000 };

/* ---- a gather over shared memory */
struct shared {
    atomic_int arrived, round;
    int gathers, wild;                     /* of rank 0; addresses that are any */
    unsigned char row[R][ROW];
};
struct member {
    struct shared *at;
    int r;
    void (*forge)(unsigned char *row, int of, int to, size_t bytes);
};

static int meet(struct shared *s)
{
    const int round = s->round;
    if (atomic_fetch_add(&s->arrived, 1) == R - 1) {
        s->arrived = 0;
        s->round = round + 1;
        return KCP_OK;
    }
    for (int i = 0; i < WAYS_MS && s->round == round; i++)
        poll(NULL, 0, 1);
    return s->round == round ? KCP_COMM : KCP_OK;
}

enum { FIRST_SPOT = 8 + 24 + 32 + 16 + 64, SPOT = 24 };    /* as in watch.c */

/* A rank that listens at any address, 0.0.0.0 or ::, is open to networks it shows to
 * nobody. How many there are stands 8 bytes before the reason. */
static int wild_spots(const unsigned char *row, size_t bytes)
{
    static const unsigned char none[16];
    int32_t spots = 0;
    int wild = 0;
    if (bytes <= FIRST_SPOT)
        return 0;
    memcpy(&spots, row + 8 + 24 + 32 + 8, sizeof spots);
    for (int i = 0; i < spots; i++)
        wild += !memcmp(row + FIRST_SPOT + i * SPOT + 8, none, sizeof none);
    return wild + (spots < 0 || spots > 16);
}

static int fake_rows(void *arg, const void *mine, void *all, size_t bytes)
{
    const struct member *m = arg;
    unsigned char *to = all;
    if (bytes > ROW)
        return KCP_BAD;
    memcpy(m->at->row[m->r], mine, bytes);
    m->at->wild += m->r == 0 ? wild_spots(mine, bytes) : 0;
    if (meet(m->at))
        return KCP_COMM;
    for (int r = 0; r < R; r++) {
        memcpy(to + (size_t)r * bytes, m->at->row[r], bytes);
        if (m->forge)
            m->forge(to + (size_t)r * bytes, r, m->r, bytes);
    }
    m->at->gathers += m->r == 0;
    return meet(m->at);
}

/* ---- a rank's process: what it did, and what it saw */
enum way { DIES, FORKS, ABORTS, LEAVES, FREES, TWO, STRANGERS, SUSPENDED, FEW_FILES,
           REFUSES, NO_KEY, CLOSED, NONSENSE, WAYS };
static const char *const way_names[] = { "is killed", "is killed, its child is left",
    "its owner aborts", "leaves", "frees", "two at once",
    "strangers call first", "suspended", "no descriptors",
    "KCP_WATCH=0", "another key", "closed ports", "shows nonsense" };
struct seen {
    atomic_int has;
    int status, lost, files[2], done;
    double seconds, opened;
    char why[200], said[200];
};
struct trial { struct shared gather[2]; struct seen seen[R]; };

static void other_key(unsigned char *row, int of, int to, size_t bytes)
{
    if (bytes > 200 && of == 0 && to == 2)     /* magic, three numbers, then the key */
        row[8 + 24 + 5] ^= 1;
}

/* Whatever rank 0 and 1 say of ports, nobody listens at port 1. */
static void closed_ports(unsigned char *row, int of, int to, size_t bytes)
{
    for (size_t at = FIRST_SPOT; bytes > 200 && of != to && at + SPOT <= bytes;
         at += SPOT) {
        row[at + 2] = 1;
        row[at + 3] = 0;
    }
}

static void nonsense(unsigned char *row, int of, int to, size_t bytes)
{
    if (of == 2)
        memset(row, 0x5a, bytes);
}

/* Strangers who know where a rank listens call it before any rank does: some say
 * nothing, some what no rank says, and none hangs up. */
enum { STRANGERS_A_PORT = 12 };
static int stranger[R * 16 * STRANGERS_A_PORT], strangers;

static void call_as_strangers(unsigned char *row, int of, int to, size_t bytes)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    const size_t end = bytes > 200 && of != to ? bytes : 0;
    for (size_t i = FIRST_SPOT; i + SPOT <= end; i += SPOT) {
        uint16_t family, port;
        memcpy(&family, row + i, sizeof family);
        memcpy(&port, row + i + 2, sizeof port);
        if (family != AF_INET || row[i + 8] != 127)
            continue;
        at.sin_port = htons(port);
        memcpy(&at.sin_addr, row + i + 8, 4);
        for (int k = 0; k < STRANGERS_A_PORT; k++) {
            const int fd = socket(AF_INET, SOCK_STREAM, 0);
            char words[300];
            if (connect(fd, (struct sockaddr *)&at, sizeof at))
                _exit(1);
            memset(words, 'x', sizeof words);
            if (k % 2 && send(fd, words, sizeof words, MSG_NOSIGNAL) < 0)
                _exit(1);
            stranger[strangers++] = fd;
        }
    }
}

static void hang_up(void)
{
    while (strangers)
        close(stranger[--strangers]);
}

static void (*const forges[WAYS])(unsigned char *, int, int, size_t) = {
    [STRANGERS] = call_as_strangers, [NO_KEY] = other_key, [CLOSED] = closed_ports,
    [NONSENSE] = nonsense };

static struct kcp_comm *open_one(struct shared *s, int r, int way, struct seen *x)
{
    struct member m = { s, r, forges[way] };
    const struct watch_gather by = { R, r, fake_rows, &m };
    struct kcp_comm *watch = NULL;
    const double began = monotonic_seconds();
    x->status = watch_open(&watch, &by, x->why, sizeof x->why);
    x->opened = monotonic_seconds() - began;
    x->has = watch != NULL;
    return watch;
}

struct second { struct trial *t; int r; struct kcp_comm *watch; struct seen seen; };

static void *open_second(void *arg)
{
    struct second *x = arg;
    x->watch = open_one(&x->t->gather[1], x->r, TWO, &x->seen);
    return NULL;
}

/* The number of who is lost, looked for as long as that; -1: nobody. */
static int look(struct kcp_comm *watch, double seconds, char *said, size_t n)
{
    const double until = monotonic_seconds() + seconds;
    int lost = -1;
    while (!watch->lost(watch, &lost, said, n) && monotonic_seconds() < until)
        poll(NULL, 0, 5);
    return lost;
}

static double seconds_of(int way)
{
    if (way == SUSPENDED)                  /* 4 of them it stands still */
        return 6;
    return way == LEAVES || way == FREES || way == STRANGERS ? 1 : 10;
}

static void strike(struct kcp_comm *watch, int way)
{
    poll(NULL, 0, 100);
    if (way == FORKS && fork() == 0) {     /* a child holds what is open, and leaves */
        close(1);
        close(2);
        watch_leave(watch);
        watch->free(watch);
        sleep(8);
        _exit(0);
    }
    if (way == DIES || way == FORKS)
        raise(SIGKILL);
    if (way == ABORTS || way == TWO)
        watch->fail(watch, KCP_COMM, "its owner aborts it");
    if (way == LEAVES) {
        watch_leave(watch);
        _exit(0);
    }
    watch->free(watch);
}

static void rank(struct trial *t, int r, int way)
{
    struct seen *x = &t->seen[r];
    struct second second = { t, r, NULL, { 0 } };
    pthread_t thread;
    const int strikes = way <= FREES || way == TWO;
    const int is_short = way == NO_KEY || way == CLOSED || way == SUSPENDED;
    setenv("KCP_TIMEOUT_S", is_short ? "3" : "20", 1);
    unsetenv("KCP_WATCH");
    if (way == REFUSES && r == LOST)
        setenv("KCP_WATCH", "0", 1);
    x->lost = -1;
    x->files[0] = entries("/proc/self/fd");
    if (way == FEW_FILES && r == 2) {
        const struct rlimit few = { 3, 3 };
        setrlimit(RLIMIT_NOFILE, &few);
    }
    if (way == TWO && pthread_create(&thread, NULL, open_second, &second))
        _exit(1);
    struct kcp_comm *watch = open_one(&t->gather[0], r, way, x);
    if (way == TWO)
        pthread_join(thread, NULL);
    if (meet(&t->gather[0]) || (way == STRANGERS && strangers < 2 * STRANGERS_A_PORT))
        _exit(1);
    const double began = monotonic_seconds();
    if (watch && strikes && r == LOST) {
        strike(watch, way);
        watch = NULL;
    } else if (watch)
        x->lost = look(watch, seconds_of(way), x->said, sizeof x->said);
    x->seconds = monotonic_seconds() - began;
    if (way == TWO && second.watch && r != LOST &&
        look(second.watch, 0.3, second.seen.said, sizeof second.seen.said) >= 0)
        x->lost = 100;                     /* the other one is nobody's loss */
    if (watch)
        watch->free(watch);
    if (second.watch)
        second.watch->free(second.watch);
    else if (way == TWO)
        x->has = 0;
    hang_up();
    if (way != FEW_FILES || r != 2)
        x->files[1] = entries("/proc/self/fd");
    else
        x->files[1] = x->files[0];
    x->done = 1;
    _exit(0);
}

/* All of them stand still for longer than the timeout, as a suspended job. */
static void suspend(const struct trial *t, const pid_t *child)
{
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 1000 && !t->seen[r].has; i++)
            poll(NULL, 0, 10);
    poll(NULL, 0, 100);
    for (int r = 0; r < R; r++)
        kill(child[r], SIGSTOP);
    poll(NULL, 0, 4000);
    for (int r = 0; r < R; r++)
        kill(child[r], SIGCONT);
}

static void watch_run(struct kcp_report *rep, struct trial *t, int way)
{
    pid_t child[R];
    memset(t, 0, sizeof *t);
    fflush(stdout);
    for (int r = 0; r < R; r++)
        if (!(child[r] = fork()))
            rank(t, r, way);
    if (way == SUSPENDED)
        suspend(t, child);
    for (int r = 0; r < R; r++)
        waitpid(child[r], NULL, 0);
    const int named = way == DIES || way == FORKS || way == ABORTS || way == TWO;
    const int watched = way <= SUSPENDED;
    for (int r = 0; r < R; r++) {
        const struct seen *x = &t->seen[r];
        if (r == LOST && (way == DIES || way == FORKS || way == LEAVES))
            continue;
        EXPECT(rep, x->done && !x->status && x->has == watched, "%s: rank %d: done %d, "
               "status %d, watch %d: %s", way_names[way], r, x->done, x->status, x->has,
               x->why);
        EXPECT(rep, !x->done || x->files[0] == x->files[1], "%s: rank %d had %d files "
               "open, has %d", way_names[way], r, x->files[0], x->files[1]);
        EXPECT(rep, watched || !strncmp(x->why, "no watch: ", 10), "%s: rank %d: '%s'",
               way_names[way], r, x->why);
        EXPECT(rep, x->opened < 5, "%s: rank %d took %.1f s", way_names[way], r,
               x->opened);
        if (r == LOST)
            continue;
        EXPECT(rep, x->lost == (named ? LOST : -1), "%s: rank %d: lost %d: %s",
               way_names[way], r, x->lost, x->said);
        EXPECT(rep, !named || x->seconds < 5, "%s: rank %d knew it after %.1f s",
               way_names[way], r, x->seconds);
        EXPECT(rep, way != ABORTS || strstr(x->said, "its owner aborts it"), "rank %d "
               "heard '%s'", r, x->said);
    }
    EXPECT(rep, !t->gather[0].wild, "%s: it listens at any address", way_names[way]);
    EXPECT(rep, t->gather[0].gathers <= 2, "%s: %d gathers", way_names[way],
           t->gather[0].gathers);
}

/* The reason is that of the rank that has it, on all. */
static void reason(struct kcp_report *rep, const struct trial *t, int way,
                   const char *words)
{
    for (int r = 0; r < R; r++)
        EXPECT(rep, strstr(t->seen[r].why, words), "%s: rank %d says '%s', expected %s",
               way_names[way], r, t->seen[r].why, words);
}

static int watch(struct kcp_report *rep)
{
    struct trial *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED)
        return KCP_NO_MEMORY;
    if (!job_key_can_prove()) {            /* looked for once, before files are few */
        printf("  (no libcrypto here: no rank can prove who it is)\n");
        return KCP_NA;
    }
    for (int way = 0; way < WAYS; way++) {
        watch_run(rep, t, way);
        if (way == FEW_FILES) reason(rep, t, way, "rank 2: it can listen nowhere");
        if (way == REFUSES) reason(rep, t, way, "rank 1: KCP_WATCH=0");
        if (way == NO_KEY) reason(rep, t, way, "did not come in time");
        if (way == CLOSED) reason(rep, t, way, "did not come in time");
        if (way == NONSENSE) reason(rep, t, way, "rank 2 shows something else");
    }
    munmap(t, sizeof *t);
    return KCP_OK;
}
KCP_CHECK(check_20_watch) = { "20_clusters", "watch",
    "a lent communicator's ranks: killed, aborted, gone in order; no watch, in words",
    watch };
