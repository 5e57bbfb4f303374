/* nccl.c -- checks a caller's NCCL communicator and split communicators, on GPUs.
 * Book: chapter 20.
 *
 * Ranks are threads with a GPU each, or the processes of a launcher. The test checks
 * each communicator's rank and size, a gather, a ring, and every exchange algorithm
 * (bit for bit). Afterwards the parent communicator must still work. */
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

#ifdef KCP_WITH_NCCL
#include "comm/backend/nccl.h"

enum { MOST = 4 };
struct job {
    const struct nccl *nccl;
    int blocking, bad[MOST], made[MOST];   /* bad: wrong results per rank */
    long long wrong[MOST];                 /* wrong numbers in exchanges */
};

/* Gathers one number per rank, then sends one to the next rank. Adds the count of wrong
 * numbers to *bad. */
static int talk(struct kcp_comm *c, int *bad)
{
    const struct memory *m = device_memory();
    int64_t *x = m->alloc(sizeof *x * (size_t)(c->R + 2));
    int64_t mine = 100 + c->r, all[MOST + 2];
    const int next = (c->r + 1) % c->R, last = (c->r + c->R - 1) % c->R;
    int err = x ? m->copy(x, &mine, sizeof mine) : KCP_NO_MEMORY;
    if (!err) err = c->all_gather(c, x, x + 2, sizeof mine, NULL);
    if (!err) err = c->group(c, 1);
    if (!err && c->R > 1) err = c->send(c, x, sizeof mine, next, NULL);
    if (!err && c->R > 1) err = c->recv(c, x + 1, sizeof mine, last, NULL);
    const int closed = c->group(c, 0);
    if (!err) err = closed ? closed : c->barrier(c, NULL);
    if (!err) err = m->copy(all, x, sizeof mine * (size_t)(c->R + 2));
    for (int r = 0; r < c->R && !err; r++) *bad += all[2 + r] != 100 + r;
    *bad += !err && c->R > 1 && all[1] != 100 + last;
    *bad += c->send(c, x, sizeof mine, c->R, NULL) != KCP_BAD;
    *bad += c->recv(c, x, sizeof mine, c->r, NULL) != KCP_BAD;
    if (x) m->free(x);
    return err;
}

static int settle(const struct nccl *n, ncclComm_t at, ncclResult_t result)
{
    while (result == ncclInProgress)
        if (n->ncclCommGetAsyncError(at, &result)) return KCP_COMM;
    return result == ncclSuccess ? KCP_OK : KCP_COMM;
}

/* Creates an NCCL communicator without KCP, as a caller does. */
static int callers(struct kcp_comm *host, const struct job *j, ncclComm_t *at)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    int err = host->r == 0 && j->nccl->ncclGetUniqueId(&id) ? KCP_COMM : KCP_OK;
    for (int r = 1; r < host->R && !err; r++)
        if (host->r == 0) err = host->send(host, &id, sizeof id, r, NULL);
        else if (host->r == r) err = host->recv(host, &id, sizeof id, 0, NULL);
    config.blocking = j->blocking;
    return err ? err : settle(j->nccl, *at, j->nccl->ncclCommInitRankConfig(
        at, host->R, id, host->r, &config));
}

/* Checks that the caller's communicator still works, then destroys it. */
static int still(const struct job *j, ncclComm_t at, int R, int *bad)
{
    const struct memory *m = device_memory();
    int one = 1, *x = m->alloc(sizeof *x);
    int err = x ? m->copy(x, &one, sizeof one) : KCP_NO_MEMORY;
    if (!err) err = settle(j->nccl, at, j->nccl->ncclAllReduce(x, x, 1, ncclInt,
                                                               ncclSum, at, NULL));
    if (!err) err = m->sync();
    if (!err) err = m->copy(&one, x, sizeof one);
    *bad += !err && one != R;
    if (x) m->free(x);
    if (!err) err = settle(j->nccl, at, j->nccl->ncclCommFinalize(at));
    return err ? err : settle(j->nccl, NULL, j->nccl->ncclCommDestroy(at));
}

static int from(struct kcp_comm *host, void *arg)
{
    struct job *j = arg;
    struct kcp_comm *comm = NULL;
    ncclComm_t at = NULL;
    int *bad = &j->bad[host->r];
    int err = ranks_started() ? KCP_OK : device_memory()->gpu(host->r);
    if (!err) err = callers(host, j, &at);
    if (!err) err = kcp_nccl_from(&comm, at);
    if (err) return err;
    *bad += comm->R != host->R || comm->r != host->r;
    err = talk(comm, bad);
    if (!err) err = exchange_on(comm, device_memory(), 3, &j->wrong[host->r]);
    comm->free(comm);
    return err ? err : still(j, at, host->R, bad);
}

