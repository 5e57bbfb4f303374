/* refresh.c -- checks that kcp_plan_refresh accepts only a plan with the old sizes.
 * Book: chapter 06, "The next batch". */
#include "plan_case.h"
#include "tests/made_call.h"

#include <stdlib.h>
#include <string.h>

enum { N = 3, T = 96, R = 3, C = 8 };
/* Sequences of the two batches end at different tokens. In both batches, a rank has
 * the same number of chunks and segments. */
static const int64_t first[N + 1] = { 0, 21, 70, T }, then[N + 1] = { 0, 17, 66, T };

static struct kcp_plan *plan_of(const int64_t *cu, int n, int ranks, int chunk,
                                int64_t L)
{
    struct kcp_plan *p = NULL;
    kcp_plan_make(&p, n, cu, ranks, NULL, L, chunk, 3, NULL);
    return p;
}

/* ---- a call whose plan is refreshed after its arguments were made */
struct step {
    struct kcp_plan *plan, *next;            /* next: a plan to refresh from, or NULL */
    double o[T * 4 * 8];
    int status[R];
};

static int body(struct kcp_comm *comm, void *arg)
{
    struct step *x = arg;
    struct made_call m;
    made_call(&m, kcp_stage_find("08"), KCP_KDA, KCP_FORWARD, x->plan, comm);
    m.a.forward.cu = x->plan->ctx[comm->r].cu;
    m.a.forward.cn = x->plan->ctx[comm->r].cn;
    m.a.forward.sc = x->plan->ctx[comm->r].sc;
    int status = comm->barrier(comm, NULL);
    if (!status && x->next && comm->r == 0)
        x->status[0] = kcp_plan_refresh(x->plan, x->next, NULL);
    if (!status) status = comm->barrier(comm, NULL);
    if (!status) status = x->status[0];
    if (!status) status = m.stage->ref(&m.a);
    const struct kcp_context *c = &x->plan->ctx[comm->r];
    const int64_t row = (int64_t)m.a.call.HV * m.a.call.V;
    if (!status)
        memcpy(x->o + c->begin * row, m.a.forward.o,
               sizeof(double) * (size_t)((c->end - c->begin) * row));
    made_free(&m);
    return status;
}

static int serves(struct kcp_report *rep)
{
    struct step again = { .plan = plan_of(first, N, R, C, 0) };
    struct step fresh = { .plan = plan_of(then, N, R, C, 0) };
    struct step stale = { .plan = plan_of(first, N, R, C, 0) };
    char why[200] = "";
    again.next = fresh.plan;
    int status = kcp_threads_run(R, body, &again, why, sizeof why);
    if (!status) status = kcp_threads_run(R, body, &fresh, why, sizeof why);
    if (!status) status = kcp_threads_run(R, body, &stale, why, sizeof why);
    EXPECT(rep, !status, "status %d, %s", status, why);
    EXPECT(rep, !memcmp(again.o, fresh.o, sizeof again.o), "o differs from a new plan");
    EXPECT(rep, memcmp(stale.o, fresh.o, sizeof stale.o), "both batches give equal o");
    kcp_plan_free(again.plan);
    kcp_plan_free(fresh.plan);
    kcp_plan_free(stale.plan);
    return status;
}
KCP_CHECK(check_06_refresh) = { "06_plan", "refresh",
    "after kcp_plan_refresh, a call with unchanged arguments computes the next batch"
    " on three ranks", serves };

static int bounds(struct kcp_report *rep)
{
    static const int64_t other[N + 1] = { 0, 24, 64, T };
    static const int64_t cross[N + 1] = { 0, 32, 70, T };
    static const int64_t more[N + 2] = { 0, 17, 40, 66, T };
    static const int64_t longer[N + 1] = { 0, 17, 66, T + 3 };
    struct plan_case was = { .N = N, .R = R, .C = C, .Wc = 3, .by_default = 1 };
    struct plan_case is = was;
    struct kcp_plan *p = plan_of(first, N, R, C, 0);
    struct kcp_plan *bad[] = {
        plan_of(other, N, R, C, 0), plan_of(cross, N, R, C, 0),
        plan_of(more, N + 1, R, C, 0), plan_of(longer, N, R, C, 0),
        plan_of(then, N, R + 1, C, 0), plan_of(then, N, R, C / 2, 0),
        plan_of(then, N, R, C, 16) };
    struct kcp_plan *good = plan_of(then, N, R, C, 0);
    const int *cu = p->ctx[1].cu, *sc = p->ctx[2].sc;
    const char *why = NULL;
    memcpy(was.cu, first, sizeof first);
    memcpy(is.cu, then, sizeof then);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT(rep, kcp_plan_refresh(p, bad[i], &why) == KCP_NA && why &&
               strstr(kcp_why(), why), "plan %zu: expected KCP_NA and a reason", i);
        EXPECT(rep, !plan_wrong(p, &was),
               "plan %zu was rejected, but changed the old plan", i);
        kcp_plan_free(bad[i]);
    }
    EXPECT(rep, kcp_plan_refresh(p, good, &why) == KCP_OK && !plan_wrong(p, &is) &&
           plan_wrong(p, &was) && p->digest == good->digest && p->ctx[1].cu == cu &&
           p->ctx[2].sc == sc,
           "after a refresh, the plan or its addresses are wrong: %s", why ? why : "");
    EXPECT(rep, kcp_plan_refresh(NULL, good, NULL) == KCP_BAD &&
           kcp_plan_refresh(p, NULL, &why) == KCP_BAD, "NULL: accepted");
    kcp_plan_free(p);
    kcp_plan_free(good);
    return KCP_OK;
}
KCP_CHECK(check_06_refresh_bounds) = { "06_plan", "refresh_bounds",
    "a refresh that changes sizes, R or which ranks share a sequence returns KCP_NA and"
    " leaves the plan unchanged", bounds };
