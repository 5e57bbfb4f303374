/* wire.c -- checks a lossy wire: losses within bounds, everything else exact.
 *
 * Book: chapter 20.  Checked by: itself, on planted tolerances and roundings.
 * Next: tests/20_clusters/bound.c. */
#include "layer.h"
#include "base/bf16.h"
#include "comm/lossy.h"
#include "tests/judge/judge.h"
#include "tests/judge/tolerance.h"

static struct lossy_layer *layer_of(enum kcp_model model, enum strength strength)
{
    struct lossy_layer *a = malloc(sizeof *a);
    if (a)
        lossy_draw(a, model, strength, 20);
    return a;
}

/* Returns the number of ranks that dropped a state (only ranks in the middle can). */
static int cuts_of(const struct lossy_layer *a, int R, int backward)
{
    int n = 0;
    for (int r = 0; r < R; r++)
        n += a->told[backward][r].cut;
    return n;
}

static int tolerances(struct kcp_report *rep)
{
    static const double allowed[] = { 1e-12, 1e-6, 1e-2 };
    int cut = 0, exact = 0, part = 0;
    for (int s = 0; s < GATES_ALL; s++)
        for (int model = KCP_KDA; model <= KCP_GDN; model++)
            for (int R = 2; R <= 9; R += 1 + (R > 4))
                for (int form = KCP_CHAIN; form <= KCP_PIPELINE; form++) {
                    struct lossy_layer *a = layer_of(model, s);
                    char why[200];
                    if (!a || lossy_run(a, R, form, why, sizeof why))
                        return KCP_NO_MEMORY;
                    const struct answers want = a->got;
                    for (int i = 0; i < 3; i++) {
                        a->lossy = 1;
                        a->wire = (struct kcp_wire){ 0, allowed[i] };
                        const int err = lossy_run(a, R, form, why, sizeof why);
                        const int n = cuts_of(a, R, 0);
                        EXPECT(rep, !err && n == cuts_of(a, R, 1), "R %d: %s; %d cuts,"
                               " backward %d", R, why, n, cuts_of(a, R, 1));
                        const double o = lossy_apart(a->got.o, want.o, sizeof want.o);
                        const double dq = lossy_apart(a->got.dq, want.dq,
                                                      sizeof want.dq);
                        const int same = !memcmp(&a->got, &want, sizeof want);
                        EXPECT(rep, n ? o < 4 * allowed[i] && dq < 4 * allowed[i]
                                      : same,
                               "%s gates, form %d, R %d, tolerance %g: %d cuts, o off "
                               "by %.1e, dq by %.1e", strength_name[s], form, R,
                               allowed[i], n, o, dq);
                        cut += n == R - 2 && n > 0;
                        exact += n == 0 && R > 2;
                        part += n > 0 && !same;
                        for (int r = 0; r < R; r++) {
                            const struct kcp_wire_told t = a->told[0][r];
                            const int between = r > 0 && r < R - 1;
                            EXPECT(rep, between ? t.bound > 0 || s == GATES_STRONG
                                                : t.bound == -1, "rank %d: bound %g", r,
                                   t.bound);
                            EXPECT(rep, t.cut == (between && t.bound <= allowed[i]),
                                   "rank %d: %d cut at a bound of %g", r, t.cut,
                                   t.bound);
                        }
                    }
                    free(a);
                }
    EXPECT(rep, cut > 20 && exact > 20 && part > 5, "%d runs drop all states, %d none, "
           "%d differ: all three should occur", cut, exact, part);
    return KCP_OK;
}
KCP_CHECK(check_20_tolerance) = { "20_clusters", "tolerance",
    "chain and pipeline give the exact state if the bound exceeds the tolerance, "
    "else a state within it", tolerances };

/* Plants a bound of 0 although gates are live; comparing states must find the
 * mistake. */
