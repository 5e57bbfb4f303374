/* calls.c -- checks that wrong C calls are rejected with an error that names the field.
 * Book: chapter 20. */
#include "core/paths.h"
#include "moves.h"
#include "tests/judge/judge.h"
#include "tests/made_call.h"

#include <limits.h>
#include <math.h>

static struct kcp_plan *small_plan(int R)
{
    const int64_t cu[3] = { 0, 7, 20 };
    struct kcp_plan *p = NULL;
    return kcp_plan_make(&p, 2, cu, R, NULL, 0, 8, 3, NULL) ? NULL : p;
}

static int call_made(struct made_call *m) { return m->stage->ref(&m->a); }

/* Checks that call m, which has one mistake, returns KCP_BAD, and that kcp_why()
 * contains the stage and `word`. */
static void refused(struct kcp_report *rep, struct made_call *m, const char *word)
{
    const int status = call_made(m);
    EXPECT(rep, status == KCP_BAD && strstr(kcp_why(), word) &&
           !strncmp(kcp_why(), m->stage->name, strlen(m->stage->name)),
           "%s: %s: status %d, '%s'", m->stage->name, word, status, kcp_why());
}

static int has_letter(const struct kcp_stage *s, const char *name)
{
    const size_t n = strlen(name);
    for (int i = 0; i < s->nfields; i++)
        for (const char *at = s->fields[i].shape; *at; at += *at == ' ' || *at == '+') {
            const size_t len = strcspn(at, " +");
            if (len == n && !strncmp(at, name, n)) return 1;
            at += len;
        }
    return 0;
}

static void start(struct made_call *m, const struct kcp_stage *s, enum kcp_model model,
                  enum kcp_pass pass, const struct kcp_plan *plan)
{
    made_call(m, s, model, pass, s->ranks ? plan : NULL, NULL);
    if (s->facts & KCP_LOADS) made_saved(m);
}

/* Makes calls that each have one wrong rank, option, or size. Sizes that are in no
 * shape of the stage's arrays are not tested. */
static void wrong_numbers(struct kcp_report *rep, const struct kcp_stage *s,
                          enum kcp_model model, const struct kcp_plan *plan)
{
    struct made_call m;
    for (int i = 0; i < 2 * kcp_nmembers; i++) {
        const struct kcp_member *x = &kcp_members[i / 2];
        if (x->kind == MEMBER_SIZE ? !has_letter(s, x->name) : x->kind != MEMBER_OPTION)
            continue;
        start(&m, s, model, KCP_FORWARD, plan);
        *(int *)(m.a.bytes + x->at) = i % 2 && x->most < INT_MAX - 1 ? x->most + 1
                                                                     : x->least - 1;
        refused(rep, &m, x->name);
        made_free(&m);
    }
    for (int r = -1; r < 8 && s->ranks; r += 8) {
        start(&m, s, model, KCP_FORWARD, plan);
        m.a.call.r = r;
        refused(rep, &m, "r: found");
        made_free(&m);
    }
}

static void missing_arrays(struct kcp_report *rep, const struct kcp_stage *s,
                           enum kcp_model model, enum kcp_pass pass,
                           const struct kcp_plan *plan)
{
    struct made_call m;
    char word[64];
    int needed = 0;
    for (int i = 0; i < s->nfields; i++) {
        start(&m, s, model, pass, plan);
        const int before = kcp_check_call(s->name, KCP_HOST, &m.a);
        EXPECT(rep, before == KCP_OK, "%s: %s", s->name, kcp_why());
        made_set(&m, i, NULL);
        if (kcp_check_call(s->name, KCP_HOST, &m.a)) {
            snprintf(word, sizeof word, "%s: it is missing", s->fields[i].name);
            EXPECT(rep, strstr(kcp_why(), word) != NULL, "%s", kcp_why());
            needed++;
        }
        const int status = call_made(&m);          /* must not crash */
        EXPECT(rep, status == KCP_OK || status == KCP_BAD, "%s: status %d", s->name,
               status);
        made_free(&m);
    }
    EXPECT(rep, needed > 1, "%s: needs no array", s->name);
}

