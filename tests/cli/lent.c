/* lent.c -- a communicator that a caller lends, over NCCL's code without a GPU.
 *
 * Book: chapter 20.  Checked by: tests/cli/lent.sh.  Next: fake_gpu.c, its NCCL.
 *
 * Rank 1 of three is killed, stopped, aborted by its owner, or ends in order; the
 * others must say so by their communicator alone, or say that they keep no watch. */
#define _DEFAULT_SOURCE
#include "kcp.h"

#include <stdio.h>
#include <string.h>

#ifdef KCP_WITH_NCCL
#include "comm/backend/nccl.h"
#include "fake_gpu.h"
#include "tests/entries.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { R = 3, LOST = 1 };
enum way { KILLED, STOPPED, ABORTED, FREED, LEFT, UNWATCHED, CAPTURED, PAIR, TWO,
           WAYS };
static const char *const way_names[] = { "killed", "stopped", "aborted", "freed",
    "left in order", "KCP_WATCH=0", "captured first", "a pair first", "two at once" };
struct seen {
    int done, status, lost, files[2], gathers[3], other;
    double seconds;
    char why[320];
};
struct trial { struct fake_world world; struct seen seen[R]; };

static ncclComm_t lend(int which, int r)
{
    ncclUniqueId id = { { (char)which } };
    ncclComm_t at = NULL;
    return nccl_open((char[80]){ 0 }, 80)->ncclCommInitRankConfig(&at, R, id, r, NULL)
         ? NULL : at;
}

static int agree(struct kcp_comm *c)
{
    const int64_t mine = 100 + c->r;
    int64_t all[R] = { 0 };
    int status = c->show(c, &mine, all, sizeof mine, NULL);
    for (int r = 0; r < R && !status; r++)
        status = all[r] == 100 + r ? KCP_OK : KCP_MISMATCH;
    return status;
}

/* What a rank does that is to be lost. */
static void strike(struct kcp_comm *c, int way)
{
    if (way == KILLED || way == UNWATCHED)
        raise(SIGKILL);
    if (way == STOPPED)
        raise(SIGSTOP);
    if (way == LEFT) {
        kcp_nccl_leave(c);
        _exit(0);
    }
    if (way == FREED)
        return;
    c->fail(c, KCP_COMM, "its owner aborts it");
}

/* Calls that no graph, and not all ranks, make: nothing is asked of the others. */
static void before_all(struct kcp_comm *c, const struct fake_comm *at, int way,
                       struct seen *x)
{
    int64_t one = 1;
    if (way == CAPTURED) {
        fake_gpu_capture(1);
        x->other = agree(c) != KCP_NA;
        fake_gpu_capture(0);
    }
    if (way == PAIR && c->r < 2)
        x->other = c->r ? c->recv(c, &one, sizeof one, 0, NULL)
                        : c->send(c, &one, sizeof one, 1, NULL);
    x->gathers[0] = at->gathers;
}

static void rank(struct trial *t, int r, int way)
{
    struct seen *x = &t->seen[r];
    struct kcp_comm *c = NULL, *second = NULL;
    setenv("KCP_TIMEOUT_S", way == UNWATCHED || way == STOPPED ? "3" : "60", 1);
    if (way == UNWATCHED && r == 2)
        setenv("KCP_WATCH", "0", 1);
    fake_gpu_world(&t->world);
    x->lost = -1;
    const ncclComm_t at = lend(0, r);
    x->status = kcp_nccl_from(&c, at);
    if (!x->status && way == TWO)
        x->status = kcp_nccl_from(&second, lend(1, r));
    if (x->status)
        _exit(1);
    x->files[0] = entries("/proc/self/fd");
    before_all(c, &t->world.comm[0], way, x);
    for (int i = 0; i < 2 && !x->status; i++) {        /* opened once, then used */
        x->status = agree(c);
        x->gathers[1 + i] = t->world.comm[0].gathers;
    }
    if (!x->status)
        x->status = c->barrier(c, NULL);
    if (!x->status && second)
        x->status = agree(second);
    if (!x->status && r == LOST) {
        poll(NULL, 0, 100);
        strike(c, way);
    }
    const double began = monotonic_seconds();
    while (!x->status && way != FREED && way != LEFT)
        x->status = c->barrier(c, NULL);
    if (way == LEFT)
        poll(NULL, 0, 500);
    x->seconds = monotonic_seconds() - began;
    c->lost(c, &x->lost, x->why, sizeof x->why);
    if (second) {                                      /* nobody's loss */
        nccl_open(x->why, sizeof x->why)->ncclCommAbort(at);
        x->other = agree(second);
    }
    c->free(c);
    if (second)
        second->free(second);
    x->files[1] = entries("/proc/self/fd");
    x->done = 1;
    _exit(0);
}

static int wrong;
#define EXPECT(yes, ...)                                                              \
    if (!(yes)) { wrong++; printf("lent: " __VA_ARGS__); printf("\n"); }

static void judge(const struct trial *t, int way)
{
    const int named = way < FREED || way >= CAPTURED, ended = named || way == UNWATCHED;
    const char *name = way_names[way];
    for (int r = 0; r < R; r++) {
        const struct seen *x = &t->seen[r];
        if (r == LOST && way != ABORTED && way != FREED)
            continue;
        EXPECT(x->done && x->status == (ended ? KCP_COMM : KCP_OK), "%s: rank %d: done "
               "%d, status %d: %s", name, r, x->done, x->status, x->why)
        EXPECT(way == UNWATCHED || x->lost == (named ? LOST : -1), "%s: rank %d: lost "
               "%d: %s", name, r, x->lost, x->why)
        EXPECT(!named || x->seconds < (way == STOPPED ? 10 : 3), "%s: rank %d knew it "
               "after %.1f s", name, r, x->seconds)
        EXPECT(way != UNWATCHED || strstr(x->why, "; no watch: rank 2: KCP_WATCH=0"),
               "%s: rank %d says '%s'", name, r, x->why)
        EXPECT(x->files[0] == x->files[1], "%s: rank %d had %d files open, has %d",
               name, r, x->files[0], x->files[1])
        EXPECT(!x->other, "%s: rank %d: other calls fail", name, r)
        if (r) continue;
        const int opening = way == UNWATCHED ? 1 : 2;
        EXPECT(x->gathers[0] == 0 && x->gathers[1] == opening + 1 &&
               x->gathers[2] == opening + 2, "%s: %d, %d, %d gathers", name,
               x->gathers[0], x->gathers[1], x->gathers[2])
    }
}

static int all_ways(void)
{
    char why[80];
    struct trial *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED || !nccl_open(why, sizeof why))
        return 2;
    for (int way = 0; way < WAYS; way++) {
        pid_t child[R];
        memset(t, 0, sizeof *t);
        fflush(stdout);
        for (int r = 0; r < R; r++)
            if (!(child[r] = fork()))
                rank(t, r, way);
        waitpid(child[0], NULL, 0);
        waitpid(child[2], NULL, 0);
        if (way == STOPPED)
            kill(child[LOST], SIGKILL);
        waitpid(child[LOST], NULL, 0);
        judge(t, way);
    }
    if (!wrong)
        printf("lent: %d ways to go, each known by the communicator alone\n", WAYS);
    return wrong ? 1 : 0;
}
#else
static int all_ways(void)
{
    printf("lent: built without NCCL\n");
    return 0;
}
#endif

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-lent %s\n", kcp_version());
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "kcp-lent: found '%s', expected nothing, or --version\n",
                argv[1]);
        return 2;
    }
    return all_ways();
}