static int small_body(struct kcp_comm *over, void *arg)
{
    static const double none[LR] = { 0 };
    struct kcp_comm *comm;
    const struct kcp_wire w = { 0, 1e-6 };
    struct lossy_layer *a = arg;
    double map[LH][LK][LV + LK], S[LH][LK][LV] = { { { 0 } } }, work[2 * LH * LK * LV];
    uint64_t seed = 7 + (uint64_t)over->r;
    char byte = 0;
    for (int i = 0; i < LH * LK * (LV + LK); i++)
        (&map[0][0][0])[i] = random_normal(&seed) / sqrt(LK);
    if (kcp_wire_over(&comm, over, &w, NULL, 0))
        return KCP_NO_MEMORY;
    struct kcp_exchange e = { .form = a->form, .HV = LH, .K = LK, .V = LV,
        .plan = a->plan, .comm = comm, .ops = &ref_mapops, .maps = map, .states = S,
        .work = work };
    if (a->lossy)
        kcp_wire_bounds(comm, none);
    int status = a->late && over->r == 0 ? over->recv(over, &byte, 1, 2, NULL) : KCP_OK;
    if (!status)
        status = kcp_exchange_run(&e);
    if (!status && a->late && over->r == 2)
        status = over->send(over, &byte, 1, 0, NULL);
    if (over->r == over->R - 1)
        memcpy(a->got.ht, S, sizeof S);
    comm->free(comm);
    return status;
}

/* Runs small_body on R ranks, without bounds and with bounds of 0. If `late` is 1, rank
 * 0 begins its exchange only after rank 2 has finished, so without bounds the ranks
 * deadlock and the communicator reports this. If `late` is 0, bounds of 0 must give a
 * wrong state. */
static int small(struct kcp_report *rep, int R, int late)
{
    struct lossy_layer *a = layer_of(KCP_KDA, GATES_LIVE);
    const int64_t cu[] = { 0, LT };
    struct kcp_plan *plan;
    struct answers want;
    if (!a || kcp_plan_make(&plan, 1, cu, R, NULL, 0, LC, 0, NULL))
        return KCP_NO_MEMORY;
    a->plan = plan;
    a->late = late;
    for (int form = KCP_CHAIN; form <= KCP_PIPELINE; form++) {
        a->form = form;
        for (a->lossy = 0; a->lossy < 2; a->lossy++) {
            char why[200] = "";
            const int err = kcp_threads_run(R, small_body, a, why, sizeof why);
            EXPECT(rep, !err == (a->lossy || !late), "form %d, %s bounds: status %d, "
                   "%s", form, a->lossy ? "with" : "without", err, why);
            if (!a->lossy)
                want = a->got;
        }
        const double off = lossy_apart(a->got.ht, want.ht, sizeof want.ht);
        EXPECT(rep, late || off > 1e-2, "form %d: bounds of 0 change the state by only "
               "%.1e", form, off);
    }
    kcp_plan_free(plan);
    free(a);
    return KCP_OK;
}

static int too_small(struct kcp_report *rep) { return small(rep, 4, 0); }
KCP_CHECK(check_20_too_small) = { "20_clusters", "too_small",
    "a bound of 0, planted as an error, gives a wrong state", too_small };

static int no_wait(struct kcp_report *rep) { return small(rep, 3, 1); }
KCP_CHECK(check_20_no_wait) = { "20_clusters", "no_wait",
    "a rank that drops its state sends before it receives, and other ranks do not",
    no_wait };

static int narrow(struct kcp_report *rep)
{
    for (int model = KCP_KDA; model <= KCP_GDN; model++)
        for (int R = 2; R <= 8; R += 1 + (R > 3))
            for (int form = 0; form < KCP_FORMS; form++) {
                struct lossy_layer *a = layer_of(model, GATES_LIVE);
                char why[200];
                if (!a || lossy_run(a, R, form, why, sizeof why))
                    return KCP_NO_MEMORY;
                const struct answers want = a->got;
                struct kcp_traffic sent[LR];
                memcpy(sent, a->sent, sizeof sent);
                a->lossy = 1;
                a->wire.bf16 = 1;
                const int err = lossy_run(a, R, form, why, sizeof why);
                EXPECT(rep, !err, "form %d R %d: %s", form, R, why);
                const double o = lossy_apart(a->got.o, want.o, sizeof want.o);
                const double dq = lossy_apart(a->got.dq, want.dq, sizeof want.dq);
                const size_t gates = sizeof want.dg / (model == KCP_GDN ? LK : 1);
                const double dg = lossy_apart(a->got.dg, want.dg, gates);
                EXPECT(rep, o <= tolerance_of(TOLERANCE_LAYER, KCP_BF16) &&
                       dq <= tolerance_of(TOLERANCE_GRADIENTS, KCP_BF16) &&
                       dg <= tolerance_of(TOLERANCE_GATES, KCP_BF16), "form %d R %d: o "
                       "%.1e dq %.1e dg %.1e", form, R, o, dq, dg);
                EXPECT(rep, o > 1e-6, "form %d R %d: nothing was rounded", form, R);
                for (int r = 0; r < R; r++)
                    EXPECT(rep, 4 * a->sent[r].bytes == sent[r].bytes &&
                           a->sent[r].messages == sent[r].messages, "form %d R %d rank "
                           "%d: %lld bytes, of %lld", form, R, r,
                           (long long)a->sent[r].bytes, (long long)sent[r].bytes);
                free(a);
            }
    return KCP_OK;
}
KCP_CHECK(check_20_narrow) = { "20_clusters", "narrow",
    "bf16 messages in all forms take a quarter of the bytes of double, within "
    "limits", narrow };

