/* self_inputs.c -- tests the judge's inputs, alive states, and effects of rounding.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.
 * Next: self_limits.c. */
#include "paths.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words of a case such as "alike" must change the inputs of chapters 15 and 16 */
enum { K = 8 };

static int draw(struct tensor_set *b, const char *stage, const char *model,
                const char *more)
{
    struct kcase k;
    char text[200], why[200];
    snprintf(text, sizeof text, "live %s HV=2 K=8 V=6 C=16 D=3 lengths=60 %s", model,
             more);
    if (case_parse(text, &k, why, sizeof why)) return KCP_BAD;
    return inputs_draw(b, &k, stage_find(stage), KCP_F64);
}

static double dot(const double *x, const double *y)
{
    double sum = 0;
    for (int i = 0; i < K; i++) sum += x[i] * y[i];
    return sum;
}

/* Of rows: mean cosine of neighbours, largest length, number of null rows. */
struct rows { double cosine, longest; int none; };

static struct rows rows_of(const struct tensor *t)
{
    const double (*x)[K] = t->p;
    const int64_t n = t->n / K;
    struct rows r = { 0 };
    for (int64_t i = 0; i < n; i++) {
        const double own = dot(x[i], x[i]);
        r.none += own < 1e-20;
        r.longest = fmax(r.longest, sqrt(own));
        if (i) r.cosine += dot(x[i], x[i - 1]) / sqrt(own * dot(x[i - 1], x[i - 1]) +
                                                      1e-30) / (double)(n - 1);
    }
    return r;
}

static int exactly(const struct tensor *t, double x)
{
    int n = 0;
    for (int64_t i = 0; i < t->n; i++) n += ((double *)t->p)[i] == x;
    return n;
}

