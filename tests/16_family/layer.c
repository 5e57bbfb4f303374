/* layer.c -- compares layer.h with chapters 15 and 16, and checks invalid calls.
 *
 * Book: chapter 16.  Checked by: itself, it can fail.
 * Next: tests/16_family/compose_mutants.c.
 */
#include "run.h"
#include "tests/made_call.h"

static int call_layer(struct kcp_family *a)
{
    struct kcp_layer layer;
    kcp_layer_ref(&layer);
    return kcp_layer_family(&layer, a);
}

static int run_layer(void *args) { return call_layer(args); }
static int run_layer_keeping(void *args) { return family_kept(args, call_layer); }
static const struct kcp_variant variants[] = {
    { "16_family", "layer", "", KCP_F64, KCP_HOST, "any", run_layer, NULL },
    { "16_family", "layer_keeping", "", KCP_F64, KCP_HOST, "any", run_layer_keeping,
      NULL } };

static int by_layer(struct kcp_report *rep)
{
    static const char *const owners[] = { "", "owners=zigzag", "owners=striped" };
    const struct kcp_variant ref = reference_of(stage_find("16"));
    int status = KCP_OK;
    for (int i = 0; i < 3 * 24 && !status; i++) {
        char words[300];
        snprintf(words, sizeof words, "%s %s " BATCH "R=%d %s",
                 model_name[KCP_DPLR + i / 24], kcp_form_names[i % 4],
                 i % 24 < 12 ? 2 : 5, owners[i / 4 % 3]);
        status = bits_agree(rep, &ref, words, &variants[i % 2], "");
    }
    return status;
}
KCP_CHECK(check_16_layer) = { "16_family", "layer",
    "kcp_layer_family gives the bits of the reference for all forms and tables of "
    "owners", by_layer };

static int run_scan_layer(void *args)
{
    struct kcp_layer layer;
    kcp_layer_ref(&layer);
    return kcp_layer_scan(&layer, args);
}

static int scan(struct kcp_report *rep)
{
    const struct kcp_variant ref = reference_of(stage_find("15"));
    const struct kcp_variant own = { "15_scan", "layer", "", KCP_F64, KCP_HOST, "any",
                                     run_scan_layer, NULL };
    const int status = bits_agree(rep, &ref, "live kda H=2 HV=4 K=6 V=5 C=8 D=3 spike "
                                  "lengths=24,9 R=2 h0 dht", &own, "");
    struct kcp_layer l;
    struct kcp_scan none = { 0 };
    kcp_layer_ref(&l);
    EXPECT(rep, kcp_layer_scan_work(&l, &none) == 0, "work > 0 on CPU");
    EXPECT(rep, kcp_layer_scan(&l, NULL) == KCP_BAD && kcp_layer_scan_work(NULL, NULL)
           == 0, "accepts NULL");
    return status;
}
KCP_CHECK(check_15_layer) = { "15_scan", "layer",
    "kcp_layer_scan gives the bits of the reference", scan };

/* ---- invalid calls */
enum spoil { NOTHING, NO_A, NO_OMEGA, NO_MODEL, GATE_WIDTH, NO_PLAN, OTHER_NC, NO_G,
             SPOILS };
static const struct { enum kcp_model model; const char *text; } spoilt[SPOILS] = {
    { KCP_DPLR, "" }, { KCP_DPLR, "16_family: a: it is missing" },
    { KCP_GDN2, "16_family: omega: it is missing" },
    { KCP_GLA, "16_family: model: found 0, expected 2 to 4" },
    { KCP_GLA, "16_family: KG: found 1, expected" },
    { KCP_GLA, "16_family: the call has no plan" },
    { KCP_GLA, "16_family: NC differs from the plan" },
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
