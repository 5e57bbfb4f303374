/* lost_gpu.c -- on GPUs, kills or stops one rank, or gives one rank an NCCL error.
 * Book: chapter 20.
 *
 * Ranks are processes with a GPU each; with one GPU, two ranks share the GPU, and
 * NCCL sends through sockets (tests/share_gpu.sh). Rank 1 is lost during random
 * exchanges. Every other rank must return KCP_COMM with a message within
 * KCP_TIMEOUT_S + 3 s, and the work on its stream must end. */
#define _DEFAULT_SOURCE                    /* MAP_ANONYMOUS */
#include "tests/judge/judge.h"

#ifdef KCP_WITH_NCCL
#include "comm/backend/nccl.h"
#include "base/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4, LOST = 1, TIMEOUT_S = 5, SLACK_S = 3, ROUNDS = 1000 };
enum way { KILLED, STOPPED, ERROR, WAYS };
static const char *const way_names[] = { "killed", "stopped", "an error of NCCL's" };

struct result { int done, status; double ended; char why[200]; };
static struct shared {
    _Atomic double lost_at;
    int share;                             /* all ranks share GPU 0 */
    struct result result[MOST];
} *shared;

static atomic_int has_error;
static __typeof__(ncclCommGetAsyncError) *real_error;

static ncclResult_t error_of(ncclComm_t at, ncclResult_t *result)
{
    const ncclResult_t status = real_error(at, result);
    if (has_error) *result = ncclRemoteError;
    return status;
}

static void lose_now(enum way way)
{
    shared->lost_at = seconds_now();
    if (way == KILLED) raise(SIGKILL);
    if (way == STOPPED) raise(SIGSTOP);
    has_error = 1;
}

/* Makes a communicator, for which error_of replaces ncclCommGetAsyncError. */
static int meet(struct kcp_comm **comm, const char *path, int R, int r, char *why,
                size_t n)
{
    struct nccl *calls = (struct nccl *)nccl_open(why, n);
    if (shared->share) {
        snprintf(why, n, "rank%d", r);
        setenv("NCCL_HOSTID", why, 1);
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
        why[0] = 0;
    }
    if (!calls || device_memory()->gpu(shared->share ? 0 : r)) return KCP_CUDA;
    real_error = calls->ncclCommGetAsyncError;
    calls->ncclCommGetAsyncError = error_of;
    return kcp_nccl_by_file(comm, path, R, r, why, n);
}

static void rank(const char *path, int R, int r, enum way way)
{
    struct result *x = &shared->result[r];
    struct kcp_comm *comm = NULL;
    long long wrong = 0;
    int lost = -1;
    x->status = meet(&comm, path, R, r, x->why, sizeof x->why);
    for (int i = 0; i < ROUNDS && !x->status; i++) {
        if (i == 3 && r == LOST) lose_now(way);
        x->status = exchange_on(comm, device_memory(), 100 + i, &wrong);
    }
    x->ended = seconds_now();
    if (comm) comm->lost(comm, &lost, x->why, sizeof x->why);
    if (comm) comm->free(comm);
    x->done = !device_memory()->sync() && !wrong;
    _exit(0);
}

/* Returns the number of GPUs, at most MOST. A child process counts the GPUs, because
 * CUDA must not be initialized before fork. */
static int count_gpus(void)
{
    int status = 0;
    const pid_t child = fork();
    if (!child) {
        int n = 0;
        while (device_memory() && n < MOST && !device_memory()->gpu(n)) n++;
        _exit(n);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status) : 0;
}

static int has_ended(pid_t *child, int R, enum way way)
{
    int left = 0;
    for (int r = 0; r < R; r++) {
        if (child[r] > 0 && waitpid(child[r], NULL, WNOHANG) == child[r]) child[r] = 0;
        left += child[r] > 0 && !(r == LOST && way == STOPPED);
    }
    return !left;
}

static void lose(struct kcp_report *rep, int R, int share, enum way way)
{
    char dir[] = "/tmp/kcp-lost.XXXXXX", path[64];
    pid_t child[MOST] = { 0 };
    if (!mkdtemp(dir)) return;
    snprintf(path, sizeof path, "%s/id", dir);
    memset(shared, 0, sizeof *shared);
    shared->share = share;
    for (int r = 0; r < R; r++) {
        child[r] = fork();
        if (!child[r]) rank(path, R, r, way);
    }
    for (int i = 0; i < 4000 && !has_ended(child, R, way); i++) poll(NULL, 0, 10);
    for (int r = 0; r < R; r++)
        if (child[r] > 0) {
            kill(child[r], SIGKILL);
            waitpid(child[r], NULL, 0);
        }
    unlink(path);
    rmdir(dir);
    for (int r = 0; r < R; r++) {
        const struct result *x = &shared->result[r];
        const double s = x->ended - shared->lost_at;
        if (r == LOST && way != ERROR) continue;
        printf("  %s: rank %d: %.1f s: %s\n", way_names[way], r, s, x->why);
        EXPECT(rep, x->done, "rank 1 (%s): rank %d did not end, or has errors: %s",
               way_names[way], r, x->why);
        EXPECT(rep, x->status == KCP_COMM && x->why[0], "%s: rank %d: status %d, '%s'",
               way_names[way], r, x->status, x->why);
        EXPECT(rep, s < TIMEOUT_S + SLACK_S, "%s: rank %d ended after %.1f s",
               way_names[way], r, s);
    }
}

static int lost_gpu(struct kcp_report *rep)
{
    const int gpus = ranks_started() ? 0 : count_gpus(), R = gpus < 2 ? 2 : gpus;
    if (!gpus) {
        printf("  (not run: found no GPU, or a launcher started the ranks)\n");
        return KCP_NA;
    }
    if (gpus < R) printf("  (%d ranks share a GPU, over sockets of this machine)\n", R);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return KCP_NO_MEMORY;
    setenv("KCP_TIMEOUT_S", "5", 1);
    for (int way = 0; way < WAYS; way++) lose(rep, R, gpus < R, (enum way)way);
    munmap(shared, sizeof *shared);
    return KCP_OK;
}
#else
static int lost_gpu(struct kcp_report *rep)
{
    (void)rep;
    printf("  (built without NCCL)\n");
    return KCP_NA;
}
#endif

KCP_CHECK(check_20_lost) = { "20_clusters", "gpu_lost",
    "if one rank is killed, is stopped or has an error, every other rank returns "
    "an error", lost_gpu };
