/* self_limits.c -- tests the errors and limits that the judge computes for slices.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "isolation.h"
#include "tolerance.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 70 * 64 };
static double moves[NUMBERS], so_far[NUMBERS];

static const double *moved(const char *field, int draws)
{
    (void)field;
    for (int i = 0; i < NUMBERS; i++)
        so_far[i] = moves[i] * sqrt((double)draws / MOVED_DRAWS);
    return so_far;
}

/* A slice of field `field`. All expected numbers are `want`. Computed numbers are
 * `want` + `off` in the first `rows` rows (only in row 10 if `rows` is -1), and `want`
 * in other rows. All numbers of the whole tensor are `all`. One more rounding changes
 * each number by `moves`, but row 10 by `row_moves` if `rows` is -1. The judge must
 * find error `err` and limit `tol`; a 0 in `err` or `tol` is not tested. If `rows` is
 * -1 and `tol` is 0, the judge must accept the slice. */
struct made {
    const char *what, *stage, *field;
    int tokens, of, width, rows;
    enum kcp_storage judged;
    double want, off, all, moves, row_moves, alike;
    int known;                     /* 1: the slice's `moved` is set */
    double err, tol;
};

static struct worst judge_made(const struct made *m)
{
    const struct kcp_stage *s = stage_find(m->stage);
    static double got[NUMBERS], right[NUMBERS], all[NUMBERS];
    const int W = m->width;
    const struct kcp_call call = { .T = m->tokens, .H = 1, .HV = 1, .K = W, .V = W,
                                   .KG = W, .N = 1, .NS = 1, .R = 1,
                                   .model = s->facts & KCP_TAKES_LAYER ? KCP_KDA
                                                                       : KCP_DPLR };
    struct worst w = { 0 };
    for (int i = 0; i < s->nfields; i++) {
        const int is_token = s->fields[i].shape[0] == 'T';
        struct slice x = { .stage = s, .field = &s->fields[i], .call = &call,
                           .got = got, .want = right, .all = all,
                           .sizes = { 2, 3, 5 }, .alike = m->alike,
                           .moved = m->known ? moved : NULL, .judged = m->judged };
        int64_t row = 1;
        if (strcmp(s->fields[i].name, m->field)) continue;
        x.nd = shape_dims(&call, s->fields[i].shape, x.dim);
        x.all_rows = is_token ? m->of : x.dim[0];
        for (int d = 1; d < x.nd; d++) row *= x.dim[d];
        for (int j = 0; j < NUMBERS; j++) {
            const int here = m->rows < 0 ? j / row == 10 : j / row < m->rows;
            right[j] = m->want;
            all[j] = m->all;
            got[j] = m->want + (here ? m->off : 0);
            moves[j] = j / row == 10 && m->rows < 0 ? m->row_moves : m->moves;
        }
        check_slice(&x, &w);
    }
    return w;
}

#define ALL 70
#define OF(stage, field, want, off, err) \
    stage, field, 70, 70, 16, ALL, KCP_F32, want, off, want, 0, 0, 0, 0, err
#define FEW(stage, field, tokens, of, all, err) \
    stage, field, tokens, of, 16, ALL, KCP_F32, 1e-9, 1e-4, all, 0, 0, 0, 0, err
#define LIMIT(field, tokens, width, judged, off, moves, known, tol) \
    field[0] == 'o' ? "08" : "13", field, tokens, tokens, width, ALL, judged, 1, off, \
    1, moves, moves, 0, known, 0, tol
#define TOKEN(stage, field, off, own, others, alike, known, tol) \
    stage, field, 64, 64, 16, -1, KCP_BF16, 1, off, 1, others, own, alike, known, 0, tol

