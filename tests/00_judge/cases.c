/* cases.c -- tests the judge's lists of cases and the inputs drawn for cases.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "tests/judge/paths.h"
#include "tests/judge/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is(const struct kcp_stage *s, const char *numbers)
{
    return strstr(numbers, (char[]){ s->name[0], s->name[1], 0 }) != NULL;
}

static int is_model(const struct kcp_stage *s, int m)
{
    enum kcp_model models[KCP_MODELS];
    int n = models_of(s, models);
    while (n > 0 && (int)models[n - 1] != m) n--;
    return n > 0;
}

static int words(struct kcp_report *rep)
{
    for (int i = 0; i < 5 * kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i / 5];
        const int kind = i % 5;
        int n;
        struct kcase *list, back;
        if (kind < 2) list = cases_make(s, kind, 0, 1, 0, &n);
        else list = kind < 4 ? cases_anchors(s, kind - 2, 1, 0, 0, &n)
                             : cases_tall(s, 1, 0, &n);
        char text[600], why[300] = "";
        for (int j = 0; j < n; j++) {
            case_print(&list[j], text, sizeof text);
            const int bad = case_parse(text, &back, why, sizeof why);
            back.id = list[j].id;
            EXPECT(rep, !bad && !memcmp(&back, &list[j], sizeof back), "%s: %s", text,
                   why);
            EXPECT(rep, !inputs_ignore(s, &list[j]) || kind < 2 || kind > 3,
                   "%s ignores word '%s'", s->name, inputs_ignore(s, &list[j]));
        }
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_words) = { "00_judge", "words",
    "case_parse reads each printed case as an equal case, and no stage ignores a word "
    "of its anchors", words };

/* Checks that random cases contain all pairs of form (exchange algorithm) and gate
 * regime, all pairs of form and rank count (1 to 5, 8), and lengths 1, 1023, 1025. */
static int covers(struct kcp_report *rep)
{
    static const char *const stages[] = { "08", "13", "16" };
    const int all = (1 << KCP_FORMS) - 1;
    for (int i = 0; i < 3; i++) {
        const struct kcp_stage *s = stage_find(stages[i]);
        int n, of_regime[REGIMES] = { 0 }, of_ranks[9] = { 0 }, lengths = 0;
        struct kcase *list = cases_make(s, 0, 0, 1, 0, &n);
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            of_regime[list[j].regime] |= 1 << c->form;
            of_ranks[c->R] |= 1 << c->form;
            lengths |= (c->T == 1025) | (c->T == 1023) << 1 | (c->T == 1) << 2;
        }
        for (int k = 0; k <= SATURATED; k++)
            EXPECT(rep, of_regime[k] == all, "%s, regime %s: only forms %x (bits)",
                   s->name, regime_name[k], of_regime[k]);
        for (int R = 1; R <= 8; R += R < 5 ? 1 : 3)
            EXPECT(rep, of_ranks[R] == all, "%s, R = %d: only forms %x (bits)", s->name,
                   R, of_ranks[R]);
        EXPECT(rep, lengths == 7, "%s: length 1, 1023 or 1025 is missing", s->name);
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_covers) = { "00_judge", "covers",
    "the short list of cases has all pairs of form and regime, all pairs of form and "
    "number of ranks, and lengths 1, 1023 and 1025", covers };

/* Returns the largest number of ranks that have tokens of one sequence. */
static int ranks_crossed(const struct kcp_plan *p)
{
    int most = 0;
    for (int i = 0; i < p->S; i++) {
        int ranks = 1;
        for (int j = i + 1; j < p->S && p->seg[j].n == p->seg[i].n; j++)
            ranks += p->seg[j].rank != p->seg[j - 1].rank;
        if (ranks > most) most = ranks;
    }
    return most;
}

/* Returns 1 if over 1e-2 of a sequence's state reaches a fourth rank or, with `wide`
 * (tensor-core sizes), a third rank in a case with at least four chunks per rank. */
static int is_alive(const struct kcp_stage *s, const struct kcase *k, int wide)
{
    const struct kcp_stage *forward = is(s, "13") ? stage_find("08") : s;
    struct kcp_plan *p = k->call.R > 2 ? case_plan(k, k->call.R) : NULL;
    int crosses = p && k->regime == LIVE && ranks_crossed(p) > (wide ? 2 : 3);
    for (int r = 0; p && r < k->call.R && wide; r++) crosses &= p->ctx[r].NC > 3;
    const struct expected *e =
        crosses ? expected_of(forward, k, KCP_FORWARD, KCP_F64, p) : NULL;
    kcp_plan_free(p);
    return e && e->alive >= 1e-2;
}

static int size_index(const struct kcp_call *c)
{
    static const int sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                    { 128, 64 } };
    int at = 0;
    while (at < 4 && (sizes[at][0] != c->K || sizes[at][1] != c->V)) at++;
    return at < 4 ? at : -1;
}

