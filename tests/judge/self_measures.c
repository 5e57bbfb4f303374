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

/* The error of a field of stage 13 or 08 that is `off` everywhere, not `want`. */
static struct worst error_of(const char *stage, const char *field, double want,
                             double off, double rms_sum, double rms_dA)
{
    const struct kcp_stage *s = stage_find(stage);
    static double got[TOKENS * WIDTH], right[TOKENS * WIDTH];
    const struct kcp_call call = { .T = TOKENS, .H = 1, .HV = 1, .K = WIDTH,
                                   .V = WIDTH, .KG = WIDTH, .N = 1 };
    struct worst w = { 0 };
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        right[i] = want;
        got[i] = want + off;
    }
    for (int i = 0; i < s->nfields; i++) {
        struct slice x = { .stage = s, .field = &s->fields[i], .call = &call,
                           .got = got, .want = right, .all = right, .rms_v = 2,
                           .rms_sum = rms_sum, .rms_dA = rms_dA, .judged = KCP_F32 };
        if (strcmp(s->fields[i].name, field)) continue;
        x.nd = shape_dims(&call, s->fields[i].shape, x.dim);
        x.all_rows = x.dim[0];
        check_slice(&x, &w);
    }
    return w;
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
    EXPECT(rep, near_to(error_of("13", "dv", 1, 1e-6, 0, 0).tol, 1e-5) &&
           near_to(error_of("13", "dg_raw", 1, 1e-6, 0, 0).tol, 1e-4) &&
           near_to(error_of("08", "o", 1, 1e-6, 0, 0).tol, 1e-5), "limits of spec 12");
    return KCP_OK;
}
KCP_CHECK(check_00_measures) = { "00_judge", "measures",
    "what an error is measured against, on slices of which it is known", measures };
