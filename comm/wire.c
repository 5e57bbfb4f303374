/* wire.c -- a lossy communicator on top of another communicator.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c, tests/cli/run_cli.sh.
 * Next: comm/narrow.c.
 *
 * Every call goes to the lower communicator `over`. Both communicators count the
 * traffic. Only the exchange is lossy; halos and sums stay exact. */
#include "comm/lossy.h"
#include "checked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wire_comm {
    struct kcp_comm comm;
    struct kcp_comm *over;
    struct kcp_wire wire;
    const double *bound;
    struct kcp_wire_told told;
};

static const char backend[] = "wire";

static struct wire_comm *wire_comm(const struct kcp_comm *c)
{
    return c && c->backend == backend ? (struct wire_comm *)c : NULL;
}

static int wire_all_gather(struct kcp_comm *c, const void *mine, void *all,
                           size_t bytes, struct CUstream_st *stream)
{
    struct kcp_comm *over = wire_comm(c)->over;
    c->traffic.bytes += (int64_t)(c->R - 1) * (int64_t)bytes;
    c->traffic.collectives++;
    return over->all_gather(over, mine, all, bytes, stream);
}

static int wire_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                     struct CUstream_st *stream)
{
    struct kcp_comm *over = wire_comm(c)->over;
    c->traffic.bytes += (int64_t)bytes;
    c->traffic.messages++;
    return over->send(over, data, bytes, to, stream);
}

static int wire_recv(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    struct kcp_comm *over = wire_comm(c)->over;
    return over->recv(over, data, bytes, from, stream);
}

static int wire_group(struct kcp_comm *c, int begin)
{
    struct kcp_comm *over = wire_comm(c)->over;
    return over->group(over, begin);
}

static int wire_barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    struct kcp_comm *over = wire_comm(c)->over;
    return over->barrier(over, stream);
}

static void wire_fail(struct kcp_comm *c, int status, const char *why)
{
    struct kcp_comm *over = wire_comm(c)->over;
    over->fail(over, status, why);
}

static int wire_lost(struct kcp_comm *c, int *rank, char *why, size_t n)
{
    struct kcp_comm *over = wire_comm(c)->over;
    return over->lost(over, rank, why, n);
}

static int wire_show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                     struct CUstream_st *stream)
{
    struct kcp_comm *over = wire_comm(c)->over;
    return over->show(over, mine, all, bytes, stream);
}

static void wire_free(struct kcp_comm *c) { free(c); }

/* ---- construction, with the same options on every rank */
static int is_the_same(struct wire_comm *w, char *why, size_t n)
{
    struct kcp_comm *over = w->over;
    const double mine[2] = { w->wire.bf16, w->wire.tolerance };
    double (*all)[2] = over->show ? malloc(sizeof *all * (size_t)over->R) : NULL;
    int status = !over->show || all ? KCP_OK : KCP_NO_MEMORY;
    if (all)
        status = over->show(over, mine, all, sizeof mine, NULL);
    for (int r = 1; r < over->R && all && !status; r++)
        if (memcmp(all[r], all[0], sizeof mine)) {
            status = KCP_MISMATCH;
            if (why)
                snprintf(why, n, "wire: rank %d has bf16 %g and tolerance %g, rank"
                         " 0 has %g and %g", r, all[r][0], all[r][1], all[0][0],
                         all[0][1]);
        }
    free(all);
    return status == KCP_NA ? KCP_OK : status;
}

int kcp_wire_over(struct kcp_comm **comm, struct kcp_comm *over,
                  const struct kcp_wire *wire, char *why, size_t n)
{
    if (!comm)
        return kcp_refuse(KCP_BAD, "wire: the pointer to the result is NULL");
    *comm = NULL;
    if (!over || !wire || !(wire->tolerance >= 0 && wire->tolerance < 1)) {
        if (why)
            snprintf(why, n, "wire: found tolerance %g, expected 0 to below 1",
                     wire ? wire->tolerance : -1);
        return KCP_BAD;
    }
    struct wire_comm *w = calloc(1, sizeof *w);
    if (!w)
        return KCP_NO_MEMORY;
    *w = (struct wire_comm){
        .comm = { .R = over->R, .r = over->r, .backend = backend,
                  .all_gather = wire_all_gather, .send = wire_send, .recv = wire_recv,
                  .group = wire_group, .barrier = wire_barrier, .fail = wire_fail,
                  .lost = wire_lost, .free = wire_free,
                  .show = over->show ? wire_show : NULL,
                  .show_waits = over->show_waits },
        .over = over, .wire = { !!wire->bf16, wire->tolerance } };
    const int status = is_the_same(w, why, n);
    if (status)
        free(w);
    else
        *comm = &w->comm;
    return status;
}

/* ---- queries */
const struct kcp_wire *wire_of(const struct kcp_comm *comm)
{
    const struct wire_comm *w = wire_comm(comm);
    return w ? &w->wire : NULL;
}

double kcp_wire_tolerance(const struct kcp_comm *comm)
{
    const struct wire_comm *w = wire_comm(comm);
    return w ? w->wire.tolerance : 0;
}

void kcp_wire_bounds(struct kcp_comm *comm, const double *bound)
{
    if (wire_comm(comm))
        wire_comm(comm)->bound = bound;
}

const double *wire_take_bounds(struct kcp_comm *comm)
{
    struct wire_comm *w = wire_comm(comm);
    const double *bound = w ? w->bound : NULL;
    if (w)
        w->bound = NULL;
    return bound;
}

int kcp_wire_cuts(const struct kcp_comm *comm, const struct kcp_plan *plan, int s)
{
    const struct wire_comm *w = wire_comm(comm);
    return w && w->bound && !plan->L && !plan->scattered &&
           w->bound[s] <= w->wire.tolerance;
}

void wire_report(struct kcp_comm *comm, struct kcp_wire_told told)
{
    if (wire_comm(comm))
        wire_comm(comm)->told = told;
}

int kcp_wire_told(const struct kcp_comm *comm, struct kcp_wire_told *told)
{
    const struct wire_comm *w = wire_comm(comm);
    if (!w || !told)
        return kcp_refuse(KCP_BAD, "wire: kcp_wire_over did not make this comm");
    *told = w->told;
    return KCP_OK;
}
