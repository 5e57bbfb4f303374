/* checks.c -- checks the affine map S -> M S + h_ext of a stretch (a run of tokens).
 *
 * Book: chapter 05.  Checked by: itself, it can fail.  Next: ref/06_plan.c.
 */
#include "tests/03_wy/batch.h"

static const double gates[] = { 0, -1, -5, -50 };

static int tokens(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 16 && !status; j++) {
        struct batch x;
        double worst = 0;
        status = batch_make(&x, j % 2 ? KCP_GDN : KCP_KDA, j / 2 % 2 ? 64 : 4,
                            gates[j / 4], UP_TO_GATE);
        for (int s = 0; s < BATCH_NS && !status; s++)
            for (int n = 0; n < x.c.HV; n++) {
                const int64_t KW = (int64_t)x.c.K * (x.c.K + x.c.V);
                double X[32 * 64];
                batch_identity(&x, X);
                batch_tokens(&x, x.cu[s], x.cu[s + 1], n, X);
                const double *map = batch_at(&x, "map") + (s * x.c.HV + n) * KW;
                const double d = rms_apart(map, X, KW);
                worst = d > worst || isnan(d) ? d : worst;
            }
        EXPECT(rep, worst <= 1e-12, "%s, C = %d, gate %g: a segment's map differs from "
               "the product of dense maps by %g, more than 1e-12",
               j % 2 ? "GDN" : "KDA", x.c.C, gates[j / 4], worst);
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_05_tokens) = { "05_affine", "tokens",
    "[h_ext | M] of a segment equals the product of its tokens' dense maps", tokens };
