/* checks.c -- checks that a chunk's WY form is the product of the tokens' affine maps.
 * Book: chapter 03. */
#include "batch.h"

/* Returns the relative difference between a chunk's [kg^T u | Lambda - kg^T w] and the
 * product of the chunk's affine token maps. */
static double chunk_apart(const struct batch *x, int64_t t0, int rows, int n)
{
    const int K = x->c.K, V = x->c.V, W = V + K, HV = x->c.HV, KG = x->c.KG;
    const double *G = batch_at(x, "G"), *k = batch_at(x, "k");
    const double *u = batch_at(x, "u"), *w = batch_at(x, "w");
    const double *last = G + ((t0 + rows - 1) * HV + n) * KG;
    double X[32 * 64], Y[32 * 64];
    batch_identity(x, X);
    batch_tokens(x, t0, t0 + rows, n, X);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++) {
            const int at = KG > 1 ? i : 0;
            Y[i * W + j] = j == V + i ? exp2(last[at]) : 0;
            for (int64_t t = t0; t < t0 + rows; t++) {
                const int64_t tn = t * HV + n, tm = t * x->c.H + n / (HV / x->c.H);
                const double gate = exp2(last[at] - G[tn * KG + at]);
                const double kg = k[tm * K + i] * gate;
                Y[i * W + j] += kg * (j < V ? u[tn * V + j] : -w[tn * K + j - V]);
            }
        }
    return rms_apart(Y, X, K * W);
}

static int chunk_maps(struct kcp_report *rep, struct batch *x, const char *what)
{
    double worst = 0;
    for (int c = 0; c < x->c.NC; c++)
        for (int n = 0; n < x->c.HV; n++) {
            const int s = x->sc[c], t0 = x->cu[s] + (c - x->cn[s]) * x->c.C;
            const int left = x->cu[s + 1] - t0;
            const double d = chunk_apart(x, t0, left < x->c.C ? left : x->c.C, n);
            worst = d > worst || isnan(d) ? d : worst;
        }
    EXPECT(rep, worst <= 1e-12, "%s: a chunk's map differs from the product of dense "
           "maps by %g, more than 1e-12", what, worst);
    return KCP_OK;
}

static int tokens(struct kcp_report *rep)
{
    return batch_each(rep, UP_TO_GATE, chunk_maps);
}
KCP_CHECK(check_03_tokens) = { "03_wy", "tokens",
    "Lambda - kg^T w and kg^T u equal the product of the tokens' dense maps", tokens };