static int crosses(struct kcp_report *rep)
{
    static const char *const stages[] = { "08", "13", "15", "16" };
    for (int i = 0; i < 8; i++) {
        const struct kcp_stage *s = stage_find(stages[i / 2]);
        const int wide = i % 2;
        int n, alive[KCP_MODELS][KCP_FORMS + 4] = { { 0 } };    /* forms or sizes */
        int kept = 0;
        if (wide && is(s, "15")) continue;
        struct kcase *list = cases_anchors(s, wide, 1, 0, 0, &n);
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            const int at = wide ? size_index(c) : (int)c->form;
            const int reuses = c->reuse_M && c->form == KCP_ALL_GATHER;
            if (at < 0 || (alive[c->model][at] && (kept || !reuses))) continue;
            if (!is_alive(s, &list[j], wide)) continue;
            alive[c->model][at] = 1;
            kept |= reuses;
        }
        for (int m = 0; m < KCP_MODELS; m++)
            for (int at = 0; at < (wide ? 4 : KCP_FORMS) && is_model(s, m); at++)
                EXPECT(rep, alive[m][at], "%s, %s, %s %d: no case has a state that "
                       "reaches the last rank", s->name, model_name[m],
                       wide ? "size" : "form", at);
        EXPECT(rep, kept || wide || !is(s, "13"), "no case with reuse_M has a state "
               "that reaches the last rank");
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_crosses) = { "00_judge", "crosses",
    "each form and model has a case whose state reaches the fourth rank; each model "
    "and tensor-core size has a case whose state reaches the third rank", crosses };

/* ---- each path has a case, on the type of GPU in bench/results */
static int reaches(const struct kcp_path *p, const struct listed *l, int n, int again)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < l->reached[i].rows; j++)
            if (l->reached[i].row[j] == p && (!again || l->cases[i].again)) return 1;
    return 0;
}

static int reached(struct kcp_report *rep)
{
    const struct options o = { .seed = 1 };
    int drawn = 0;
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        struct kcp_device d = kcp_device_assumed();
        if (!strchr(p->arch, '+')) sscanf(p->arch, "sm_%d", &d.arch);
        const struct kcp_stage *s =
            stage_find(paths_judged_by(p, p->stage) ? p->stage : "13");
        const char *kernel = paths_reached_by(p, s->name);
        const int host = !strcmp(p->arch, "host");
        const struct listed *l = paths_list(s->name, kernel, p->storage, &d, &o);
        struct kcase k;
        int few = 0;
        if (case_for_path(s, kernel, p, &d, &o, 3000, 0, &k))
            EXPECT(rep, k.call.K >= 16 && k.call.V >= 16 && k.call.C >= 16,
                   "path %s: its first case has K=%d V=%d C=%d, expected 16 or more",
                   p->name, k.call.K, k.call.V, k.call.C);
        EXPECT(rep, reaches(p, l, l->n, 0), "path %s: no case reaches it", p->name);
        EXPECT(rep, host || reaches(p, l, l->n, 1), "path %s: none of its cases is "
               "repeated", p->name);
        while (few < l->n && l->cases[few].id < 3000) few++;
        drawn += !reaches(p, l, few, 0);
    }
    EXPECT(rep, drawn > 0, "random cases and anchors reach every path, so cases made "
           "for a path are not tested");
    return KCP_OK;
}
KCP_CHECK(check_00_reached) = { "00_judge", "reached",
    "every path has a case that reaches it on the GPU of bench/results, or on a GPU of "
    "the path's own architecture", reached };

static int enough(struct kcp_report *rep)
{
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_variant *v[256];
        const int n = kcp_variants(kcp_stages[i].name, NULL, v, 256);
        int mutants = 0, twins = 0;
        for (int j = 0; j < n; j++) {
            mutants += is_mutant(v[j]);
            twins += !strncmp(v[j]->name, "twin", 4);
        }
        EXPECT(rep, mutants >= 5 && twins >= 1, "%s: found %d mutants and %d twins, "
               "expected at least 5 and 1", kcp_stages[i].name, mutants, twins);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_enough) = { "00_judge", "enough",
    "every stage has 5 mutants or more, and a twin (code without mistakes)", enough };

/* ---- words such as "alike" change the inputs of each stage that reads them */
/* Returns a hash of the inputs, or 0 if the stage rejects a word of the case's text. */
static uint64_t hash_inputs(const struct kcp_stage *s, const char *words)
{
    struct tensor_set b = { 0 };
    struct kcase k;
    char why[200];
    uint64_t h = 0;
    if (case_parse(words, &k, why, sizeof why) || inputs_ignore(s, &k)) return 0;
    inputs_draw(&b, &k, s, KCP_F64);
    for (int i = 0; i < b.n; i++)
        for (int64_t j = 0; j < b.t[i].n && b.t[i].store != KCP_I32; j++)
            h = 31 * h + ((const uint64_t *)b.t[i].p)[j];
    tensor_set_free(&b);
    return h;
}