static int limits(struct kcp_report *rep)
{
    const double few = 1 + 1 / sqrt(24), row = 1 + 1 / sqrt(32);
    const double o32 = tolerance_of(TOLERANCE_LAYER, KCP_F32);
    const double o = tolerance_of(TOLERANCE_LAYER, KCP_BF16);
    const double dv = tolerance_of(TOLERANCE_GRADIENTS, KCP_BF16);
    const double dg = tolerance_of(TOLERANCE_GATES, KCP_BF16);
    const struct made x[] = {
        /* slices that test the sizes by which errors are divided */
        { "o = 0: 1e-6 of v", OF("08", "o", 0, 1e-12, 1e-12 / 2e-6), 0 },
        { "rms of o", OF("08", "o", 4, 1e-4, 1e-4 / 4), o32 },
        { "dA_log: random signs", OF("13", "dA_log", 1e-9, 1e-5, 1e-5 / 5), 0 },
        { "ddt_bias: same", OF("13", "ddt_bias", 1e-9, 1e-5, 1e-5 / 3), 0 },
        { "gradient = 0", OF("13", "dq_raw", 0, 1e-12, INFINITY), 0 },
        { "M = 0: 1e-6 of K^-1/2", OF("05", "map", 0, 1e-12, 4e-6), 0 },
        { "limits of fp32", OF("13", "dv", 1, 1e-6, 1e-6),
          tolerance_of(TOLERANCE_GRADIENTS, KCP_F32) },
        { "limits of gates", OF("13", "dg_raw", 1, 1e-6, 1e-6),
          tolerance_of(TOLERANCE_GATES, KCP_F32) },
        { "few tokens: head's rms", FEW("08", "o", 10, 70, 4, 1e-4 / 4), 0 },
        { "short batch: 1e-2 of v", FEW("08", "o", 10, 10, 1e-9, 5e-3), 0 },
        { "one number per token", FEW("13", "dbeta_raw", 10, 10, 3, 1e-4 / 3), 0 },
        { "64 tokens: own rms", FEW("08", "o", 64, 70, 4, 1e-4 / 2e-6), 0 },
        /* slices of few numbers, and slices that one more rounding changes */
        { "twelve numbers", LIMIT("o", 3, 4, KCP_BF16, 1.05 * o, 0, 1, few * o) },
        { "unknown", LIMIT("o", 3, 4, KCP_BF16, 1.05 * o, 0, 0, few * o) },
        { "sixty-four", LIMIT("o", 4, 16, KCP_BF16, 1.05 * o, 0, 1, o) },
        { "moves", LIMIT("o", 4, 16, KCP_BF16, 1.05 * o, o / 2, 1, 1.5 * o) },
        { "by much", LIMIT("o", 4, 16, KCP_BF16, 1.05 * o, 17 * o, 1, 4 * o) },
        { "larger error", LIMIT("o", 4, 16, KCP_BF16, 4.2 * o, 17 * o, 1, o) },
        { "fp32", LIMIT("o", 4, 16, KCP_F32, 3 * o32, .2 * o32, 1, 1.8 * o32) },
        { "by much", LIMIT("o", 4, 16, KCP_F32, 39 * o32, 100 * o32, 1, 40 * o32) },
        { "larger error", LIMIT("o", 4, 16, KCP_F32, 41 * o32, 100 * o32, 1, o32) },
        { "longer sums", LIMIT("o", 4, 64, KCP_F32, 3 * o32, .2 * o32, 1, 2.4 * o32) },
        { "unknown", LIMIT("dA_log", 64, 16, KCP_BF16, 12 * dg, 0, 0,
                                 dg * (1 + 3 / sqrt(2))) },
        { "unknown", LIMIT("dg_raw", 64, 16, KCP_BF16, 2.5 * dg, 0, 0, dg) },
        { "unknown", LIMIT("ddt_bias", 64, 16, KCP_BF16, 10 * dg, 0, 0,
                                 dg * (1 + 3 / sqrt(32))) },
        { "one token", LIMIT("o", 1, 16, KCP_BF16, 4.2 * o, 17 * o, 1, 16 * o) },
        { "two tokens", LIMIT("o", 2, 16, KCP_BF16, 4.2 * o, 17 * o, 1, 8 * o) },
        { "larger error", LIMIT("o", 1, 16, KCP_BF16, 32 * o, 17 * o, 1, o) },
        { "one of 64", "08", "o", 64, 64, 1, -1, KCP_BF16, 1, 28 * o, 1, 0, 4 * o, 0, 1,
          0, 1.5 * o * (1 + 3 / sqrt(6)) },
        /* slices in which only one token of 64 is wrong */
        { "3 times o's", TOKEN("08", "o", 3.2 * o, 0, 0, 0, 1, 3 * o) },
        { "below 3 times", TOKEN("08", "o", 2.8 * o, 0, 0, 0, 1, 0) },
        { "3 times dv's", TOKEN("13", "dv", 3.1 * dv, 0, 0, 0, 1, 3 * dv) },
        { "stage 16: 5 times", TOKEN("16", "dv", 5.1 * dv, 0, 0, 0, 1, 5 * dv) },
        { "moves", TOKEN("08", "o", 7.5 * o, 4 * o / 3, 0, 0, 1, 6 * o * row) },
        { "below that", TOKEN("08", "o", 6.7 * o, 4 * o / 3, 0, 0, 1, 0) },
        { "others move", TOKEN("08", "o", 3.2 * o, 0, 4 * o / 3, 0, 1, 3 * o) },
        { "below the cap", TOKEN("08", "o", 11.8 * o, 1, 0, 0, 1, 0) },
        { "above the cap", TOKEN("08", "o", 12.2 * o, 1, 0, 0, 1, 3 * o) },
        { "unknown", TOKEN("08", "o", 4.8 * o, 0, 0, 0, 0, 0) },
        { "unknown: 5", TOKEN("08", "o", 5.2 * o, 0, 0, 0, 0, 5 * o) },
        { "alike keys", TOKEN("08", "o", 4.8 * o, 0, 0, 0.9, 1, 0) },
        { "alike keys: 5", TOKEN("08", "o", 5.2 * o, 0, 0, 0.9, 1, 5 * o) },
        { "head moves", TOKEN("08", "o", 16 * o, 1, 1, 0.9, 1, 0) } };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        const struct worst w = judge_made(&x[i]);
        const double tol = x[i].rows < 0 && w.err <= w.tol ? 0 : w.tol;
        const int same = x[i].err == w.err || fabs(w.err - x[i].err) <= 1e-9 * x[i].err;
        EXPECT(rep, x[i].err <= 0 || same, "%s, %s: error %g, expected %g",
               x[i].what, x[i].field, w.err, x[i].err);
        EXPECT(rep, (x[i].tol <= 0 && x[i].rows >= 0) || fabs(tol - x[i].tol) < 1e-9,
               "%s, %s: limit %g, expected %g", x[i].what, x[i].field, tol, x[i].tol);
    }
    const struct made nan = { "NaN", OF("13", "dv", 1, NAN, 0), 0 };
    const struct made none = { "right", OF("08", "o", 0, 0, 0), 0 };
    EXPECT(rep, judge_made(&nan).nan && !judge_made(&none).nan &&
           judge_made(&none).err == 0,
           "a NaN is not detected, or a correct slice of zeros has an error");
    return KCP_OK;
}
KCP_CHECK(check_00_limits) = { "00_judge", "limits",
    "slices of known numbers get the expected errors and limits",
    limits };

