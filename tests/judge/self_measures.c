/* self_measures.c -- the judge judged: what an error is measured against.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.  Next: check.c.
 *
 * Slices made by hand, of which the error is known. Mutation testing of check.c left
 * these alive: the natural size of a slice that is null, and what a parameter's
 * gradient is measured against.
 */
#include "judge.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 70, WIDTH = 16 };

/* A slice by hand: so many tokens of so many, each number `want`, those of the first
 * `rows` off by `off`; all of the tensor is `all`. */
struct made {
    const char *stage, *field;
    int tokens, of, rows;
    double want, off, all, rms_sum, rms_dA;
};

static struct worst error_made(const struct made *m)
{
    const struct kcp_stage *s = stage_find(m->stage);
    static double got[TOKENS * WIDTH], right[TOKENS * WIDTH], all[TOKENS * WIDTH];
    const struct kcp_call call = { .T = m->tokens, .H = 1, .HV = 1, .K = WIDTH,
                                   .V = WIDTH, .KG = WIDTH, .N = 1, .NS = 1, .R = 1 };
    struct worst w = { 0 };
    for (int i = 0; i < s->nfields; i++) {
        struct slice x = { .stage = s, .field = &s->fields[i], .call = &call,
                           .got = got, .want = right, .all = all, .rms_v = 2,
                           .rms_sum = m->rms_sum, .rms_dA = m->rms_dA,
                           .judged = KCP_F32 };
        if (strcmp(s->fields[i].name, m->field)) continue;
        x.nd = shape_dims(&call, s->fields[i].shape, x.dim);
        x.all_rows = s->fields[i].shape[0] == 'T' ? m->of : x.dim[0];
        int64_t row = 1;
        for (int d = 1; d < x.nd; d++) row *= x.dim[d];
        for (int64_t j = 0; j < TOKENS * WIDTH; j++) {
            right[j] = m->want;
            all[j] = m->all;
            got[j] = m->want + (j / row < m->rows ? m->off : 0);
        }
        check_slice(&x, &w);
    }
    return w;
}

/* The error of a field of stage 13 or 08 that is `off` everywhere, not `want`. */
static struct worst error_of(const char *stage, const char *field, double want,
                             double off, double rms_sum, double rms_dA)
{
    const struct made m = { stage, field, TOKENS, TOKENS, TOKENS, want, off, want,
                            rms_sum, rms_dA };
    return error_made(&m);
}

static int near_to(double x, double y) { return fabs(x - y) <= 1e-9 * fabs(y); }

static int measures(struct kcp_report *rep)
{
    struct worst w = error_of("08", "o", 0, 1e-12, 0, 0);
    EXPECT(rep, near_to(w.err, 1e-12 / 2e-6), "a null slice: 1e-6 of v: %g", w.err);
    w = error_of("08", "o", 0, 0, 0, 0);
    EXPECT(rep, w.err == 0 && !w.nan, "a null slice that is right: %g", w.err);
    w = error_of("08", "o", 4, 1e-4, 0, 0);
    EXPECT(rep, near_to(w.err, 1e-4 / 4), "its own size: %g", w.err);
    w = error_of("13", "dA_log", 1e-9, 1e-5, 3, 5);
    EXPECT(rep, near_to(w.err, 1e-5 / 5), "dA_log: a sum of its terms: %g", w.err);
    w = error_of("13", "ddt_bias", 1e-9, 1e-5, 3, 5);
    EXPECT(rep, near_to(w.err, 1e-5 / 3), "ddt_bias: a sum of its terms: %g", w.err);
    w = error_of("13", "dq_raw", 0, 1e-12, 0, 0);
    EXPECT(rep, isinf(w.err), "a gradient that should be null everywhere: %g", w.err);
    w = error_of("13", "dv", 1, NAN, 0, 0);
    EXPECT(rep, w.nan, "NaN");
    w = error_of("05", "map", 0, 1e-12, 0, 0);
    EXPECT(rep, near_to(w.err, 4e-6) && !strcmp(w.field, "M"),
           "a null M: 1e-6 of 1 / sqrt(K): %s %g", w.field, w.err);
    w = error_made(&(struct made){ "08", "o", 10, TOKENS, 10, 1e-9, 1e-4, 4, 0, 0 });
    EXPECT(rep, near_to(w.err, 1e-4 / 4), "few tokens: their head's size: %g", w.err);
    w = error_made(&(struct made){ "08", "o", 10, 10, 10, 1e-9, 1e-4, 1e-9, 0, 0 });
    EXPECT(rep, near_to(w.err, 1e-4 / 2e-2), "a short batch: 1e-2 of v: %g", w.err);
    w = error_made(&(struct made){ "13", "dbeta_raw", 10, 10, 10, 1e-9, 1e-4, 3,
                                    0, 0 });
    EXPECT(rep, near_to(w.err, 1e-4 / 3), "one number a token: all of it: %g", w.err);
    w = error_made(&(struct made){ "08", "o", 64, TOKENS, 64, 1e-9, 1e-4, 4, 0, 0 });
    EXPECT(rep, near_to(w.err, 1e-4 / 2e-6), "64 tokens are not few: %g", w.err);
    w = error_made(&(struct made){ "13", "dv", TOKENS, TOKENS, 1, 1, 6e-5, 1, 0, 0 });
    EXPECT(rep, near_to(w.err, 6e-5) && near_to(w.tol, 5e-5),
           "one token of many, where nobody knows what moves: %g of %g", w.err, w.tol);
    EXPECT(rep, near_to(error_of("13", "dv", 1, 1e-6, 0, 0).tol, 1e-5) &&
           near_to(error_of("13", "dg_raw", 1, 1e-6, 0, 0).tol, 1e-4) &&
           near_to(error_of("08", "o", 1, 1e-6, 0, 0).tol, 1e-5),
           "limits of sec:accuracy");
    return KCP_OK;
}
KCP_CHECK(check_00_measures) = { "00_judge", "measures",
    "what an error is measured against, on slices of which it is known", measures };
