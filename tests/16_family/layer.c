/* layer.c -- compares layer.h with chapters 15 and 16, and checks invalid calls.
 *
 * Book: chapter 16.  Checked by: itself, it can fail.
 * Next: tests/16_family/compose_mutants.c.
 */
#include "run.h"
#include "tests/made_call.h"

static int by_layer(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 3 && !status; j++) {
        struct batch one = { .model = models[j] };
        status = draw(&one);
        for (int i = 0; i < 24 && !status; i++) {
            struct batch x = one, y = one;
            x.form = y.form = (enum kcp_form)(i % 4);
            x.spread = y.spread = (enum kcp_spread)(i / 4 % 3);
            x.R = y.R = i < 12 ? 2 : 5;
            x.keep = y.keep = i % 2;
            x.by_layer = 1;
            status = same_bits(rep, x, y);
        }
        drop_inputs(&one);
    }
    return status;
}
KCP_CHECK(check_16_layer) = { "16_family", "layer",
    "kcp_layer_family gives the reference's bits for all forms and owners",
    by_layer };

/* Runs both passes of Spike-KDA through layer.h and by direct calls. */
static int scan(struct kcp_report *rep)
{
    const int64_t one[2] = { 0, 24 };
    struct kcp_comm comm = { .R = 1 };
    struct kcp_layer l;
    struct kcp_plan *plan = NULL;
    kcp_layer_ref(&l);
    if (kcp_plan_make(&plan, 1, one, 1, NULL, 0, 8, 0, NULL)) return KCP_NO_MEMORY;
    for (int pass = KCP_FORWARD; pass <= KCP_BACKWARD; pass++) {
        struct made_call a, b;
        made_call(&a, kcp_stage_find("15"), KCP_KDA, (enum kcp_pass)pass, plan, &comm);
        made_call(&b, kcp_stage_find("15"), KCP_KDA, (enum kcp_pass)pass, plan, &comm);
        const int x = kcp_layer_scan(&l, &a.a.scan), y = ref_scan(&b.a.scan);
        EXPECT(rep, x == KCP_OK && y == KCP_OK, "status %d and %d: %s", x, y,
               kcp_why());
        const size_t n = sizeof(double) * 24 * (size_t)a.a.call.HV;
        const void *of[2] = { pass ? a.a.scan.dbeta_base : a.a.scan.o,
                              pass ? b.a.scan.dbeta_base : b.a.scan.o };
        EXPECT(rep, !memcmp(of[0], of[1], n), "pass %d: wrong bits", pass);
        a.a.scan.q = NULL;
        EXPECT(rep, kcp_layer_scan(&l, &a.a.scan) == KCP_BAD &&
               !strcmp(kcp_why(), "15_scan: q: it is missing"), "'%s'", kcp_why());
        EXPECT(rep, kcp_layer_scan_work(&l, &b.a.scan) == 0, "work > 0 on CPU");
        made_free(&a);
        made_free(&b);
    }
    EXPECT(rep, kcp_layer_scan(&l, NULL) == KCP_BAD && kcp_layer_scan_work(NULL, NULL)
           == 0, "accepts NULL");
    kcp_plan_free(plan);
    return KCP_OK;
}
KCP_CHECK(check_15_layer) = { "15_scan", "layer",
    "kcp_layer_scan gives the reference's bits and names a missing array",
    scan };

/* ---- invalid calls */
enum spoil { NOTHING, NO_A, NO_OMEGA, NO_MODEL, GATE_WIDTH, NO_PLAN, OTHER_NC, NO_G,
             SPOILS };
static const struct { enum kcp_model model; const char *text; } spoilt[SPOILS] = {
    { KCP_DPLR, "" }, { KCP_DPLR, "16_family: a: it is missing" },
    { KCP_GDN2, "16_family: omega: it is missing" },
    { KCP_GLA, "16_family: model: found 0, expected 2 to 4" },
    { KCP_GLA, "16_family: KG: found 1, expected" },
    { KCP_GLA, "16_family: plan: there is no plan" },
    { KCP_GLA, "16_family: NC is not the plan's" },
    { KCP_GLA, "16_family: g: it is missing" } };

static int refuses(struct kcp_report *rep)
{
    const int64_t one[2] = { 0, 24 };
    struct kcp_comm comm = { .R = 1 };
    struct kcp_layer l, none = { 0 };
    struct kcp_plan *plan = NULL;
    kcp_layer_ref(&l);
    if (kcp_plan_make(&plan, 1, one, 1, NULL, 0, 8, 0, NULL)) return KCP_NO_MEMORY;
    for (int spoil = NOTHING; spoil < SPOILS; spoil++) {
        struct made_call m;
        made_call(&m, kcp_stage_find("16"), spoilt[spoil].model, KCP_FORWARD, plan,
                  &comm);
        struct kcp_family *a = &m.a.family;
        if (spoil == NO_A) a->a = NULL;
        if (spoil == NO_OMEGA) a->omega = NULL;
        if (spoil == NO_MODEL) a->model = KCP_KDA;
        if (spoil == GATE_WIDTH) a->KG = 1;
        if (spoil == NO_PLAN) a->plan = NULL;
        if (spoil == OTHER_NC) a->NC++;
        if (spoil == NO_G) a->g = NULL;
        const int status = kcp_layer_family(&l, a);
        EXPECT(rep, status == (spoil ? KCP_BAD : KCP_OK) &&
               (!spoil || strstr(kcp_why(), spoilt[spoil].text)), "%d: status %d, '%s'",
               spoil, status, kcp_why());
        const size_t kept = kcp_layer_family_kept(&l, (struct kcp_call *)a);
        const int sizes = spoil == NOTHING || spoil == NO_A || spoil == NO_OMEGA ||
                          spoil == NO_G;
        const size_t state = sizeof(double) * (size_t)(a->HV * a->K * a->V);
        EXPECT(rep, kept == (sizes ? state : 0), "%d: kept size %zu", spoil, kept);
        if (!spoil)
            EXPECT(rep, kcp_layer_family(&none, a) == KCP_BAD &&
                   strstr(kcp_why(), "no such pass") &&
                   kcp_layer_family(NULL, a) == KCP_BAD &&
                   kcp_layer_family_work(NULL, a) == 0 &&
                   kcp_layer_family_kept(&none, (struct kcp_call *)a) == 0,
                   "accepts NULL: '%s'", kcp_why());
        made_free(&m);
    }
    kcp_plan_free(plan);
    return KCP_OK;
}
KCP_CHECK(check_16_layer_refuses) = { "16_family", "layer_refuses",
    "kcp_layer_family returns KCP_BAD for an invalid argument, which kcp_why() "
    "names", refuses };
