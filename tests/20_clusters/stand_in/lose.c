/* lose.c -- loses rank 1 before one of its calls and checks the other ranks.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: itself.  Next: late.c.
 *
 * Rank 1 fails, hangs, or has an asynchronous NCCL error. Every other rank must get an
 * error and one line within the timeout, and its stream must be released; otherwise the
 * exchange hangs. */
#include "stand_in.h"

#include <poll.h>

enum { R = 3, LOST = 1, MOST_SECONDS = 15 };
enum way { NONE, FAILS, ERROR, HANGS, LENT_HANGS };
static const char *const way_names[] = { "takes part", "fails",
    "has an asynchronous error", "hangs", "hangs, lent" };

struct result { int status, lost, groups; double seconds; char why[320]; };
struct loss {
    enum way way;
    int at, calls;                         /* of rank 1 */
    atomic_int ended;                      /* survivors that have returned */
    _Atomic double began;                  /* written by rank 1, read by others */
    ncclUniqueId id;                       /* of the caller's communicator */
    atomic_int has_id;
    struct result result[R];
};

/* ---- counts rank 1's calls; rank 1 is lost before call number `at` */
static struct kcp_comm own;
static struct loss *loss;

static void count(struct kcp_comm *c)
{
    if (++loss->calls != loss->at)
        return;
    loss->began = monotonic_seconds();
    if (loss->way == FAILS)
        c->fail(c, KCP_CUDA, "its device is on fire");
    if (loss->way == ERROR)
        stand_in_error(((struct nccl_rank *)c)->at);
    for (int i = 0; i < 1000 && loss->way == ERROR && !c->lost(c, NULL, NULL, 0); i++)
        poll(NULL, 0, 10);
    for (int i = 0; i < 1000 && loss->way >= HANGS && loss->ended < R - 1; i++)
        poll(NULL, 0, 10);
}

static int all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    count(c);
    return own.all_gather(c, mine, all, bytes, stream);
}

static int send_to(struct kcp_comm *c, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    count(c);
    return own.send(c, data, bytes, to, stream);
}

static int recv_from(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    count(c);
    return own.recv(c, data, bytes, from, stream);
}

/* ---- a rank's program: exchanges until one fails */
static _Thread_local struct kcp_comm *here;
static _Thread_local ncclComm_t *lent;     /* of this rank; NULL: not lent */

/* After a failure the caller aborts its communicator, as the owner. */
static int abort_and_sync(void)
{
    char why[80];
    if (lent && *lent && here->lost(here, NULL, NULL, 0)) {
        nccl_open(why, sizeof why)->ncclCommAbort(*lent);
        *lent = NULL;
    }
    return device_memory()->sync();
}

static int lose_rank(struct kcp_comm *comm, void *arg)
{
    struct loss *l = arg;
    struct result *x = &l->result[comm->r];
    struct memory mem = *device_memory();
    long long wrong = 0;
    here = comm;
    mem.sync = abort_and_sync;
    x->status = comm->barrier(comm, NULL);       /* every rank has begun */
    if (comm->r == LOST) {
        own = *comm;
        comm->all_gather = all_gather;
        comm->send = send_to;
        comm->recv = recv_from;
    }
    if (!x->status)
        x->status = exchange_on(comm, &mem, 2, &wrong);
    x->seconds = monotonic_seconds() - l->began;
    x->groups = stand_in_groups();
    x->lost = -1;
    comm->lost(comm, &x->lost, x->why, sizeof x->why);
    l->ended += comm->r != LOST;
    return wrong ? KCP_MISMATCH : KCP_OK;
}

/* Runs a rank on a communicator that the caller created. */
static int lent_rank(struct kcp_comm *host, void *arg)
{
    struct loss *l = arg;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t at = NULL;
    struct kcp_comm *comm;
    char why[120];
    const struct nccl *nccl = nccl_open(why, sizeof why);
    config.blocking = 1;
    cudaSetDevice(host->r);
    if (host->r == 0)
        l->has_id = !nccl->ncclGetUniqueId(&l->id);
    while (!l->has_id)
        poll(NULL, 0, 1);
    nccl->ncclCommInitRankConfig(&at, host->R, l->id, host->r, &config);
    if (kcp_nccl_from(&comm, at))
        return KCP_CUDA;
    lent = &at;
    const int status = lose_rank(comm, l);
    lent = NULL;
    comm->free(comm);
    if (at)
        nccl->ncclCommDestroy(at);
    return status;
}

/* Checks what a survivor reports. After a timeout a survivor cannot name the lost
 * rank. */
static int is_right(const struct loss *l, const struct result *x)
{
    const int by_name = l->way == FAILS || l->way == ERROR;
    const char *words = "made no progress for";
    if (l->way == NONE)
        return !x->status && x->lost == -1;
    if (l->way == FAILS)
        words = "its device is on fire";
    if (l->way == ERROR)
        words = "an error of NCCL's stand-in";
    return x->status == KCP_COMM && strstr(x->why, words) && !x->groups &&
           x->seconds < MOST_SECONDS && (!by_name || x->lost == LOST);
}

static int lose(struct loss *l, enum way way, int at)
{
    char why[200] = "";
    int wrong = 0;
    loss = l;
    l->way = way;
    l->at = at;
    l->calls = l->ended = l->has_id = 0;
    l->began = monotonic_seconds();
    memset(l->result, 0, sizeof l->result);
    if (way == LENT_HANGS)
        kcp_threads_run(R, lent_rank, l, why, sizeof why);
    else
        kcp_nccl_threads_run(R, lose_rank, l, why, sizeof why);
    for (int r = 0; r < R; r++) {
        const struct result *x = &l->result[r];
        const int is_late = r == LOST && way == LENT_HANGS && x->status;
        if (!stand_in_alive() && (is_right(l, x) || is_late))
            continue;
        wrong++;
        printf("  FAIL  rank 1 of 3 %s, call %d: rank %d: status %d, lost %d, %d "
               "groups and %d communicators left, %.1f s: %s\n", way_names[way], at, r,
               x->status, x->lost, x->groups, stand_in_alive(), x->seconds, x->why);
    }
    return wrong;
}

/* Loses rank 1 before each step-th call. Afterwards a new communicator must work. */
int lose_ranks(int step)
{
    static struct loss l;
    int wrong = lose(&l, NONE, 0);
    const int calls = l.calls;
    for (int at = 1; at <= calls; at += step) {
        wrong += lose(&l, FAILS, at) + lose(&l, ERROR, at);
        if (at % (8 * step) == 1)
            wrong += lose(&l, HANGS, at);
    }
    wrong += lose(&l, LENT_HANGS, 1);
    return wrong + lose(&l, NONE, 0);
}
