/* self_verdicts.c -- the judge judged: what a verdict says of a case, beside its word.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.  Next: verdict.c.
 *
 * Mutation testing left these alive: which of two passes is the worse one, the map of a
 * failure, how much of a state is alive, what few numbers are allowed by chance, and
 * the last line of who asked for what ran nowhere.
 */
#include "failure.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the worse of two passes: y and dx are off by these parts of their limits */
static double forward_off, backward_off;

static int scaled_conv(void *args)
{
    struct kcp_conv *a = args;
    const int status = ref_conv(args), back = a->pass == KCP_BACKWARD;
    double *x = back ? a->dx : a->y;
    const double by = back ? backward_off * 8e-3 : forward_off * 5e-3;
    for (int64_t i = 0; i < a->T * a->D && !status; i++) x[i] *= 1 + by;
    return status;
}

static int judged_on(const char *stage, int (*run)(void *), const char *words,
                     struct verdict *t)
{
    const struct kcp_stage *s = stage_find(stage);
    const struct kcp_variant v = { s->name, "mutant_scaled", "", KCP_F64, KCP_HOST,
                                   "any", run, NULL };
    struct kcase k;
    char why[160];
    memset(t, 0, sizeof *t);
    if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
    return judge_case(s, &v, &k, KCP_BF16, t);
}

