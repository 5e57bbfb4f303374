/* 20_bound.c -- an upper bound on |M| of a segment, from gates and keys.
 *
 * Book: chapter 20. Checked by: tests/20_clusters/bound.c.
 * Next: comm/wire.c, which uses the bounds. */
#include "wire.h"

#include <math.h>

/* Returns log2 of a bound on |A_t|_2, A_t = (I - beta k k^T) diag(exp2(g)). The first
 * factor has K - 1 eigenvalues 1 and one eigenvalue 1 - beta |k|^2; the norm of the
 * second factor is the decay of the slowest channel. */
static double step_bound(const struct kcp_call *c, int64_t t, int n, int first,
                         const double *k_, const double *G_, const double *beta_)
{
    const int HV = c->HV, K = c->K, KG = c->KG, m = n / (HV / c->H);
    const double (*k)[c->H][K] = (const double (*)[c->H][K])k_;
    const double (*G)[HV][KG] = (const double (*)[HV][KG])G_;
    const double (*beta)[HV] = (const double (*)[HV])beta_;
    //> step-bound
    double slowest = -INFINITY, length = 0;
    for (int i = 0; i < KG; i++)
        slowest = fmax(slowest, G[t][n][i] - (first ? 0 : G[t - 1][n][i]));
    for (int i = 0; i < K; i++)
        length += k[t][m][i] * k[t][m][i];
    return slowest + log2(fmax(1, fabs(1 - beta[t][n] * length)));
    //< step-bound
}

/* G is summed within chunks of C rows; the first chunk starts with the segment. To keep
 * the result an upper bound despite rounding errors, the code adds 1e-12 per token, far
 * more than these errors, to the sum of log2. */
void kcp_decay_bound(const struct kcp_call *c, const int *cu, const double *k,
                     const double *G, const double *beta, double *bound)
{
    for (int s = 0; c && s < c->NS; s++) {
        bound[s] = 0;
        for (int n = 0; n < c->HV; n++) {
            double sum = 0;
            for (int64_t t = cu[s]; t < cu[s + 1]; t++)
                sum += 1e-12 + step_bound(c, t, n, (t - cu[s]) % c->C == 0, k, G, beta);
            bound[s] = fmax(bound[s], exp2(sum));
        }
    }
}