struct wire_call { struct kcp_wire wire, other; enum kcp_form form; int64_t L; };

static int refused_body(struct kcp_comm *over, void *arg)
{
    const struct wire_call *q = arg;
    const int64_t cu[] = { 0, 64 };
    struct kcp_plan *plan;
    struct kcp_comm *comm = NULL;
    char why[160];
    static double zeros[LR][4 * 4 * 4 * 8 + 64];
    const struct kcp_wire *w = over->r ? &q->wire : &q->other;
    int status = kcp_wire_over(&comm, over, w, why, sizeof why);
    if (status)
        return status;
    if (kcp_plan_make(&plan, 1, cu, over->R, NULL, q->L, 16, 0, NULL))
        return KCP_NO_MEMORY;
    double map[4 * 1 * 2 * 4] = { 0 }, S[4 * 2 * 2] = { 0 };
    const struct kcp_exchange e = { .form = q->form, .HV = 1, .K = 2, .V = 2,
        .plan = plan, .comm = comm, .ops = &ref_mapops, .maps = map, .states = S,
        .work = zeros[over->r] };
    status = kcp_exchange_run(&e);
    kcp_plan_free(plan);
    comm->free(comm);
    return status;
}

static int refusals(struct kcp_report *rep)
{
    static const struct { struct wire_call q; int status; } list[] = {
        { { { 0, 1e-3 }, { 0, 1e-3 }, KCP_CHAIN, 0 }, KCP_OK },
        { { { 1, 0 }, { 1, 0 }, KCP_SCAN, 0 }, KCP_OK },
        { { { 0, 0 }, { 0, 0 }, KCP_SCAN, 16 }, KCP_OK },
        { { { 0, 1e-3 }, { 0, 1e-3 }, KCP_ALL_GATHER, 0 }, KCP_NA },
        { { { 0, 1e-3 }, { 0, 1e-3 }, KCP_SCAN, 0 }, KCP_NA },
        { { { 0, 1e-3 }, { 0, 1e-3 }, KCP_CHAIN, 16 }, KCP_NA },
        { { { 1, 0 }, { 1, 0 }, KCP_CHAIN, 16 }, KCP_NA },
        { { { 0, 1e-3 }, { 0, 1e-4 }, KCP_CHAIN, 0 }, KCP_MISMATCH },
        { { { 1, 0 }, { 0, 0 }, KCP_CHAIN, 0 }, KCP_MISMATCH },
        { { { 0, 1 }, { 0, 1 }, KCP_CHAIN, 0 }, KCP_BAD },
        { { { 0, NAN }, { 0, NAN }, KCP_CHAIN, 0 }, KCP_BAD } };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct wire_call q = list[i].q;
        char why[200] = "";
        const int status = kcp_threads_run(3, refused_body, &q, why, sizeof why);
        EXPECT(rep, status == list[i].status, "call %d: status %d, %s", (int)i, status,
               why);
    }
    struct kcp_comm plain = { .R = 1 };
    struct kcp_wire_told told;
    EXPECT(rep, kcp_wire_told(&plain, &told) == KCP_BAD &&
           kcp_wire_tolerance(&plain) == 0 && kcp_wire_tolerance(NULL) == 0,
           "another communicator has a tolerance");
    return KCP_OK;
}
KCP_CHECK(check_20_refusals) = { "20_clusters", "wire_refusals",
    "invalid options of a lossy wire are rejected with a message on every rank",
    refusals };
