/* agree.c -- ranks with different calls must return KCP_MISMATCH before they send.
 * Book: chapter 20. */
#include "tests/judge/judge.h"
#include "tests/made_call.h"

#include <math.h>

enum { R = 3 };
enum spoil { NOTHING, SCALE, NORM, LAYOUT, FORM, CUTS, OTHER_L, OTHER_STAGE, NO_SUM,
             LOCAL_SUM, SCAN_FORM, FAMILY_MODEL, SPOILS };
static const char *const text[SPOILS] = { "", "scale: rank 1 has 0.25, rank 0 has 0.5",
    "l2norm: rank 1 has 1", "layout: rank 1 has 1", "form: rank 1 has 1",
    "cuts: rank 1 differs", "L: rank 1 differs", "stage: rank 1 differs",
    "rank 1 passes other optional arrays than rank 0", "part: rank 1 has 4",
    "form: rank 1 has 1", "model: rank 1 has 4" };

struct ranks { enum spoil spoil; int status[R], again[R]; char why[R][160]; };

static struct kcp_plan *plan_of(enum spoil spoil)
{
    const int64_t cu[2] = { 0, 24 }, other[R + 1] = { 0, 8, 15, 24 };
    struct kcp_plan *p = NULL;
    const int64_t *cuts = spoil == CUTS ? other : NULL;
    kcp_plan_make(&p, 1, cu, R, cuts, spoil == OTHER_L ? 8 : 0, 8, 3, NULL);
    return p;
}

/* Returns the stage that rank r runs: 08, 13 (for gradients of parameters), 15 or
 * 16. */
static const char *stage_of(enum spoil spoil, int r)
{
    const int is_other = spoil == OTHER_STAGE && r == 1;
    if (spoil == NO_SUM || spoil == LOCAL_SUM || is_other) return "13";
    if (spoil == SCAN_FORM) return "15";
    return spoil == FAMILY_MODEL ? "16" : "08";
}

/* Runs a stage in which the call of rank 1 differs from the other ranks' calls.
 * Afterwards, equal calls of all ranks over the same communicator must succeed. */
static int body(struct kcp_comm *comm, void *arg)
{
    struct ranks *x = arg;
    const int mine = comm->r == 1 ? x->spoil : NOTHING;
    const char *stage = stage_of(x->spoil, comm->r);
    const int model = x->spoil == FAMILY_MODEL ? KCP_GDN2 : KCP_KDA;
    struct kcp_plan *plan = plan_of(mine), *same = plan_of(NOTHING);
    struct made_call m, n;
    if (!plan || !same) return KCP_NO_MEMORY;
    made_call(&m, kcp_stage_find(stage), model, KCP_FORWARD, plan, comm);
    if (m.stage->facts & KCP_LOADS) made_saved(&m);
    if (mine == SCALE) m.a.call.scale = 0.25;
    if (mine == NORM) m.a.call.l2norm = 1;
    if (mine == LAYOUT) m.a.call.layout = KCP_VK;
    if (mine == FORM || mine == SCAN_FORM) m.a.call.form = KCP_CHAIN;
    if (mine == FAMILY_MODEL) m.a.call.model = KCP_GLA;
    if (mine == NO_SUM) m.a.backward.dA_log = NULL;
    if (mine == LOCAL_SUM) m.a.call.part = KCP_SUM_LOCAL;
    const struct kcp_traffic before = comm->traffic;
    x->status[comm->r] = m.stage->ref(&m.a);
    snprintf(x->why[comm->r], sizeof x->why[0], "%s", kcp_why());
    const int moved = x->spoil && (comm->traffic.bytes != before.bytes ||
                                   comm->traffic.collectives != before.collectives);
    made_call(&n, kcp_stage_find("08"), KCP_KDA, KCP_FORWARD, same, comm);
    x->again[comm->r] = moved ? KCP_BAD : n.stage->ref(&n.a);
    made_free(&m);
    made_free(&n);
    kcp_plan_free(plan);
    kcp_plan_free(same);
    return KCP_OK;
}

static int agree(struct kcp_report *rep)
{
    for (int spoil = NOTHING; spoil < SPOILS; spoil++) {
        struct ranks x = { .spoil = spoil };
        char why[200] = "";
        const int err = kcp_threads_run(R, body, &x, why, sizeof why);
        EXPECT(rep, err == KCP_OK, "%d: %s", spoil, why);
        for (int r = 0; r < R; r++) {
            EXPECT(rep, x.status[r] == (spoil ? KCP_MISMATCH : KCP_OK) &&
                   strstr(x.why[r], text[spoil]), "%d: rank %d: status %d, '%s'",
                   spoil, r, x.status[r], x.why[r]);
            EXPECT(rep, x.again[r] == KCP_OK, "%d: rank %d, next call: %d", spoil, r,
                   x.again[r]);
        }
    }
    return KCP_OK;
}

