/* calls.c -- a rank's calls over the stand-in: each is waited for, and one is its last.
 *
 * Book: chapter 20.  Checked by: ranks.c.  Next: forms.c.
 *
 * The references compute on the host at once, so what comes on a stream is awaited
 * before they go on. A lost rank is known while we wait: then the stream must be let
 * go, by our abort, or by the owner's where the communicator is lent. */
#include "stand_in.h"

#include <poll.h>

_Thread_local struct striking me;

static const struct nccl *nccl_here(void)
{
    char why[120] = "";
    const struct nccl *nccl = nccl_open(why, sizeof why);
    if (!nccl) {
        fprintf(stderr, "kcp-stand-in: %s\n", why);
        exit(2);
    }
    return nccl;
}

static int settled(ncclComm_t at, ncclResult_t result)
{
    while (result == ncclInProgress) {
        poll(NULL, 0, 1);
        if (nccl_here()->ncclCommGetAsyncError(at, &result))
            return 0;
    }
    return result == ncclSuccess;
}

ncclComm_t lend(struct meet *m, int R, int r, int blocking)
{
    const struct nccl *nccl = nccl_here();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t at = NULL;
    config.blocking = blocking;
    if (r == 0) {
        if (nccl->ncclGetUniqueId(&m->id))
            return NULL;
        m->is_there = 1;
    }
    while (!m->is_there)
        poll(NULL, 0, 1);
    return settled(at, nccl->ncclCommInitRankConfig(&at, R, m->id, r, &config)) ? at
                                                                                : NULL;
}

void owner_ends(void)
{
    if (me.lent)
        nccl_here()->ncclCommAbort(me.lent);
    me.lent = NULL;
    cudaStreamSynchronize(NULL);
}

static int arrived(struct kcp_comm *c, int status)
{
    const double until = monotonic_seconds() + me.stuck;
    while (!status && !me.in_group && cudaStreamQuery(NULL) == cudaErrorNotReady) {
        if (c->lost(c, NULL, NULL, 0))
            status = KCP_COMM;
        else if (monotonic_seconds() > until)
            status = me.own.barrier(c, NULL);
        else
            poll(NULL, 0, 1);
    }
    if (status && !me.in_group)            /* else when it has ended */
        owner_ends();
    return status;
}

static void count(const struct kcp_comm *c)
{
    if (++me.calls == me.at && c->r == 1 && me.strike)
        me.strike(me.arg);
    me.group_calls += me.in_group;
    if (me.group_calls == 2 && me.in_its_group) {
        void (*const there)(void *) = me.in_its_group;
        me.in_its_group = NULL;
        there(me.arg);
    }
}

static int all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    count(c);
    return arrived(c, me.own.all_gather(c, mine, all, bytes, stream));
}

static int send_to(struct kcp_comm *c, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    count(c);
    return arrived(c, me.own.send(c, data, bytes, to, stream));
}

static int recv_from(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    count(c);
    return arrived(c, me.own.recv(c, data, bytes, from, stream));
}

static int group(struct kcp_comm *c, int begin)
{
    count(c);
    const int status = me.own.group(c, begin);
    me.in_group = begin && !status;
    return arrived(c, status);
}

static int barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    count(c);
    return arrived(c, me.own.barrier(c, stream));
}

static int show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                struct CUstream_st *stream)
{
    count(c);
    return arrived(c, me.own.show(c, mine, all, bytes, stream));
}

void calls_wait(struct kcp_comm *c, ncclComm_t lent)
{
    me = (struct striking){ .own = *c, .comm = c, .lent = lent, .stuck = 60 };
    c->all_gather = all_gather;
    c->send = send_to;
    c->recv = recv_from;
    c->group = group;
    c->barrier = barrier;
    c->show = show;
}

void calls_as_before(void)
{
    me.comm->all_gather = me.own.all_gather;
    me.comm->send = me.own.send;
    me.comm->recv = me.own.recv;
    me.comm->group = me.own.group;
    me.comm->barrier = me.own.barrier;
    me.comm->show = me.own.show;
}

static struct kcp_plan *plan_of(int R)
{
    const int64_t cu[] = { 0, LT };
    struct kcp_plan *plan = NULL;
    kcp_plan_make(&plan, 1, cu, R, NULL, 0, LC, 0, NULL);
    return plan;
}

int pass_on(struct kcp_comm *comm, struct lossy_layer *a, int R, enum kcp_form form)
{
    struct kcp_plan *plan = plan_of(R);
    if (!plan)
        return KCP_NO_MEMORY;
    a->form = form;
    a->plan = plan;
    int status = lossy_rank(comm, a);
    if (!status)
        status = comm->barrier(comm, NULL);
    kcp_plan_free(plan);
    return status;
}

int wrong_rows(const struct lossy_layer *a, int R, int r, enum kcp_form form)
{
    const struct answers *w = &want[R][form][a->model == KCP_GDN];
    const struct answers *x = &a->got;
    struct kcp_plan *plan = plan_of(R);
    if (!plan)
        return 1;
    const int64_t t = plan->ctx[r].begin, n = plan->ctx[r].end - t;
    const int KG = a->model == KCP_GDN ? 1 : LK;
    const double *dg = &x->dg[0][0][0] + t * LH * KG;
    const double *dg_w = &w->dg[0][0][0] + t * LH * KG;
    int wrong = memcmp(x->o[t], w->o[t], sizeof x->o[t] * n) != 0;
    wrong += memcmp(x->dq[t], w->dq[t], sizeof x->dq[t] * n) != 0;
    wrong += memcmp(x->dk[t], w->dk[t], sizeof x->dk[t] * n) != 0;
    wrong += memcmp(x->dv[t], w->dv[t], sizeof x->dv[t] * n) != 0;
    wrong += memcmp(x->dbeta[t], w->dbeta[t], sizeof x->dbeta[t] * n) != 0;
    wrong += memcmp(dg, dg_w, sizeof *dg * n * LH * KG) != 0;
    if (r == R - 1)
        wrong += memcmp(x->ht, w->ht, sizeof x->ht) != 0;
    if (r == 0)
        wrong += memcmp(x->dh0, w->dh0, sizeof x->dh0) != 0;
    kcp_plan_free(plan);
    return wrong;
}