static int unlike(struct kcp_report *rep)
{
    static const struct { const char *stage, *model, *rows; } read[] = {
        { "15", "kda", "k" }, { "16", "dplr", "k" }, { "16", "dplr", "a" },
        { "16", "gdn2", "k" }, { "16", "gla", "k" } };
    static const struct { const char *stage, *model, *name; double is; int n; }
        exact[] = { { "16", "gdn2", "b", 0, 320 }, { "16", "gdn2", "b", 1, 320 },
          { "16", "gdn2", "omega", 0, 240 }, { "16", "gdn2", "omega", 1, 240 },
          { "15", "kda", "beta_base", 1e3, 40 } };
    static const char *const refused[][3] = {
        { "14", "live alike=0.9", "alike" }, { "16", "gla exact", "exact" },
        { "15", "kda spike lb=-1", "lb" },   { "14", "live big", "big" } };
    for (int i = 0; i < 5; i++) {
        struct tensor_set b = { 0 };
        draw(&b, read[i].stage, read[i].model, "alike=0.9");
        struct rows r = rows_of(tensor_find(&b, read[i].rows));
        EXPECT(rep, fabs(r.cosine - 0.9) < 0.05 && r.longest < 1.001,
               "%s %s: cosine %g", read[i].model, read[i].rows, r.cosine);
        draw(&b, read[i].stage, read[i].model, "null big");
        r = rows_of(tensor_find(&b, read[i].rows));
        EXPECT(rep, r.none > 5 && fabs(*(double *)tensor_find(&b, "v")->p) > 10,
               "%s %s: %d null rows, or v is not large", read[i].model, read[i].rows,
               r.none);
        draw(&b, read[i].stage, read[i].model, "plain");
        r = rows_of(tensor_find(&b, read[i].rows));
        EXPECT(rep, r.longest > 1.1, "%s %s: longest row %g", read[i].model,
               read[i].rows, r.longest);
        draw(&b, exact[i].stage, exact[i].model, "exact");
        const int n = exactly(tensor_find(&b, exact[i].name), exact[i].is);
        EXPECT(rep, n == exact[i].n, "%s: %d are %g", exact[i].name, n, exact[i].is);
        tensor_set_free(&b);
    }
    for (int i = 0; i < 4; i++) {
        struct kcase k;
        char why[200];
        case_parse(refused[i][1], &k, why, sizeof why);
        const char *word = inputs_ignore(stage_find(refused[i][0]), &k);
        EXPECT(rep, word && !strcmp(word, refused[i][2]), "%s of %s is accepted",
               refused[i][1], refused[i][0]);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_unlike) = { "00_judge", "unlike",
    "alike, null, plain, big and exact change inputs of 15 and 16, or are rejected",
    unlike };

/* ---- share of a state left after six tokens. Each key is the first unit vector, so
 * beta = 1 removes one of the state's three rows */
static double alive_with(double gate, double beta)
{
    const struct { const char *name, *shape; double is; } rows[] = {
        { "g", "T HV KG", gate }, { "beta", "T HV", beta } };
    struct kcase k;
    char why[160];
    struct tensor_set b = { 0 };
    case_parse("live kda H=1 HV=2 K=3 V=2 C=4 R=2 lengths=12", &k, why, sizeof why);
    struct kcp_plan *p = case_plan(&k, 2);
    struct tensor *t = tensor_add(&b, "k", "T H K", KCP_ACTV, &k.call);
    for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = i % 3 == 0;
    for (int j = 0; j < 2; j++) {
        t = tensor_add(&b, rows[j].name, rows[j].shape, KCP_ACC, &k.call);
        for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = rows[j].is;
    }
    const double alive = alive_far(&b, &k, p);
    kcp_plan_free(p);
    tensor_set_free(&b);
    return alive;
}

static int alive_by_hand(struct kcp_report *rep)
{
    /* Frees nonzero memory, which malloc then returns to alive_far: if alive_far reads
     * memory that it has not written, the result is wrong. */
    double *used = malloc(9 * sizeof *used);
    for (int i = 0; used && i < 9; i++) used[i] = 1e3;
    free(used);
    const double all = alive_with(0, 0), half = alive_with(log(0.5), 0),
                 two = alive_with(0, 1);
    EXPECT(rep, fabs(all - 1) < 1e-12, "no decay: %g", all);
    EXPECT(rep, fabs(half - pow(0.5, 6)) < 1e-12, "six decays by 0.5: %g", half);
    EXPECT(rep, fabs(two - sqrt(2.0 / 3)) < 1e-12, "one of 3 rows erased: %g", two);
    return KCP_OK;
}
KCP_CHECK(check_00_alive_by_hand) = { "00_judge", "alive_by_hand",
    "remaining share of a state, for cases with known results", alive_by_hand };

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

/* Checks that rounding the inputs changes outputs more for alike than for independent
 * keys, and that each draw increases expected_moved. */
static int conditioned(struct kcp_report *rep)
{
    struct kcp_plan *p;
    const struct expected *x = expected_03("", &p);
    const double plain = moved_by(x, "w", MOVED_DRAWS);
    EXPECT(rep, plain > 1e-4 && plain < 2e-3, "independent keys: %.1e", plain);
    kcp_plan_free(p);
    x = expected_03("alike=0.99", &p);
    double last = 0, first = 0;
    for (int draws = 1; draws <= MOVED_DRAWS; draws++) {
        const double by = moved_by(x, "w", draws);
        EXPECT(rep, by > 1.01 * last, "draw %d: %g, before %g", draws, by, last);
        last = by;
        if (draws == 1) first = by;
    }
    EXPECT(rep, last > 1.5 * plain && last < 2e-2 && first < 0.6 * last,
           "alike keys: %.1e, after one draw %.1e", last, first);
    kcp_plan_free(p);
    return KCP_OK;
}
KCP_CHECK(check_00_conditioned) = { "00_judge", "conditioned",
    "rounding inputs once more changes w more if keys are alike; each draw increases "
    "the estimate", conditioned };

/* Checks that a layer computed by chapters with rounded outputs is close to the token
 * recurrence: each output's relative change must be 0, or between 1e-9 and `most`. */
static void moves(struct kcp_report *rep, const struct kcp_stage *s,
                  const struct kcase *k, double most)
{
    const enum kcp_pass pass = has_backward(s) ? KCP_BACKWARD : KCP_FORWARD;
    struct kcp_plan *p = case_plan(k, k->call.R);
    const struct expected *x = expected_of(s, k, pass, KCP_F32, p);
    const struct kcp_field *f;
    char words[1024];
    case_print(k, words, sizeof words);
    for (int i = 0; x && (f = trial_field(s, i)); i++) {
        if (field_in(f) || !tensor_find(&x->want, f->name)) continue;
        const double moved = moved_by(x, f->name, MOVED_DRAWS);
        EXPECT(rep, !moved || (moved > 1e-9 && moved < most), "%s %s: %g: %s", s->name,
               f->name, moved, words);
    }
    kcp_plan_free(p);
}

static int moved(struct kcp_report *rep)
{
    static const char *const sizes = "R=3 H=2 HV=4 K=8 V=6 C=16 lengths=0,40,0,61,1 "
                                     "h0 dht l2norm beta=sigmoid gate=softplus";
    for (int i = 0; i < 2; i++) {
        const struct kcp_stage *s = stage_find(i ? "13" : "08");
        const struct kcp_variant v = { s->name, "ref", "the reference", KCP_F32,
                                       KCP_HOST, "any", s->ref, NULL };
        const struct options o = { .seed = 7 };
        int n = 0;
        for (int m = 0; m < 4; m++) {
            struct kcase k;
            char words[200], why[200];
            snprintf(words, sizeof words, "live %s %s%s", model_name[m & 1], sizes,
                     m > 1 ? " layout=vk" : "");
            case_parse(words, &k, why, sizeof why);
            moves(rep, s, &k, 1e-4);
        }
        /* The bound for drawn cases is wider, because terms may cancel. */
        struct kcase *list = cases_of(s, &v, &o, NULL, &n);
        for (int j = 0; j < n; j++)
            if (list[j].call.T < 100) moves(rep, s, &list[j], 1e-2);
        EXPECT(rep, n > 40, "%d cases of %s", n, s->name);
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_moved) = { "00_judge", "moved",
    "rounding between the chapters of a layer changes its outputs slightly",
    moved };
