/* calls.c -- every call of a rank over the NCCL backend, on four kinds of
 * communicators: of threads, split, by a file, and the caller's.
 *
 * Book: chapter 20.  Checked by: ranks.c.  Next: lose.c. */
#include "stand_in.h"

#include <poll.h>
#include <unistd.h>

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
    status = status ? status : c->show(c, &mine, shown, sizeof mine, s);
    status = status ? status : c->group(c, 1);
    status = status ? status : c->send(c, &mine, sizeof mine, next, s);
    status = status ? status : c->recv(c, &ring, sizeof ring, last, s);
    status = status ? status : c->group(c, 0);
    status = status ? status : c->barrier(c, s);
    if (!status && is_odd)
        status = c->recv(c, &pair, sizeof pair, last, s);
    else if (!status && next)
        status = c->send(c, &mine, sizeof mine, next, s);
    status = status ? status : c->barrier(c, s);
    if (status)
        return status;
    int good = ring == 100 + last && pair == (is_odd ? 100 + last : 0);
    for (int i = 0; i < R; i++)
        good &= all[i] == 100 + i && shown[i] == 100 + i;
    good &= c->send(c, &mine, sizeof mine, R, s) == KCP_BAD;
    good &= c->recv(c, &ring, sizeof ring, r, s) == KCP_BAD;
    return good ? KCP_OK : KCP_MISMATCH;
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

/* ---- halves, turned round by their keys */
static int split_rank(struct kcp_comm *world, void *arg)
{
    struct kcp_comm *half;
    int status = kcp_nccl_split(world, world->r / 2, -world->r, &half);
    if (status)
        return status;
    status = half->R == 2 && half->r == 1 - world->r % 2 ? every_call(half, NULL)
                                                         : KCP_MISMATCH;
    half->free(half);
    return status;
}

/* ---- by a file: ranks that have nothing but a path, where no other file may be */
static int file_rank(struct kcp_comm *host, void *path)
{
    struct kcp_comm *comm, *second;
    char why[200] = "";
    cudaSetDevice(host->r);
    int status = kcp_nccl_by_file(&comm, path, host->R, host->r, why, sizeof why);
    if (status)
        return status;
    status = every_call(comm, NULL);
    comm->free(comm);
    if (!status && host->r == 0 &&
        (kcp_nccl_by_file(&second, path, 2, 0, why, sizeof why) != KCP_BAD ||
         !strstr(why, "where no file is")))
        status = KCP_MISMATCH;
    return status;
}

static int is_wrong(const char *what, int status, const char *why)
{
    if (status)
        printf("  FAIL  calls %s: status %d: %s\n", what, status, why);
    return status != KCP_OK;
}

int calls(void)
{
    ncclComm_t lent[MOST] = { NULL };
    struct loan loan = { .lent = lent, .body = every_call };
    char why[200] = "", folder[80] = "/tmp/kcp-stand-in.XXXXXX", path[90];
    int wrong = 0, status;
    for (int R = 2; R <= MOST; R++) {
        status = kcp_nccl_threads_run(R, every_call, NULL, why, sizeof why);
        wrong += is_wrong("of threads", status, why);
    }
    status = kcp_threads_run(3, lent_rank, &loan, why, sizeof why);
    wrong += is_wrong("on a lent communicator", status, why);
    status = kcp_nccl_threads_run(MOST, split_rank, NULL, why, sizeof why);
    wrong += is_wrong("on halves", status, why);
    if (!mkdtemp(folder))
        return wrong + 1;
    snprintf(path, sizeof path, "%s/id", folder);
    status = kcp_threads_run(3, file_rank, path, why, sizeof why);
    unlink(path);
    rmdir(folder);
    return wrong + is_wrong("by a file", status, why);
}