/* Makes calls that each have one wrong number in an index array. */
static void wrong_indices(struct kcp_report *rep, const struct kcp_stage *s,
                          enum kcp_model model, const struct kcp_plan *plan)
{
    static const struct { const char *name; int at, value; } wrong[] = {
        { "cu", 0, 1 }, { "cu", 1, -1 }, { "cu", 1, 1000000 }, { "cn", 0, 1 },
        { "cn", 1, -2 }, { "cn", 1, 1000000 }, { "sc", 0, 9 }, { "sc", 0, -1 },
        { "cu_seqlens", 0, 1 }, { "cu_seqlens", 1, 1000000 }, { "want", 0, 8 },
        { "range", 1, 1000 } };
    struct made_call m;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        start(&m, s, model, KCP_FORWARD, plan);
        const int at = made_field(&m, wrong[i].name);
        if (at >= 0) {
            if (s->fields[at].store == KCP_I64)
                ((int64_t *)m.array[at])[wrong[i].at] = wrong[i].value;
            else ((int32_t *)m.array[at])[wrong[i].at] = wrong[i].value;
            refused(rep, &m, wrong[i].name);
        }
        made_free(&m);
    }
}

/* Makes calls with a wrong HV, scale, lower_bound, model, KG, T, NC, plan or comm. */
static void wrong_relations(struct kcp_report *rep, const struct kcp_stage *s,
                            enum kcp_model model, const struct kcp_plan *plan,
                            const struct kcp_plan *two)
{
    struct made_call m;
    start(&m, s, model, KCP_FORWARD, plan);
    m.a.call.H = 2;
    m.a.call.HV = 3;
    if (made_field(&m, "q") >= 0 && made_field(&m, "v") >= 0)
        refused(rep, &m, "HV: found 3, expected a multiple of H");
    m.a.call.H = 1;
    m.a.call.HV = 2;
    m.a.call.scale = NAN;
    refused(rep, &m, "scale");
    m.a.call.scale = 1;
    m.a.call.gate = KCP_GATE_BOUNDED;
    m.a.call.lower_bound = 1;
    if (made_field(&m, "g_raw") >= 0) refused(rep, &m, "lower_bound");
    m.a.call.gate = KCP_GATE_RAW;
    if (!(s->facts & KCP_TAKES_LAYER)) {
        m.a.call.model = KCP_KDA;
        refused(rep, &m, "model: found kda, expected one of dplr, gdn2, gla");
        m.a.call.model = model;
        m.a.call.KG = 1;
        refused(rep, &m, "KG: found 1, expected");
        m.a.call.KG = m.a.call.K;
    }
    if (s->ranks) {
        m.a.call.T++;
        refused(rep, &m, "T differs from the plan");
        m.a.call.T--;
        m.a.call.NC++;
        refused(rep, &m, "NC differs from the plan");
        m.a.call.NC--;
        m.a.call.plan = NULL;
        refused(rep, &m, "plan");
    }
    made_free(&m);
    if (s->ranks) {
        start(&m, s, model, KCP_FORWARD, two);
        refused(rep, &m, "comm");
        made_free(&m);
    }
    EXPECT(rep, s->ref(NULL) == KCP_BAD && strstr(kcp_why(), "no arguments"), "%s: %s",
           s->name, kcp_why());
}

/* Checks that a variant rejects a wrong call before it uses the device. KCP_VARIANT
 * puts the same check around every variant, so one variant per stage is enough. */
