/* self_rows.c -- the judge judged: what is wrong in one token alone.
 *
 * Book: CONTRIBUTING.md, "When a limit rises".  Checked by: itself.
 * Next: check.c, row_limit.
 *
 * A token's row has a limit of its own. First slices by hand, of which the limit is
 * known; then chapters of which one token, the one that has the largest row, is off by
 * three hundredths.
 */
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 64, WIDTH = 16, ROW = 10 };
static double by_itself[TOKENS * WIDTH];
static const double *moves(const char *field, int draws) { return by_itself; }

/* One row of a field of ones is `off`; it moves by `own`, the others by `others`. */
struct row {
    const char *what, *stage, *field;
    double off, own, others, alike;
    int known;
    double limit;                       /* 0: the row is within it */
};

static double limit_of(const struct row *x)
{
    const struct kcp_stage *s = stage_find(x->stage);
    static double got[TOKENS * WIDTH], want[TOKENS * WIDTH];
    const struct kcp_call call = { .T = TOKENS, .H = 1, .HV = 1, .K = WIDTH, .V = WIDTH,
                                   .KG = WIDTH, .N = 1, .NS = 1, .R = 1,
                                   .model = x->stage[1] == '6' ? KCP_DPLR : KCP_KDA };
    struct worst w = { 0 };
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        const int here = i / WIDTH == ROW;
        want[i] = 1;
        got[i] = 1 + (here ? x->off : 0);
        by_itself[i] = here ? x->own : x->others;
    }
    for (int i = 0; i < s->nfields; i++) {
        struct slice o = { .stage = s, .field = &s->fields[i], .call = &call,
                           .got = got, .want = want, .all = want, .rms_v = 1,
                           .all_rows = TOKENS, .alike = x->alike,
                           .moved = x->known ? moves : NULL, .judged = KCP_BF16 };
        if (strcmp(s->fields[i].name, x->field)) continue;
        o.nd = shape_dims(&call, s->fields[i].shape, o.dim);
        check_slice(&o, &w);
    }
    return w.err > w.tol ? w.tol : 0;
}

static int rows(struct kcp_report *rep)
{
    const double few = 1 + 1 / sqrt(2 * WIDTH);
    const struct row x[] = {
        { "three times o's", "08", "o", 1.9e-2, 0, 0, 0, 1, 1.8e-2 },
        { "and not less", "08", "o", 1.7e-2, 0, 0, 0, 1, 0 },
        { "three times dv's", "13", "dv", 2.5e-2, 0, 0, 0, 1, 2.4e-2 },
        { "of a family five", "16", "dv", 4.1e-2, 0, 0, 0, 1, 4e-2 },
        { "it moves by itself", "08", "o", 4.5e-2, 8e-3, 0, 0, 1, 3.6e-2 * few },
        { "and is within that", "08", "o", 4e-2, 8e-3, 0, 0, 1, 0 },
        { "others move alone", "08", "o", 1.9e-2, 0, 8e-3, 0, 1, 1.8e-2 },
        { "up to a bound", "08", "o", 7.1e-2, 1, 0, 0, 1, 0 },
        { "which ends", "08", "o", 7.3e-2, 1, 0, 0, 1, 1.8e-2 },
        { "nobody knows", "08", "o", 2.9e-2, 0, 0, 0, 0, 0 },
        { "nobody knows: five", "08", "o", 3.1e-2, 0, 0, 0, 0, 3e-2 },
        { "alike keys", "08", "o", 2.9e-2, 0, 0, 0.9, 1, 0 },
        { "alike keys: five", "08", "o", 3.1e-2, 0, 0, 0.9, 1, 3e-2 },
        { "of what the head may be off", "08", "o", 1e-1, 1, 1, 0.9, 1, 0 } };
    for (int i = 0; i < (int)(sizeof x / sizeof *x); i++)
        EXPECT(rep, fabs(limit_of(&x[i]) - x[i].limit) < 1e-9, "%s: %g, not %g",
               x[i].what, limit_of(&x[i]), x[i].limit);
    return KCP_OK;
}
KCP_CHECK(check_00_rows) = { "00_judge", "rows",
    "what one token's row may be off, by hand", rows };

/* ---- chapters that are off by three hundredths in one row, the largest of head 0 */
static void off_in_one(void *tensor, int64_t T, int64_t heads, int64_t width)
{
    double *x = tensor, most = -1;
    int64_t at = 0;
    for (int64_t t = 0; t < T; t++) {
        double sum = 0;
        for (int64_t i = 0; i < width; i++) sum += pow(x[t * heads * width + i], 2);
        if (sum > most) at = t * heads * width;
        most = fmax(most, sum);
    }
    for (int64_t i = 0; i < width && T; i++) x[at + i] *= 1.03;
}
static int off_04(void *a)
{
    const struct kcp_chunk *c = a;
    const int status = ref_chunk(a);
    off_in_one(c->o, c->T, c->HV, c->V);
    return status;
}
static int off_08(void *a)
{
    const struct kcp_forward *f = a;
    const int status = ref_forward(a);
    off_in_one(f->o, f->T, f->HV, f->V);
    return status;
}
static int off_09(void *a)
{
    const struct kcp_chunk_backward *c = a;
    const int status = ref_chunk_backward(a);
    if (c->dU) off_in_one(c->dU, c->T, c->HV, c->V);
    return status;
}
static int off_13(void *a)
{
    const struct kcp_backward *b = a;
    const int status = ref_backward(a);
    off_in_one(b->dq_raw, b->T, b->H, b->K);
    return status;
}

static int one_row(struct kcp_report *rep)
{
    static const struct { const char *stage, *name; int (*run)(void *); } of[] = {
        { "04", "04_chunk", off_04 }, { "08", "08_forward", off_08 },
        { "09", "09_chunk_backward", off_09 }, { "13", "13_backward", off_13 } };
    static const char *const models[] = { "kda", "gdn" };
    for (int i = 0; i < 8; i++) {
        const char *stage = of[i / 2].stage;
        const struct kcp_variant v = { of[i / 2].name, "off", "", KCP_F64, KCP_HOST,
                                       "any", of[i / 2].run, NULL };
        struct verdict t;
        struct kcase k;
        char words[160], why[120];
        snprintf(words, sizeof words, "live %s H=1 HV=2 K=64 V=64 C=64 lengths=64"
                 " l2norm beta=sigmoid gate=softplus h0 dht", models[i % 2]);
        if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
        judge_case(stage_find(stage), &v, &k, KCP_BF16, &t);
        EXPECT(rep, t.outcome == FAIL && t.worst.tol > 0, "%s %s: one token of 64 is"
               " off by 3e-2: %s, %.1e of %.1e", stage, models[i % 2],
               outcome_name[t.outcome], t.worst.err, t.worst.tol);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_one_row) = { "00_judge", "one_row",
    "one token of 64 that is off by 3e-2, by the limits of bf16", one_row };
