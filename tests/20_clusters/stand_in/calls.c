/* calls.c -- every call of a rank over the NCCL backend, on four kinds of
 * communicators: of threads, split, by a file, and the caller's.
 *
 * Book: chapter 20.  Checked by: ranks.c.  Next: lose.c. */
#include "stand_in.h"

#include <poll.h>
#include <unistd.h>

#define EXPECT(yes, ...)                                                              \
    do {                                                                              \
        if (!(yes)) { wrong++; printf("  FAIL  " __VA_ARGS__); printf("\n"); }         \
    } while (0)

static int pass(int *got, struct kcp_comm *c, int from, int to, cudaStream_t s)
{
    const int mine = 100 + c->r;
    const int status = to < 0 ? KCP_OK : c->send(c, &mine, sizeof mine, to, s);
    if (status || from < 0)
        return status ? status : c->barrier(c, s);
    const int received = c->recv(c, got, sizeof *got, from, s);
    return received ? received : c->barrier(c, s);
}

/* A ring in one group; from even ranks to odd ones without a group. */
static int every_call(struct kcp_comm *c, void *arg)
{
    const int R = c->R, r = c->r, next = (r + 1) % R, last = (r + R - 1) % R;
    const int mine = 100 + r, is_odd = r % 2;
    int all[MOST], shown[MOST], ring = 0, pair = 0;
    cudaStream_t s;
    if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking))
        return KCP_CUDA;
    int status = c->all_gather(c, &mine, all, sizeof mine, s);
    if (!status)
        status = c->show(c, &mine, shown, sizeof mine, s);
    if (!status)
        status = c->group(c, 1);
    if (!status)
        status = c->send(c, &mine, sizeof mine, next, s);
    if (!status)
        status = c->recv(c, &ring, sizeof ring, last, s);
    if (!status)
        status = c->group(c, 0);
    if (!status)
        status = c->barrier(c, s);
    if (!status)
        status = pass(&pair, c, is_odd ? last : -1, is_odd || next == 0 ? -1 : next, s);
    for (int i = 0; i < R && !status; i++)
        if (all[i] != 100 + i || shown[i] != 100 + i)
            status = KCP_MISMATCH;
    if (!status && (ring != 100 + last || pair != (is_odd ? 100 + last : 0)))
        status = KCP_MISMATCH;
    if (!status && (c->send(c, &mine, sizeof mine, R, s) != KCP_BAD ||
                    c->recv(c, &ring, sizeof ring, r, s) != KCP_BAD))
        status = KCP_MISMATCH;
    return status;
}

/* ---- the caller's own communicator */
int lent_rank(struct kcp_comm *host, void *arg)
{
    struct loan *l = arg;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t result = ncclInProgress;
    ncclComm_t *at = &l->lent[host->r];
    struct kcp_comm *comm;
    char why[120];
    const struct nccl *nccl = nccl_open(why, sizeof why);
    config.blocking = 0;
    cudaSetDevice(host->r);
    if (host->r == 0)
        l->has_id = !nccl->ncclGetUniqueId(&l->id);
    while (!l->has_id)
        poll(NULL, 0, 1);
    nccl->ncclCommInitRankConfig(at, host->R, l->id, host->r, &config);
    while (result == ncclInProgress) {
        poll(NULL, 0, 1);
        nccl->ncclCommGetAsyncError(*at, &result);
    }
    if (kcp_nccl_from(&comm, *at))
        return KCP_CUDA;
    const int status = l->body(comm, l->arg);
    comm->free(comm);
    if (*at)
        nccl->ncclCommDestroy(*at);
    return status;
}

/* ---- halves, turned round by their keys. Then rank 3 fails on its half, and the
 * others name it by its number among all. */
static int split_rank(struct kcp_comm *world, void *arg)
{
    atomic_int *named = arg;
    struct kcp_comm *half = NULL;
    int lost = -1, status = kcp_nccl_split(world, world->r / 2, -world->r, &half);
    if (!status && (half->R != 2 || half->r != 1 - world->r % 2))
        status = KCP_MISMATCH;
    if (!status)
        status = every_call(half, NULL);
    if (!status)
        status = world->barrier(world, NULL);
    if (!status && world->r == 3)
        half->fail(half, KCP_CUDA, "its device is on fire");
    for (int i = 0; i < 500 && half && !half->lost(half, &lost, NULL, 0); i++)
        poll(NULL, 0, 10);
    *named += lost == 3;
    if (half)
        half->free(half);
    return status;
}

/* ---- by a file: R ranks that have nothing but a path */
static int file_rank(struct kcp_comm *host, void *arg)
{
    struct kcp_comm *comm;
    char why[200] = "";
    cudaSetDevice(host->r);
    int status = kcp_nccl_by_file(&comm, arg, host->R, host->r, why, sizeof why);
    if (status)
        return status;
    status = every_call(comm, NULL);
    comm->free(comm);
    return status;
}

static int by_file(void)
{
    char path[80] = "/tmp/kcp-stand-in.XXXXXX", why[200] = "";
    struct kcp_comm *comm;
    int wrong = 0;
    if (!mkdtemp(path))
        return 1;
    strcat(path, "/id");
    int status = kcp_threads_run(3, file_rank, path, why, sizeof why);
    EXPECT(!status, "by a file: status %d: %s", status, why);
    status = kcp_nccl_by_file(&comm, path, 2, 0, why, sizeof why);
    EXPECT(status == KCP_BAD && strstr(why, "where no file is"),
           "a file that is there: status %d: %s", status, why);
    unlink(path);
    setenv("KCP_TIMEOUT_S", "1", 1);
    status = kcp_nccl_by_file(&comm, path, 2, 1, why, sizeof why);
    EXPECT(status == KCP_COMM && strstr(why, "no id from rank 0 after 1 s"),
           "without rank 0: status %d: %s", status, why);
    unsetenv("KCP_TIMEOUT_S");
    *strrchr(path, '/') = 0;
    rmdir(path);
    return wrong;
}

int calls(void)
{
    ncclComm_t lent[MOST] = { NULL };
    struct loan loan = { .lent = lent, .body = every_call };
    atomic_int named = 0;
    char why[200] = "";
    int wrong = by_file();
    for (int R = 2; R <= MOST; R++) {
        const int status = kcp_nccl_threads_run(R, every_call, NULL, why, sizeof why);
        EXPECT(!status, "calls on %d ranks: status %d: %s", R, status, why);
    }
    int status = kcp_threads_run(3, lent_rank, &loan, why, sizeof why);
    EXPECT(!status, "calls on a lent communicator: status %d: %s", status, why);
    status = kcp_nccl_threads_run(MOST, split_rank, &named, why, sizeof why);
    EXPECT(status == KCP_CUDA && named == MOST, "halves: %d of %d name rank 3, status "
           "%d: %s", named, MOST, status, why);
    return wrong;
}
