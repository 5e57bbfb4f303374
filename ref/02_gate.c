/* 02_gate.c -- L2 norm, beta, the three gates, and the gate's sum within a chunk.
 * Book: chapter 02. */
#include "checked.h"
#include "ref.h"
#include <math.h>
#include <string.h>

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* Normalizes rows of n numbers: rstd = 1/sqrt(sum x^2 + 1e-6), y = rstd x. If `on` is
 * 0, rstd is 1. */
static void norm(int64_t rows, int n, int on, const void *x_, void *y_, double *rstd)
{
    const double (*x)[n] = x_;
    double (*y)[n] = y_;
    for (int64_t t = 0; t < rows; t++) {
        double s = 0;
        for (int i = 0; i < n; i++) s += x[t][i] * x[t][i];
        rstd[t] = on ? 1 / sqrt(s + 1e-6) : 1;
        for (int i = 0; i < n; i++) y[t][i] = rstd[t] * x[t][i];
    }
}

/* Computes dx = rstd (dy - y sum(dy y)), where y = rstd x is recomputed from x. */
static void norm_backward(int64_t rows, int n, int on, const void *x_, const void *dy_,
                          void *dx_)
{
    const double (*x)[n] = x_, (*dy)[n] = dy_;
    double (*dx)[n] = dx_;
    for (int64_t t = 0; t < rows; t++) {
        double s = 1e-6, dot = 0;
        for (int i = 0; i < n; i++) {
            s += x[t][i] * x[t][i];
            dot += dy[t][i] * x[t][i];
        }
        for (int i = 0; i < n; i++)
            dx[t][i] = on ? (dy[t][i] - x[t][i] * dot / s) / sqrt(s) : dy[t][i];
    }
}

/* Returns g, the log of one channel's decay; lb is lower_bound:
 *   softplus  g = -exp(A_log) softplus(x + dt)      raw  g = x
 *   bounded   g = lb sigmoid(exp(A_log) (x + dt)) */
static double gate(const struct kcp_gate *a, double x, double A_log, double dt)
{
    //> gate
    const double y = x + dt;
    switch (a->gate) {
    case KCP_GATE_SOFTPLUS: return -exp(A_log) * (fmax(y, 0) + log1p(exp(-fabs(y))));
    case KCP_GATE_BOUNDED:  return a->lower_bound * sigmoid(exp(A_log) * y);
    default:                return x;
    }
    //< gate
}

/* Returns dx, which is also the gradient of dt (0 for raw), and adds to dA_log:
 *   softplus  dx = -exp(A_log) sigma(y) dg             dA_log += dg g
 *   bounded   dx = dg lb sigma'(z) exp(A_log)          dA_log += dx y
 *   raw       dx = dg                                  dA_log += 0
 * with y = x + dt, z = exp(A_log) y. */
static double gate_backward(const struct kcp_gate *a, double x, double A_log, double dt,
                            double dg, double *dA)
{
    const double y = x + dt, e = exp(A_log);
    switch (a->gate) {
    case KCP_GATE_SOFTPLUS:
        *dA += dg * gate(a, x, A_log, dt);
        return -e * sigmoid(y) * dg;
    case KCP_GATE_BOUNDED: {
        const double dx = dg * a->lower_bound * sigmoid(e * y) * sigmoid(-e * y) * e;
        *dA += dx * y;
        return dx;
    }
    default:
        return dg;
    }
}

/* Depending on `form`, returns beta = raw or beta = s sigmoid(raw) with s = 1 or 2. */
static double beta_of(enum kcp_beta_form form, double raw)
{
    const double s = form == KCP_BETA_SIGMOID2 ? 2 : 1;
    return form == KCP_BETA_RAW ? raw : s * sigmoid(raw);
}

static double beta_backward(enum kcp_beta_form form, double raw, double dbeta)
{
    const int s = form == KCP_BETA_SIGMOID2 ? 2 : 1;
    return form == KCP_BETA_RAW ? dbeta : dbeta * s * sigmoid(raw) * sigmoid(-raw);
}

/* G_t = log2(e) times the sum of g over the chunk's tokens up to t. Each segment starts
 * a new chunk. Gates below -750 become -750, because a gate of -1e30 (a reset) would
 * round away the sum's other gates. The decay stays 0: exp(-750) is 0 in double. */