static int unlike(struct kcp_report *rep)
{
    static const char *const words[] = { "", "alike=0.9", "null", "plain", "big",
                                         "exact" };
    for (int i = 0; i < KCP_MODELS * kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i / KCP_MODELS];
        const int model = i % KCP_MODELS;
        uint64_t plain = 0;
        for (int j = 0; j < 6 && is_model(s, model); j++) {
            char text[200];
            snprintf(text, sizeof text, "live %s HV=2 K=8 V=6 C=16 D=3 lengths=60 %s",
                     model_name[model], words[j]);
            const uint64_t hash = hash_inputs(s, text);
            if (!j) plain = hash;
            EXPECT(rep, j ? hash != plain : hash > 0, "%s: '%s' changes no input",
                   s->name, text);
        }
    }
    return KCP_OK;
}
KCP_CHECK(check_00_unlike) = { "00_judge", "unlike",
    "each of the words 'alike', 'null', 'plain', 'big' and 'exact' changes a case's "
    "inputs or is rejected", unlike };

/* ---- share of a state that remains after six tokens. Each key is the first unit
 * vector, so beta = 1 removes one of the state's three rows */
static double alive_with(double gate, double beta)
{
    const struct { const char *name, *shape; double is; } rows[] = {
        { "q", "T H K", 0 }, { "k", "T H K", 0 }, { "g", "T HV KG", gate },
        { "beta", "T HV", beta } };
    struct kcase k;
    char why[160];
    struct tensor_set b = { 0 };
    case_parse("live kda H=1 HV=2 K=3 V=2 C=4 R=2 lengths=12", &k, why, sizeof why);
    struct kcp_plan *p = case_plan(&k, 2);
    for (int j = 0; j < 4; j++) {
        struct tensor *t = tensor_add(&b, rows[j].name, rows[j].shape, KCP_ACC,
                                      &k.call);
        for (int64_t i = 0; i < t->n; i++)
            ((double *)t->p)[i] = j == 1 ? i % 3 == 0 : rows[j].is;
    }
    const double alive = alive_state(&b, stage_find("01"), &k, p);
    kcp_plan_free(p);
    tensor_set_free(&b);
    return alive;
}

static int alive_by_hand(struct kcp_report *rep)
{
    const double all = alive_with(0, 0), half = alive_with(log(0.5), 0),
                 two = alive_with(0, 1);
    EXPECT(rep, fabs(all - 1) < 1e-12, "no decay: found share %g, expected 1", all);
    EXPECT(rep, fabs(half - pow(0.5, 6)) < 1e-12, "six decays by 0.5: found share %g, "
           "expected 1/64", half);
    EXPECT(rep, fabs(two - sqrt(2.0 / 3)) < 1e-12, "one of three rows erased: found "
           "share %g, expected sqrt(2/3)", two);
    return KCP_OK;
}
KCP_CHECK(check_00_alive_by_hand) = { "00_judge", "alive_by_hand",
    "in three known cases the computed share of the state that remains is correct",
    alive_by_hand };

/* ---- relative change of expected outputs when inputs are rounded once more */
static double moved_by(const struct expected *x, const char *field, int draws)
{
    const struct tensor *want = tensor_find(&x->want, field);
    const double *by = expected_moved(field, draws);
    double off = 0, own = 0;
    for (int64_t i = 0; by && i < want->n; i++) {
        off += by[i] * by[i];
        own += ((double *)want->p)[i] * ((double *)want->p)[i];
    }
    if (!by) return NAN;
    return own > 0 ? sqrt(off / own) : 0;
}

static const struct expected *expected_03(const char *more, struct kcp_plan **p)
{
    struct kcase k;
    char words[200], why[200];
    snprintf(words, sizeof words, "live kda H=1 HV=2 K=64 V=64 C=64 lengths=150 h0 "
             "beta=sigmoid %s", more);
    case_parse(words, &k, why, sizeof why);
    *p = case_plan(&k, 1);
    return expected_of(stage_find("03"), &k, KCP_FORWARD, KCP_BF16, *p);
}

static int conditioned(struct kcp_report *rep)
{
    struct kcp_plan *p;
    const struct expected *x = expected_03("", &p);
    const double plain = moved_by(x, "w", MOVED_DRAWS);
    EXPECT(rep, plain > 1e-4 && plain < 2e-3, "independent keys: w changes by %.1e, "
           "expected 1e-4 to 2e-3", plain);
    kcp_plan_free(p);
    x = expected_03("alike=0.99", &p);
    const double first = moved_by(x, "w", 1), last = moved_by(x, "w", MOVED_DRAWS);
    EXPECT(rep, last > 1.5 * plain && last < 2e-2 && first < 0.6 * last,
           "alike keys: w changes by %.1e (one draw: %.1e), expected %.1e to 2e-2 (one "
           "draw: under 0.6 times the change)", last, first, 1.5 * plain);
    kcp_plan_free(p);
    return KCP_OK;
}
KCP_CHECK(check_00_conditioned) = { "00_judge", "conditioned",
    "one more rounding of the inputs changes w more with alike keys than with "
    "independent keys, and one draw shows under 0.6 of the full change", conditioned };