/* Splits the ranks into halves in reversed order, then splits off the last rank.
 * Freeing a communicator frees host memory, and this waits for all GPUs. So
 * communicators are freed only when no GPU has work left. */
static int split(struct kcp_comm *world, void *arg)
{
    struct job *j = arg;
    const int R = world->R, r = world->r, half = R > 1 ? R / 2 : 1;
    struct kcp_comm *made[2] = { NULL, NULL };
    int *bad = &j->bad[r], err = KCP_OK;
    for (int how = 0; how < 2 && !err; how++) {
        const int all_but_one = R > 1 ? R - 1 : 1, out = r >= all_but_one;
        const int color = how ? 7 - 8 * out : r / half;
        const int size = how ? all_but_one : half;
        const int is = how ? r : half - 1 - r % half;
        err = kcp_nccl_split(world, color, how ? 0 : R - r, &made[how]);
        struct kcp_comm *comm = made[how];
        *bad += !err && !comm != (color < 0);
        if (err || !comm) continue;
        j->made[r]++;
        *bad += comm->R != size || comm->r != is;
        err = talk(comm, bad);
        if (!err) err = exchange_on(comm, device_memory(), 5, &j->wrong[r]);
    }
    if (!err) err = talk(world, bad);
    if (made[0]) made[0]->free(made[0]);
    if (made[1]) made[1]->free(made[1]);
    return err;
}

static void one(struct kcp_report *rep, int R, const struct nccl *nccl,
                int (*body)(struct kcp_comm *, void *), int over_nccl, int blocking)
{
    struct job j = { .nccl = nccl, .blocking = blocking };
    const int mine = ranks_started() ? ranks_mine() : 0;
    char why[200] = "";
    const int err = over_nccl ? ranks_over_nccl(R, body, &j, why, sizeof why)
                              : ranks_run(&host_memory, R, body, &j, why, sizeof why);
    EXPECT(rep, !err, "%d ranks: status %d, %s", R, err, why);
    for (int r = 0; r < R; r++)
        EXPECT(rep, !j.bad[r] && !j.wrong[r], "rank %d of %d: %d wrong results, "
               "%lld wrong numbers in exchanges", r, R, j.bad[r], j.wrong[r]);
    EXPECT(rep, !over_nccl || j.made[mine] == 1 + (mine < (R > 1 ? R - 1 : 1)),
           "%d ranks: %d made", R, j.made[mine]);
}

/* Runs `body` on 1, 2 and 4 ranks if there are as many GPUs, or on the launcher's
 * ranks. */
static int every(struct kcp_report *rep, int (*body)(struct kcp_comm *, void *),
                 int over_nccl, int blocking)
{
    const struct memory *m = device_memory();
    char why[200] = "there is no GPU here";
    const struct nccl *nccl = m ? nccl_open(why, sizeof why) : NULL;
    if (!nccl) {
        printf("  (%s)\n", why);
        return KCP_NA;
    }
    if (ranks_started()) {
        const int R = ranks_started();
        if (R <= MOST) one(rep, R, nccl, body, over_nccl, blocking);
        return R <= MOST ? KCP_OK : KCP_NA;
    }
    for (int R = 1; R <= MOST; R *= 2) {
        if (m->gpu(R - 1)) break;
        m->gpu(0);
        one(rep, R, nccl, body, over_nccl, blocking);
    }
    m->gpu(0);
    return KCP_OK;
}

static int check_from(struct kcp_report *rep)
{
    const int status = every(rep, from, 0, 1);
    return status ? status : every(rep, from, 0, 0);
}

static int check_split(struct kcp_report *rep) { return every(rep, split, 1, 0); }
#else
static int none(void)
{
    printf("  (built without NCCL)\n");
    return KCP_NA;
}
static int check_from(struct kcp_report *rep) { return none(); }
static int check_split(struct kcp_report *rep) { return none(); }
#endif

KCP_CHECK(check_19_from) = { "20_clusters", "gpu_from",
    "kcp_nccl_from accepts blocking and non-blocking communicators, on up to 4 "
    "GPUs", check_from };
KCP_CHECK(check_19_split) = { "20_clusters", "gpu_split",
    "kcp_nccl_split makes two halves with ranks in reverse order, and a group "
    "without the last rank, on up to 4 GPUs", check_split };