/* ---- KCP_SUM_LOCAL: the ranks' sums add up to the total */
struct sums { int local; double dA[R][2], db[R][2], dw[R][4]; };

static int sum_body(struct kcp_comm *comm, void *arg)
{
    struct sums *x = arg;
    struct kcp_plan *plan = plan_of(NOTHING);
    struct made_call f, b, c, s;
    if (!plan) return KCP_NO_MEMORY;
    made_call(&f, kcp_stage_find("08"), KCP_KDA, KCP_FORWARD, plan, comm);
    f.a.call.gate = KCP_GATE_SOFTPLUS;
    f.a.forward.saved_bytes = kcp_saved_bytes(&f.a.forward);
    f.saved = f.a.forward.saved = malloc(f.a.forward.saved_bytes);
    int status = f.saved ? f.stage->ref(&f.a) : KCP_NO_MEMORY;
    made_call(&b, kcp_stage_find("13"), KCP_KDA, KCP_BACKWARD, plan, comm);
    b.a.call.gate = KCP_GATE_SOFTPLUS;
    b.a.backward.saved = f.saved;
    b.a.backward.saved_bytes = f.a.forward.saved_bytes;
    made_call(&c, kcp_stage_find("14"), KCP_KDA, KCP_BACKWARD, plan, comm);
    made_call(&s, kcp_stage_find("15"), KCP_KDA, KCP_BACKWARD, plan, comm);
    const int64_t before = comm->traffic.collectives;
    if (x->local) b.a.call.part = c.a.call.part = s.a.call.part = KCP_SUM_LOCAL;
    if (!status) status = b.stage->ref(&b.a);
    if (!status) status = c.stage->ref(&c.a);
    if (!status) status = s.stage->ref(&s.a);
    /* Stages 13 and 15 need at most 5 collectives to gather maps and last outputs, so
     * more than 5 mean that parameter sums were sent too. */
    if (!status && x->local && comm->traffic.collectives - before > 5) status = KCP_BAD;
    memcpy(x->dA[comm->r], b.a.backward.dA_log, sizeof x->dA[0]);
    memcpy(x->db[comm->r], c.a.conv.dbias, sizeof x->db[0]);
    memcpy(x->dw[comm->r], s.a.scan.dw_beta, sizeof x->dw[0]);
    made_free(&f);
    made_free(&b);
    made_free(&c);
    made_free(&s);
    kcp_plan_free(plan);
    return status;
}

static double apart(const double *all, const double (*mine), int stride, int i)
{
    double sum = 0;
    for (int r = 0; r < R; r++) sum += mine[r * stride + i];
    return fabs(sum - all[i]) / (1e-12 + fabs(all[i]));
}

static int sums(struct kcp_report *rep)
{
    struct sums all = { 0 }, own = { .local = 1 };
    char why[200] = "";
    int err = kcp_threads_run(R, sum_body, &all, why, sizeof why);
    if (!err) err = kcp_threads_run(R, sum_body, &own, why, sizeof why);
    EXPECT(rep, err == KCP_OK, "%s", why);
    for (int i = 0; i < 2; i++) {
        EXPECT(rep, apart(all.dA[0], own.dA[0], 2, i) < 1e-12 && all.dA[0][i] != 0 &&
               own.dA[0][i] != own.dA[1][i], "wrong dA_log[%d]: %g", i, all.dA[0][i]);
        EXPECT(rep, apart(all.db[0], own.db[0], 2, i) < 1e-12 && all.db[0][i] != 0,
               "wrong dbias[%d]: %g", i, all.db[0][i]);
    }
    for (int i = 0; i < 4; i++)
        EXPECT(rep, apart(all.dw[0], own.dw[0], 4, i) < 1e-12 && all.dw[0][i] != 0,
               "wrong dw_beta[%d]: %g", i, all.dw[0][i]);
    for (int r = 1; r < R; r++)
        EXPECT(rep, !memcmp(all.dA[0], all.dA[r], sizeof all.dA[0]), "rank %d", r);
    return KCP_OK;
}

KCP_CHECK(check_08_agree) = { "08_forward", "agree",
    "if one rank's plan or option differs from the other ranks', every rank"
    " returns KCP_MISMATCH, and later calls work", agree };
KCP_CHECK(check_08_sum_local) = { "08_forward", "sum_local",
    "with KCP_SUM_LOCAL the local sums of stages 13, 14 and 15 add up to the "
    "total", sums };
