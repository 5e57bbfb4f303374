/* checks.c -- checks the affine map S -> M S + h_ext of a stretch (a run of tokens).
 * Book: chapter 05. */
#include "tests/03_wy/batch.h"

static int segment_maps(struct kcp_report *rep, struct batch *x, const char *what)
{
    const int64_t KW = (int64_t)x->c.K * (x->c.K + x->c.V);
    double worst = 0, X[32 * 64];
    for (int s = 0; s < BATCH_NS; s++)
        for (int n = 0; n < x->c.HV; n++) {
            batch_identity(x, X);
            batch_tokens(x, x->cu[s], x->cu[s + 1], n, X);
            const double *map = batch_at(x, "map") + (s * x->c.HV + n) * KW;
            const double d = rms_apart(map, X, KW);
            worst = d > worst || isnan(d) ? d : worst;
        }
    EXPECT(rep, worst <= 1e-12, "%s: a segment's map differs from the product of dense "
           "maps by %g, more than 1e-12", what, worst);
    return KCP_OK;
}

static int tokens(struct kcp_report *rep)
{
    return batch_each(rep, UP_TO_GATE, segment_maps);
}
KCP_CHECK(check_05_tokens) = { "05_affine", "tokens",
    "[h_ext | M] of a segment equals the product of its tokens' dense maps", tokens };
