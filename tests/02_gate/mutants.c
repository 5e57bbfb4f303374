/* mutants.c -- computes norm, gate and beta with one deliberate error per flag.
 * Book: chapter 02, appendix A.
 * The code is a copy of the reference, because mutants must not call it.
 */
#include "kcp.h"

#include <math.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(natural, NATURAL, "errata 12: computes G with log base e, not base 2")     \
    MUTANT(twice, TWICE, "errata 14: converts gates to base 2 twice")                 \
    MUTANT(exclusive, EXCLUSIVE, "G_t leaves out g of token t")                       \
    MUTANT(no_restart, NO_RESTART, "a chunk runs on into the next sequence")          \
    MUTANT(no_chunk, NO_CHUNK,                                                        \
           "sums gates from the sequence's start, not the chunk's")                   \
    MUTANT(head_0, HEAD_0, "all heads use A_log of head 0")                           \
    MUTANT(no_bias, NO_BIAS, "ignores dt_bias")                                       \
    MUTANT(eps, NO_EPS, "uses 0.01, not 1e-6, as epsilon in the norm")                \
    MUTANT(half_beta, HALF_BETA,                                                      \
           "computes beta between 0 and 1, not between 0 and 2")                      \
    MUTANT(dx_from_y, DX_FROM_Y,                                                      \
           "errata 23: the norm's gradient omits the projection")                     \
    MUTANT(no_prime, NO_PRIME, "uses sigma instead of its derivative sigma'")         \
    MUTANT(sign, SIGN, "the gradient of softplus has the wrong sign")                 \
    MUTANT(whole_sum, WHOLE_SUM,                                                      \
           "row 0 of dA_part and ddt_part gets the sums of all rows")                 \
    MUTANT(copies_k, COPIES_K, "writes the normalised q to k")                        \
    MUTANT(writes_nothing, NOTHING, "returns at once")                                \
    MUTANT(one_nan, ONE_NAN, "writes one NaN")
#include "tests/mutants.h"

static double sig(double x) { return 1 / (1 + exp(-x)); }

static double gate_of(const struct kcp_gate *a, double x, double A, double dt)
{
    const double y = x + dt;
    if (a->gate == KCP_GATE_SOFTPLUS)
        return -exp(A) * (fmax(y, 0) + log1p(exp(-fabs(y))));
    return a->gate == KCP_GATE_BOUNDED ? a->lower_bound * sig(exp(A) * y) : x;
}

static double beta_scale(const struct kcp_gate *a, int flags)
{
    return a->beta_form == KCP_BETA_SIGMOID2 && !(flags & HALF_BETA) ? 2 : 1;
}

static void norm_rows(const struct kcp_gate *a, int flags, const double *x, double *y,
                      double *rstd)
{
    for (int64_t t = 0; t < a->T * a->H; t++) {
        double s = flags & NO_EPS ? 0.01 : 1e-6;
        for (int i = 0; i < a->K; i++) s += x[t * a->K + i] * x[t * a->K + i];
        rstd[t] = a->l2norm ? 1 / sqrt(s) : 1;
        for (int i = 0; i < a->K; i++) y[t * a->K + i] = rstd[t] * x[t * a->K + i];
    }
}

static void norm_back(const struct kcp_gate *a, int flags, const double *x,
                      const double *dy, double *dx)
{
    for (int64_t t = 0; t < a->T * a->H; t++) {
        const int K = a->K;
        double s = 1e-6, dot = 0;
        for (int i = 0; i < K; i++) s += x[t * K + i] * x[t * K + i];
        for (int i = 0; i < K; i++) dot += dy[t * K + i] * x[t * K + i];
        const double r = a->l2norm ? 1 / sqrt(s) : 1;
        for (int i = 0; i < K; i++)
            dx[t * K + i] = !a->l2norm || flags & DX_FROM_Y ? r * dy[t * K + i]
                          : r * (dy[t * K + i] - x[t * K + i] * dot / s);
    }
}