static void wrong_variant(struct kcp_report *rep, const struct kcp_stage *s,
                          enum kcp_model model, const struct kcp_plan *plan)
{
    const struct kcp_variant *v;
    struct made_call m;
    if (kcp_variants(s->name, NULL, &v, 1) != 1) return;
    start(&m, s, model, KCP_FORWARD, plan);
    m.a.call.form = 99;
    const int status = v->run(&m.a);
    EXPECT(rep, status == KCP_BAD && strstr(kcp_why(), "form: found 99"),
           "%s %s: status %d, %s", v->stage, v->name, status, kcp_why());
    made_free(&m);
}

static int misuse(struct kcp_report *rep)
{
    struct kcp_plan *plan = small_plan(1), *two = small_plan(2);
    if (!plan || !two) return KCP_NO_MEMORY;
    for (int i = 0; i < kcp_nstages; i++)
        for (int model = 0; model < KCP_MODELS; model++) {
            const struct kcp_stage *s = &kcp_stages[i];
            if (!kcp_stage_takes(s, model)) continue;
            struct made_call m;
            start(&m, s, model, KCP_FORWARD, plan);
            const int status = call_made(&m);
            EXPECT(rep, status == KCP_OK, "%s: %s", s->name, kcp_why());
            made_free(&m);
            wrong_numbers(rep, s, model, plan);
            missing_arrays(rep, s, model, KCP_FORWARD, plan);
            missing_arrays(rep, s, model, KCP_BACKWARD, plan);
            wrong_indices(rep, s, model, plan);
            wrong_relations(rep, s, model, plan, two);
            wrong_variant(rep, s, model, plan);
        }
    kcp_plan_free(plan);
    kcp_plan_free(two);
    return KCP_OK;
}

static int nothing(struct kcp_report *rep)
{
    static const int wraps[4][3] = {
        { INT_MAX, INT_MAX, INT_MAX }, { -1, 1 << 20, 1 << 20 },
        { INT_MIN, INT_MIN, 1 }, { 1 << 16, 1 << 16, 1 << 30 } };
    struct kcp_layer layer = { 0 };
    struct kcp_forward f = { 0 };
    struct kcp_backward b = { 0 };
    struct kcp_conv c = { 0 };
    struct kcp_family family = { 0 };
    struct kcp_exchange x = { 0 };
    struct kcp_halo h = { 0 };
    int value;
    for (int i = 0; i < 2; i++) {
        if (i) kcp_layer_ref(&layer);
        EXPECT(rep, kcp_layer_forward(&layer, &f) == KCP_BAD && kcp_why()[0] &&
               kcp_layer_backward(&layer, &b) == KCP_BAD &&
               kcp_layer_conv(&layer, &c) == KCP_BAD &&
               kcp_layer_family(&layer, &family) == KCP_BAD, "layer %d: sizes 0", i);
    }
    EXPECT(rep, kcp_layer_saved(&layer, (struct kcp_call *)&f) == 0 &&
           kcp_layer_forward_work(&layer, &f) == 0, "sizes 0: bytes");
    /* If sizes are negative or overflow, the byte count is 0 and nothing is written. */
    for (int i = 0; i < 4; i++) {
        char byte = 7;
        struct kcp_forward w = { .T = 1, .NS = wraps[i][0], .NC = wraps[i][0], .R = 1,
            .H = 1, .HV = 1, .K = wraps[i][1], .V = wraps[i][2], .C = 64,
            .save = KCP_SAVE_ALL };
        EXPECT(rep, kcp_saved_bytes(&w) == 0 && byte == 7 &&
               kcp_saved_begin(&byte, sizeof byte, (struct kcp_call *)&w, "w", 8, 8) ==
               KCP_BAD && byte == 7, "sizes %d: %zu bytes", i, kcp_saved_bytes(&w));
    }
    EXPECT(rep, kcp_exchange_run(&x) == KCP_BAD && strstr(kcp_why(), "plan"), "%s",
           kcp_why());
    EXPECT(rep, kcp_halo_run(&h, NULL, NULL) == KCP_BAD, "no plan");
    EXPECT(rep, kcp_check_call("99", KCP_HOST, &f) == KCP_BAD &&
           kcp_enum_value("KCP_NONE", &value) && !kcp_struct_size("kcp_none") &&
           !kcp_form_in_order((enum kcp_form)-1) && !kcp_form_in_order(KCP_FORMS),
           "a stage, name or exchange form that does not exist is accepted");
    return KCP_OK;
}
KCP_CHECK(check_00_misuse) = { "20_clusters", "calls",
    "each stage rejects and names a wrong size, option, array or index", misuse };