static void chunk_sum(const struct kcp_gate *a)
{
    const int HV = a->HV, KG = a->KG, *cu = a->cu;
    const double (*g)[HV][KG] = a->g, to_base_2 = 1.4426950408889634074;
    const double closed = -750;
    double (*G)[HV][KG] = a->G;
    for (int s = 0; s < a->NS; s++)
        for (int64_t t = cu[s]; t < cu[s + 1]; t++)
            for (int n = 0; n < HV; n++)
                //> sum
                for (int i = 0; i < KG; i++) {
                    const double x = g[t][n][i] < closed ? closed : g[t][n][i];
                    G[t][n][i] = x * to_base_2 +
                                 ((t - cu[s]) % a->C ? G[t - 1][n][i] : 0);
                }
                //< sum
}

static void gate_forward_all(const struct kcp_gate *a)
{
    const int HV = a->HV, KG = a->KG;
    const double (*x)[HV][KG] = a->g_raw, *A_log = a->A_log, (*dt)[KG] = a->dt_bias;
    const double (*raw)[HV] = a->beta_raw;
    double (*g)[HV][KG] = a->g, (*beta)[HV] = a->beta;
    for (int64_t t = 0; t < a->T; t++)
        for (int n = 0; n < HV; n++) {
            for (int i = 0; i < KG; i++)
                g[t][n][i] = gate(a, x[t][n][i], A_log ? A_log[n] : 0,
                                  dt ? dt[n][i] : 0);
            if (beta) beta[t][n] = beta_of(a->beta_form, raw[t][n]);
        }
}

/* Computes all gradients. For A_log and dt_bias, writes one row of sums per segment.
 * If plan->L > 0, adding these rows in token order gives equal bits for any plan->R. */
static void gate_backward_all(const struct kcp_gate *a)
{
    const int HV = a->HV, KG = a->KG, *cu = a->cu;
    const double (*x)[HV][KG] = a->g_raw, *A_log = a->A_log, (*dt)[KG] = a->dt_bias;
    const double (*raw)[HV] = a->beta_raw, (*dbeta)[HV] = a->dbeta;
    const double (*dg)[HV][KG] = a->dg;
    double (*dx)[HV][KG] = a->dg_raw, (*draw)[HV] = a->dbeta_raw;
    double (*dA)[HV] = a->dA_part, (*ddt)[HV][KG] = a->ddt_part, none;
    if (dA) memset(dA, 0, sizeof(double) * a->NS * HV);
    if (ddt) memset(ddt, 0, sizeof(double) * a->NS * HV * KG);
    for (int s = 0; s < a->NS; s++)
        for (int64_t t = cu[s]; t < cu[s + 1]; t++)
            for (int n = 0; n < HV; n++) {
                for (int i = 0; i < KG; i++) {
                    dx[t][n][i] = gate_backward(a, x[t][n][i], A_log ? A_log[n] : 0,
                                                dt ? dt[n][i] : 0, dg[t][n][i],
                                                dA ? &dA[s][n] : &none);
                    if (ddt && a->gate != KCP_GATE_RAW) ddt[s][n][i] += dx[t][n][i];
                }
                draw[t][n] = beta_backward(a->beta_form, raw[t][n], dbeta[t][n]);
            }
}

/* Forward computes q and k [T,H,K] with rstd [T,H], g and G [T,HV,KG], and beta [T,HV].
 * An output q, k or beta that is NULL is not computed. Backward computes the gradients
 * of the raw inputs and, per segment, those of A_log (dA_part [NS,HV]) and dt_bias
 * (ddt_part [NS,HV,KG]). dA_part and ddt_part may be NULL. */
int ref_gate(struct kcp_gate *a)
{
    const int refused = kcp_begin("02_gate", KCP_HOST, a, "q k rstd_q rstd_k beta");
    if (refused) return refused;
    const int64_t rows = a->T * a->H;
    if (a->pass == KCP_FORWARD && ((a->q && !a->rstd_q) || (a->k && !a->rstd_k)))
        return kcp_refuse(KCP_BAD, "02_gate: q needs rstd_q, and k needs rstd_k");
    if (a->pass == KCP_FORWARD) {
        if (a->q) norm(rows, a->K, a->l2norm, a->q_raw, a->q, a->rstd_q);
        if (a->k) norm(rows, a->K, a->l2norm, a->k_raw, a->k, a->rstd_k);
        gate_forward_all(a);
        chunk_sum(a);
    } else {
        norm_backward(rows, a->K, a->l2norm, a->q_raw, a->dq, a->dq_raw);
        norm_backward(rows, a->K, a->l2norm, a->k_raw, a->dk, a->dk_raw);
        gate_backward_all(a);
    }
    return KCP_OK;
}