static void forward(const struct kcp_gate *a, int flags)
{
    const int HV = a->HV, KG = a->KG, *cu = a->cu;
    const double *A_log = a->A_log, *dt = a->dt_bias, *x = a->g_raw, *b = a->beta_raw;
    double *g = a->g, *G = a->G, *beta = a->beta;
    const double unit = flags & NATURAL ? 1 : 1.4426950408889634074;
    norm_rows(a, flags, a->q_raw, a->q, a->rstd_q);
    norm_rows(a, flags, flags & COPIES_K ? a->q_raw : a->k_raw, a->k, a->rstd_k);
    for (int s = 0; s < a->NS; s++)
        for (int64_t t = cu[s]; t < cu[s + 1]; t++)
            for (int n = 0; n < HV; n++) {
                const int head = flags & HEAD_0 ? 0 : n;
                for (int i = 0; i < KG; i++) {
                    const int64_t at = (t * HV + n) * KG + i, j = n * KG + i;
                    const int64_t in = flags & NO_RESTART ? t : t - cu[s];
                    const double A = A_log ? A_log[head] : 0;
                    const double d = dt && !(flags & NO_BIAS) ? dt[j] : 0;
                    g[at] = gate_of(a, x[at], A, d);
                    const int fresh = flags & NO_CHUNK ? in == 0 : in % a->C == 0;
                    const double now = g[at] * unit * (flags & TWICE ? unit : 1);
                    const double last = fresh ? 0 : G[at - HV * KG];
                    G[at] = last + now;
                    if (flags & EXCLUSIVE)
                        G[at] = fresh ? 0 : last + g[at - HV * KG] * unit;
                }
                const double y = sig(b[t * HV + n]);
                beta[t * HV + n] = beta_scale(a, flags) * y;
                if (a->beta_form == KCP_BETA_RAW) beta[t * HV + n] = b[t * HV + n];
            }
    if (flags & ONE_NAN && a->T) G[a->T * HV * KG - 1] = NAN;
}

static void backward(const struct kcp_gate *a, int flags)
{
    const int HV = a->HV, KG = a->KG, *cu = a->cu;
    const double *A_log = a->A_log, *dt = a->dt_bias, *x = a->g_raw, *b = a->beta_raw;
    const double *dg = a->dg, *db = a->dbeta;
    double *dx = a->dg_raw, *draw = a->dbeta_raw, *dA = a->dA_part, *ddt = a->ddt_part;
    norm_back(a, flags, a->q_raw, a->dq, a->dq_raw);
    norm_back(a, flags, a->k_raw, a->dk, a->dk_raw);
    if (dA) memset(dA, 0, sizeof(double) * a->NS * HV);
    if (ddt) memset(ddt, 0, sizeof(double) * a->NS * HV * KG);
    for (int s = 0; s < a->NS; s++)
        for (int64_t t = cu[s]; t < cu[s + 1]; t++)
            for (int n = 0; n < HV; n++) {
                const int row = flags & WHOLE_SUM ? 0 : s;
                const int head = flags & HEAD_0 ? 0 : n;
                for (int i = 0; i < KG; i++) {
                    const int64_t at = (t * HV + n) * KG + i, j = n * KG + i;
                    const double A = A_log ? A_log[head] : 0;
                    const double d = dt && !(flags & NO_BIAS) ? dt[j] : 0;
                    const double y = x[at] + d;
                    double add = 0;
                    dx[at] = dg[at];
                    if (a->gate == KCP_GATE_SOFTPLUS) {
                        dx[at] = (flags & SIGN ? 1 : -1) * exp(A) * sig(y) * dg[at];
                        add = dg[at] * gate_of(a, x[at], A, d);
                    } else if (a->gate == KCP_GATE_BOUNDED) {
                        const double z = exp(A) * y;
                        dx[at] = dg[at] * a->lower_bound * exp(A) *
                                 (flags & NO_PRIME ? sig(z) : sig(z) * sig(-z));
                        add = dx[at] * y;
                    }
                    if (dA) dA[row * HV + n] += add;
                    if (ddt && a->gate != KCP_GATE_RAW)
                        ddt[(row * HV + n) * KG + i] += dx[at];
                }
                const double y = b[t * HV + n];
                const double slope = beta_scale(a, flags) * sig(y) * sig(-y);
                draw[t * HV + n] = db[t * HV + n];
                if (a->beta_form != KCP_BETA_RAW) draw[t * HV + n] *= slope;
            }
}

static int wrong(void *args, int flags)
{
    const struct kcp_gate *a = args;
    if (flags & NOTHING) return KCP_OK;
    if (a->pass == KCP_FORWARD) forward(a, flags);
    else backward(a, flags);
    return KCP_OK;
}

#define MUTANT_STAGE m02, "02_gate", "any", wrong
MUTANTS(MUTANT)
MUTANT_TWIN