static int worse(struct kcp_report *rep)
{
    static const double off[][2] = { { 0.3, 0.6 }, { 0.6, 0.3 }, { 0.5, 0.55 },
                                     { 0.55, 0.5 } };
    for (int i = 0; i < 4; i++) {
        struct verdict t;
        forward_off = off[i][0];
        backward_off = off[i][1];
        const int status = judged_on("14", scaled_conv, "live kda H=1 HV=2 K=8 V=6"
                                     " C=16 lengths=90", &t);
        const double over = t.worst.err / t.worst.tol;
        const double most = fmax(off[i][0], off[i][1]);
        EXPECT(rep, !status && t.outcome == PASS && fabs(over - most) < 0.02,
               "forward %.2f, backward %.2f of their limits: the worst is %.3f (%s)",
               off[i][0], off[i][1], over, t.worst.field);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_worse) = { "00_judge", "worse",
    "of two passes the worse one is shown, as a part of its own limit", worse };

/* ---- the map: chunks 1 and 3 are wrong, by ten and by a thousand limits and more */
static int wrong_chunks(void *args)
{
    struct kcp_chunk *a = args;
    const int status = ref_chunk(args);
    double *o = a->o;
    const int64_t row = (int64_t)a->HV * a->V;
    for (int64_t t = 0; t < a->T && !status; t++)
        for (int64_t i = t * row; i < (t + 1) * row; i++) {
            if (t / 16 == 1) o[i] *= 1 + 30 * 5e-3;
            if (t / 16 == 3) o[i] *= 1 + 3000 * 5e-3;
        }
    return status;
}

static int mapped(struct kcp_report *rep)
{
    struct verdict t;
    const int status = judged_on("04", wrong_chunks, "live kda H=1 HV=2 K=8 V=6 C=16"
                                 " lengths=90", &t);
    EXPECT(rep, !status && t.outcome == FAIL && strstr(t.map, "by chunk") &&
           strstr(t.map, "chunks  .2.4..\n"), "the map of chunks 1 and 3: %s", t.map);
    return KCP_OK;
}
KCP_CHECK(check_00_map) = { "00_judge", "map",
    "a failure's map shows which chunks are wrong, and by how many powers of ten",
    mapped };

/* ---- alive: with beta 0 a state decays by its gates alone */
static double alive_with(double gate, double beta)
{
    struct kcase k;
    char why[160];
    struct tensor_set b = { 0 };
    if (case_parse("live kda H=1 HV=2 K=3 V=2 C=4 R=2 lengths=12", &k, why, sizeof why))
        return NAN;
    struct kcp_plan *p = case_plan(&k, 2);
    struct tensor *t = tensor_add(&b, "k", "T H K", KCP_ACTV, &k.call);
    for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = i % 3 == 0;
    t = tensor_add(&b, "g", "T HV KG", KCP_ACC, &k.call);
    for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = gate;
    t = tensor_add(&b, "beta", "T HV", KCP_ACTV, &k.call);
    for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = beta;
    const double alive = p ? alive_far(&b, &k, p) : NAN;
    kcp_plan_free(p);
    tensor_set_free(&b);
    return alive;
}

/* Six tokens lie before the cut. Each key is the first unit vector: beta 1 takes that
 * row of the state, and leaves two of three. */
static int alive_by_hand(struct kcp_report *rep)
{
    /* Memory that was used before: what nobody wrote is no 0. */
    double *used = malloc(9 * sizeof *used);
    for (int i = 0; used && i < 9; i++) used[i] = 1e3;
    free(used);
    const double all = alive_with(0, 0), half = alive_with(log(0.5), 0),
                 two = alive_with(0, 1);
    EXPECT(rep, fabs(all - 1) < 1e-12, "nothing forgets: %g", all);
    EXPECT(rep, fabs(half - pow(0.5, 6)) < 1e-12, "gates of a half, six: %g", half);
    EXPECT(rep, fabs(two - sqrt(2.0 / 3)) < 1e-12, "one of three rows taken: %g", two);
    return KCP_OK;
}
KCP_CHECK(check_00_alive_by_hand) = { "00_judge", "alive_by_hand",
    "how much of a state is alive, where it is known", alive_by_hand };

/* ---- twelve numbers may be off by a fifth more than many; sixty-four may not. What
 * moves by itself may be off by three times as much, up to a bound */
enum { NUMBERS = 64 * 16 };
static double by_itself[NUMBERS];
static double so_far[NUMBERS];
static int most_draws;
static const double *moves(const char *field, int draws)
{
    most_draws = draws > most_draws ? draws : most_draws;
    for (int i = 0; i < NUMBERS; i++)
        so_far[i] = by_itself[i] * sqrt((double)draws / MOVED_DRAWS);
    return so_far;
}

struct limit {
    int tokens, width;
    enum kcp_storage judged;
    double off, moves;
    int known;
    const char *field;             /* of 13; NULL: o of 08 */
};

static double limit_of(const struct limit *x)
{
    const struct kcp_stage *s = stage_find(x->field ? "13" : "08");
    static double got[NUMBERS], want[NUMBERS];
    const struct kcp_call call = { .T = x->tokens, .H = 1, .HV = 1, .K = x->width,
                                   .V = x->width, .KG = x->width, .N = 1, .NS = 1,
                                   .R = 1 };
    struct worst w = { 0 };
    for (int i = 0; i < NUMBERS; i++) {
        want[i] = 1;
        got[i] = 1 + x->off;
        by_itself[i] = x->moves;
    }
    for (int i = 0; i < s->nfields; i++) {
        struct slice o = { .stage = s, .field = &s->fields[i], .call = &call,
                           .got = got, .want = want, .all = want, .rms_v = 1,
                           .all_rows = x->tokens, .moved = x->known ? moves : NULL,
                           .judged = x->judged };
        if (strcmp(s->fields[i].name, x->field ? x->field : "o")) continue;
        o.nd = shape_dims(&call, s->fields[i].shape, o.dim);
        check_slice(&o, &w);
    }
    return w.tol;
}

static int limits(struct kcp_report *rep)
{
    const double few = 1 + 1 / sqrt(24);
    static const char *const what[] = { "twelve numbers", "a bench row's twelve",
        "sixty-four numbers", "what moves", "what moves by much", "off by more",
        "fp32 that moves", "fp32 that moves by much", "fp32 off by more",
        "a bench row's dA_log", "a bench row's dg_raw", "longer sums in fp32",
        "a bench row's ddt_bias", "one token", "two tokens", "one token off by more" };
    enum { ROWS = sizeof what / sizeof *what };
    const struct limit x[] = {
        { 3, 4, KCP_BF16, 6.3e-3, 0, 1, NULL },
        { 3, 4, KCP_BF16, 6.3e-3, 0, 0, NULL },
        { 4, 16, KCP_BF16, 6.3e-3, 0, 1, NULL },
        { 4, 16, KCP_BF16, 6.3e-3, 3e-3, 1, NULL },
        { 4, 16, KCP_BF16, 6.3e-3, 1e-1, 1, NULL },
        { 4, 16, KCP_BF16, 2.5e-2, 1e-1, 1, NULL },
        { 4, 16, KCP_F32, 3e-5, 2e-6, 1, NULL },
        { 4, 16, KCP_F32, 3.9e-4, 1e-3, 1, NULL },
        { 4, 16, KCP_F32, 4.1e-4, 1e-3, 1, NULL },
        { 64, 16, KCP_BF16, 5e-2, 0, 0, "dA_log" },
        { 64, 16, KCP_BF16, 5e-2, 0, 0, "dg_raw" },
        { 4, 64, KCP_F32, 3e-5, 2e-6, 1, NULL },
        { 64, 16, KCP_BF16, 5e-2, 0, 0, "ddt_bias" },
        { 1, 16, KCP_BF16, 2.5e-2, 1e-1, 1, NULL },
        { 2, 16, KCP_BF16, 2.5e-2, 1e-1, 1, NULL },
        { 1, 16, KCP_BF16, 1e-1, 1e-1, 1, NULL } };
    const double want[] = { 6e-3 * few, 6e-3 * few, 6e-3, 9e-3, 2.4e-2, 6e-3,
                            1.8e-5, 4e-4, 1e-5, 2e-2 * (1 + 3 / sqrt(2)), 2e-2,
                            2.4e-5, 2e-2 * (1 + 3 / sqrt(32)), 9.6e-2, 4.8e-2, 6e-3 };
    for (int i = 0; i < ROWS; i++)
        EXPECT(rep, fabs(limit_of(&x[i]) - want[i]) < 1e-9, "%s: %g, not %g", what[i],
               limit_of(&x[i]), want[i]);
    /* Draws are made until a limit is far enough off, and none where none may help. */
    const int draws[] = { 1, 0, 8, 8, 1, 0, 8, 8, 0, 0, 0, 8, 0, 1, 1, 0 };
    for (int i = 0; i < ROWS; i++) {
        most_draws = 0;
        limit_of(&x[i]);
        EXPECT(rep, most_draws == draws[i], "%s: %d draws", what[i], most_draws);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_by_chance) = { "00_judge", "by_chance",
    "the limit of a slice of few numbers knows that their RMS is uncertain; of one "
    "that moves by itself it is higher, up to a bound", limits };

/* ---- the closing lines: whose asking came to nothing is told why */
static int closes_with(const struct kcp_report *r, const char *what, int *status)
{
    char text[2000] = "";
    FILE *f = tmpfile();
    const int keep = dup(1);
    fflush(stdout);
    if (!f || keep < 0 || dup2(fileno(f), 1) < 0) return 0;
    *status = report_close(r, 0);
    fflush(stdout);
    dup2(keep, 1);
    close(keep);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return strstr(text, what) != NULL;
}

static int closes(struct kcp_report *rep)
{
    static const struct {
        struct kcp_report of;
        const char *says;
        int status;
    } row[] = {
        { { .na = 1, .asked = 1 }, "takes none of the cases", 1 },
        { { .skip = 1, .asked = 1 }, "takes none of the cases", 1 },
        { { .asked = 1 }, "no such stage", 1 },
        { { .pass = 1, .na = 1 }, "INCOMPLETE", 0 },
        { { .pass = 1 }, "1 passed, 0 failed", 0 } };
    for (int i = 0; i < 5; i++) {
        int status = -1;
        const int said = closes_with(&row[i].of, row[i].says, &status);
        EXPECT(rep, said && status == row[i].status, "row %d: status %d, '%s' is %s", i,
               status, row[i].says, said ? "said" : "not said");
    }
    return KCP_OK;
}
KCP_CHECK(check_00_closes) = { "00_judge", "closes",
    "who asked for what ran nowhere is told why, and gets status 1", closes };

/* ---- what a record promises: a built-in's pass that is n/a where the other is not */
static int held(const char *shapes, int is_object, struct verdict t)
{
    const struct kcp_variant v = { "07_merge", "half", "", KCP_F64, KCP_HOST, shapes,
                                   NULL, NULL };
    hold_to_record(&v, is_object, &t);
    return t.outcome;
}

static int promises(struct kcp_report *rep)
{
    static const struct {
        const char *shapes;
        int is_object;
        struct verdict of;
        enum outcome is;
    } row[] = {
        { "any shape", 0, { .outcome = PASS }, PASS },
        { "any shape", 0, { .outcome = PASS, .no_backward = 1 }, FAIL },
        { "K up to 8", 0, { .outcome = PASS, .no_forward = 1 }, FAIL },
        { "K up to 8", 1, { .outcome = PASS, .no_forward = 1 }, PASS },
        { "forward; K up to 8", 0, { .outcome = PASS, .no_backward = 1 }, PASS },
        { "forward; K up to 8", 0, { .outcome = PASS, .no_forward = 1 }, FAIL },
        { "backward; any", 0, { .outcome = MARGINAL, .no_forward = 1 }, MARGINAL },
        { "any shape", 1, { .outcome = NA, .refused = 1 }, FAIL },
        { "any shape", 0, { .outcome = NA, .refused = 1 }, FAIL },
        { "any shape", 0, { .outcome = NA }, NA },
        { "K up to 8", 0, { .outcome = NA, .refused = 1 }, NA } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const int is = held(row[i].shapes, row[i].is_object, row[i].of);
        EXPECT(rep, is == (int)row[i].is, "row %zu: %s", i, outcome_name[is]);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_promises) = { "00_judge", "promises",
    "n/a against the record, or in one pass of a variant of ours, is a failure",
    promises };

/* The same through all that judges: a fold that has forgotten its backward. */
static int forgets(void *args)
{
    const struct kcp_merge *a = args;
    return a->pass == KCP_BACKWARD ? KCP_NA : ref_merge(args);
}

static int forgotten(struct kcp_report *rep)
{
    const struct kcp_variant v = { "07_merge", "forgets", "", KCP_F64, KCP_HOST,
                                   "V up to 8", forgets, NULL };
    struct kcp_report own = { .quiet = 1, .fail = 20 };        /* it says no line */
    struct kcase k;
    char why[160];
    if (case_parse("live kda H=1 HV=2 K=4 V=4 C=16 lengths=20", &k, why, sizeof why))
        return KCP_BAD;
    const struct options o = { .seed = 1, .quiet = 1, .alone = &k, .nalone = 1 };
    const int keep = dup(1), off = isolation_off;
    fflush(stdout);
    isolation_off = 1;
    const int silent = freopen("/dev/null", "w", stdout) != NULL;
    const int status = judge_variant(stage_find(v.stage), &v, &o, &own);
    fflush(stdout);
    dup2(keep, 1);
    close(keep);
    isolation_off = off;
    EXPECT(rep, silent && !status && own.fail == 21 && !own.pass &&
           strstr(own.first, "backward is n/a where forward is not"),
           "a backward that became n/a: %d failures, %s", own.fail - 20, own.first);
    return KCP_OK;
}
KCP_CHECK(check_00_forgotten) = { "00_judge", "forgotten",
    "a built-in whose backward begins to answer n/a fails", forgotten };