/* ---- n/a must be a failure if the variant's record (kcp_variant) promises a result */
static int promises(struct kcp_report *rep)
{
    static const struct { const char *shapes; struct verdict of; enum outcome is; }
    row[] = {
        { "any shape", { .outcome = PASS, .no_backward = 1 }, FAIL },
        { "K up to 8", { .outcome = PASS, .no_forward = 1 }, FAIL },
        { "forward; K up to 8", { .outcome = PASS, .no_backward = 1 }, PASS },
        { "any shape", { .outcome = NA, .refused = 1 }, FAIL },
        { "K up to 8", { .outcome = NA, .refused = 1 }, NA } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct kcp_variant v = { "07_merge", "half", "", KCP_F64, KCP_HOST,
                                       row[i].shapes, NULL, NULL };
        struct verdict t = row[i].of;
        apply_record(&v, 0, &t);
        EXPECT(rep, t.outcome == row[i].is, "'%s': found verdict %s, expected %s",
               row[i].shapes, outcome_name[t.outcome], outcome_name[row[i].is]);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_promises) = { "00_judge", "promises",
    "n/a is a failure if the variant's record promises a result, or if a built-in "
    "variant returns n/a in only one pass", promises };

/* ---- a NaN whose bits are all 1 must not change when it is stored */
static int stored(struct kcp_report *rep)
{
    double x[3] = { 0.5, -2, NAN }, y[3];
    unsigned char bytes[24];
    memset(&x[2], 0xff, 8);
    for (int type = KCP_TYPE_F64; type <= KCP_TYPE_F16; type++) {
        encode(bytes, x, 3, (enum kcp_type)type);
        decode(y, bytes, 3, (enum kcp_type)type);
        EXPECT(rep, !memcmp(x, y, sizeof x), "numbers stored as %s change",
               kcp_type_name((enum kcp_type)type));
    }
    return KCP_OK;
}
KCP_CHECK(check_00_stored) = { "00_judge", "stored",
    "the NaN of unwritten memory stays the same in every storage type", stored };