KCP_CHECK(check_00_nothing) = { "20_clusters", "calls_nothing",
    "the rest of the interface rejects empty structs and sizes that overflow",
    nothing };

/* ---- the cache of checked calls (ref/core/layer.c), without a GPU */
static int fake_runs, fake_status;

static int fake_run(void *args)
{
    (void)args;
    fake_runs++;
    return fake_status;
}

static int fake_device(struct kcp_device *d)
{
    *d = kcp_device_assumed();
    return KCP_OK;
}

/* Changes member or field i of a call that is in the cache, and returns the status. */
static int changed(const struct kcp_layer *layer, struct made_call *m, int i)
{
    if (i < kcp_nmembers) ++*(int *)(m->a.bytes + kcp_members[i].at);
    else made_set(m, i - kcp_nmembers, NULL);
    return kcp_layer_forward(layer, &m->a.forward);
}

static int cached(struct kcp_report *rep)
{
    static const struct kcp_variant v = { "08_forward", "fake", "", KCP_BF16,
                                          KCP_DEVICE, "any", fake_run, NULL };
    const struct kcp_layer layer = { .storage = KCP_BF16, .where = KCP_DEVICE,
                                     .forward = &v };
    const struct gpu fake = { fake_device, NULL }, *const own = kcp_gpu;
    const struct kcp_stage *s = kcp_stage_find("08");
    const int64_t cu[2] = { 0, 20 };
    struct kcp_plan *plan = small_plan(1), *one = NULL;
    struct made_call m;
    if (!plan || kcp_plan_make(&one, 1, cu, 1, NULL, 0, 8, 3, NULL))
        return KCP_NO_MEMORY;
    kcp_gpu = &fake;
    for (int i = 0; i < kcp_nmembers + s->nfields; i++) {
        start(&m, s, KCP_KDA, KCP_FORWARD, plan);
        EXPECT(rep, !kcp_layer_forward(&layer, &m.a.forward), "%s", kcp_why());
        const int found = changed(&layer, &m, i);
        const int expected = kcp_check_call("08", KCP_DEVICE, &m.a);
        EXPECT(rep, found == expected, "change %d of a call in the cache: status %d, "
               "expected %d", i, found, expected);
        made_free(&m);
    }
    start(&m, s, KCP_KDA, KCP_FORWARD, plan);
    fake_status = KCP_CUDA;
    fake_runs = 0;
    const int failed = kcp_layer_forward(&layer, &m.a.forward);
    EXPECT(rep, failed == KCP_CUDA && fake_runs == 1 && kcp_why()[0],
           "a kernel failed: status %d after %d runs", failed, fake_runs);
    fake_status = KCP_OK;
    plan->digest = one->digest = 0;        /* as in a plan that a program wrote */
    EXPECT(rep, !kcp_layer_forward(&layer, &m.a.forward), "%s", kcp_why());
    m.a.call.plan = one;
    EXPECT(rep, kcp_layer_forward(&layer, &m.a.forward) == KCP_BAD,
           "plans without a digest: a call with another plan's sizes is accepted");
    kcp_gpu = own;
    made_free(&m);
    kcp_plan_free(plan);
    kcp_plan_free(one);
    return KCP_OK;
}
KCP_CHECK(check_00_cached) = { "20_clusters", "calls_cached",
    "a changed call is checked again, and a kernel that fails does not run twice",
    cached };
