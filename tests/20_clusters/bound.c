/* bound.c -- checks chapter 20's bound on |M|, and that bounds with a mistake fail.
 * Book: chapter 20, eq:cut.
 *
 * |M x| / |x| after some steps x <- M^T M x is a lower bound of |M|_2. */
#include "tests/03_wy/batch.h"

enum mistake { NONE, FASTEST, WHOLE, FORGOTTEN, MISTAKES };
static const char *const mistake_name[] = { "",
    "uses the channel that decays most", "uses the same channel for all tokens",
    "omits the growth of M where beta |k|^2 exceeds 2" };

/* Multiplies beta by `factor`, but limits beta to 2.2. If `turns` is 1, a channel
 * decays only in every other token. Then computes the maps again. */
static int change(struct batch *x, double factor, int turns)
{
    const int HV = x->c.HV, KG = x->c.KG;
    double *g = batch_at(x, "g"), *G = batch_at(x, "G"), *beta = batch_at(x, "beta");
    for (int s = 0; s < BATCH_NS; s++)
        for (int64_t t = x->cu[s]; t < x->cu[s + 1]; t++)
            for (int n = 0; n < HV; n++) {
                const int first = (t - x->cu[s]) % x->c.C == 0;
                beta[t * HV + n] = fmin(factor * beta[t * HV + n], 2.2);
                for (int i = 0; i < KG; i++) {
                    const int64_t at = (t * HV + n) * KG + i;
                    g[at] *= !turns || (t + i) % 2;
                    G[at] = g[at] / log(2) + (first ? 0 : G[at - HV * KG]);
                }
            }
    const int status = batch_stage(x, &x->set, "03_wy");
    return status ? status : batch_stage(x, &x->set, "05_affine");
}

static double bound_of(const struct batch *x, int s, int n, enum mistake wrong)
{
    const int H = x->c.H, HV = x->c.HV, K = x->c.K, KG = x->c.KG;
    double sum = 0, own[8] = { 0 }, most = -INFINITY;
    for (int64_t t = x->cu[s]; t < x->cu[s + 1]; t++) {
        const double *g = batch_at(x, "g") + (t * HV + n) * KG;
        const double *k = batch_at(x, "k") + (t * H + n / (HV / H)) * K;
        double slow = g[0], length = 0;
        for (int i = 0; i < KG; i++) {
            slow = wrong == FASTEST ? fmin(slow, g[i]) : fmax(slow, g[i]);
            own[i] += g[i];
        }
        for (int i = 0; i < K; i++) length += k[i] * k[i];
        const double mirrored = fabs(1 - batch_at(x, "beta")[t * HV + n] * length);
        sum += (wrong == WHOLE ? 0 : slow) +
               (wrong == FORGOTTEN ? 0 : log(fmax(1, mirrored)));
    }
    for (int i = 0; i < KG; i++) most = fmax(most, own[i]);
    return exp(sum + (wrong == WHOLE ? most : 0));
}

/* Returns a lower bound of |M|_2 for value head n of stretch (run of tokens) s. */
static double norm_of(const struct batch *x, int s, int n)
{
    const int K = x->c.K, W = x->c.K + x->c.V;
    const double *M = batch_at(x, "map") + (s * x->c.HV + n) * K * W + x->c.V;
    double v[8] = { 1, 1.1, 1.2, 1.3, 1.4, 1.5 }, y[8], size = 0;
    for (int power = 0; power < 60; power++) {
        double vv = 0, yy = 0;
        for (int i = 0; i < K; i++) {
            y[i] = 0;
            for (int j = 0; j < K; j++) y[i] += M[i * W + j] * v[j];
            vv += v[i] * v[i];
            yy += y[i] * y[i];
        }
        if (yy == 0) break;
        size = sqrt(yy / vv);
        for (int j = 0; j < K; j++) {
            v[j] = 0;
            for (int i = 0; i < K; i++) v[j] += M[i * W + j] * y[i] / sqrt(yy);
        }
    }
    return size;
}

static int bounds(struct kcp_report *rep)
{
    static const double gate[] = { 0, -0.01, -0.1, -1, -5 };
    int exceeded[MISTAKES] = { 0 }, near = 0, status = KCP_OK;
    for (int j = 0; j < 40 && !status; j++) {
        struct batch x;
        status = batch_make(&x, j % 2 ? KCP_GDN : KCP_KDA, 16, gate[j / 8], UP_TO_GATE);
        if (!status) status = change(&x, j / 2 % 2 ? 30 : 1, j / 4 % 2);
        for (int s = 0; s < BATCH_NS && !status; s++)
            for (int n = 0; n < x.c.HV; n++) {
                const double norm = norm_of(&x, s, n), bound = bound_of(&x, s, n, NONE);
                EXPECT(rep, norm <= bound * (1 + 1e-9), "batch %d, stretch %d: |M| is "
                       "%.17g, expected at most %.17g", j, s, norm, bound);
                near += norm > 0.5 * bound;
                for (int w = FASTEST; w < MISTAKES; w++)
                    exceeded[w] += norm > bound_of(&x, s, n, w) * (1 + 1e-9);
            }
        batch_free(&x);
    }
    EXPECT(rep, status || near > 20,
           "only %d maps have a norm |M| above half its bound, expected over 20", near);
    for (int w = FASTEST; w < MISTAKES; w++)
        EXPECT(rep, status || exceeded[w] > 0,
               "bound with mistake (%s): expected a norm |M| above it, found none",
               mistake_name[w]);
    return status;
}
KCP_CHECK(check_20_bound) = { "20_clusters", "bound",
    "the norm |M| never exceeds its bound from gates and keys, but exceeds each "
    "bound with a mistake at least once", bounds };
