/* lose.c -- rank 1 is lost before one of its calls, and what the other ranks do then.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: itself.  Next: late.c.
 *
 * Rank 1 fails, stands still, or has an asynchronous error of NCCL's. Every other rank
 * gets an error and one line within the timeout, and its stream is released: else
 * exchange_rank hangs. */
#include "stand_in.h"

#include <poll.h>

enum { R = 3, LOST = 1, MOST_SECONDS = 15 };
enum way { NONE, FAILS, ERROR, STANDS, LENT_STANDS };
static const char *const way_names[] = { "takes part", "fails",
    "has an asynchronous error", "stands still", "stands still, lent" };

struct seen { int status, lost, groups; double seconds; char why[320]; };
struct loss {
    enum way way;
    int at, calls;                         /* of rank 1 */
    atomic_int ended;                      /* survivors that have returned */
    _Atomic double began;                  /* rank 1 writes it, the others read */
    struct exchange_job exchange;
    struct seen seen[R];
};

/* ---- rank 1's calls are counted, and one is its last */
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
    for (int i = 0; i < 1000 && loss->way >= STANDS && loss->ended < R - 1; i++)
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

static int lose_rank(struct kcp_comm *comm, void *arg)
{
    struct loss *l = arg;
    struct seen *x = &l->seen[comm->r];
    x->status = comm->barrier(comm, NULL);       /* every rank has begun */
    if (comm->r == LOST) {
        own = *comm;
        comm->all_gather = all_gather;
        comm->send = send_to;
        comm->recv = recv_from;
    }
    if (!x->status)
        x->status = exchange_rank(comm, &l->exchange);
    x->seconds = monotonic_seconds() - l->began;
    x->groups = stand_in_groups();
    x->lost = -1;
    comm->lost(comm, &x->lost, x->why, sizeof x->why);
    l->ended += comm->r != LOST;
    return KCP_OK;
}

/* The others name the lost rank, unless a timeout is all that they have. */
static int is_right(const struct loss *l, const struct seen *x)
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
    struct loan loan = { .lent = l->exchange.lent, .body = lose_rank, .arg = l };
    char why[200] = "";
    int wrong = 0;
    loss = l;
    l->way = way;
    l->at = at;
    l->calls = l->ended = 0;
    l->began = monotonic_seconds();
    memset(l->seen, 0, sizeof l->seen);
    if (way == LENT_STANDS)
        kcp_threads_run(R, lent_rank, &loan, why, sizeof why);
    else
        kcp_nccl_threads_run(R, lose_rank, l, why, sizeof why);
    for (int r = 0; r < R; r++) {
        const struct seen *x = &l->seen[r];
        const int is_late = r == LOST && way == LENT_STANDS && x->status;
        if (!stand_in_alive() && (is_right(l, x) || is_late))
            continue;
        wrong++;
        printf("  FAIL  rank 1 of 3 %s, %s, call %d: rank %d: status %d, lost %d, "
               "%d groups and %d communicators left, %.1f s: %s\n", way_names[way],
               kcp_form_names[l->exchange.form], at, r, x->status, x->lost, x->groups,
               stand_in_alive(), x->seconds, x->why);
    }
    return wrong;
}

/* Then a new communicator has the bits of threads. */
int lose_ranks(int form)
{
    static struct loss l;
    const int64_t cu[] = { 0, XT };
    struct kcp_plan *plan = NULL;
    if (kcp_plan_make(&plan, 1, cu, R, NULL, 0, 16, 0, NULL))
        return 1;
    l.exchange = (struct exchange_job){ .form = form, .on_stream = 1, .plan = plan };
    int wrong = lose(&l, NONE, 0);
    const int calls = l.calls;
    for (int at = 1; at <= calls; at++)
        wrong += lose(&l, FAILS, at) + lose(&l, ERROR, at);
    wrong += lose(&l, STANDS, calls);
    if (form == KCP_CHAIN)
        wrong += lose(&l, LENT_STANDS, 1);
    kcp_plan_free(plan);
    return wrong + forms(R, 0, form, 0);
}
