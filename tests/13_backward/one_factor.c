/* one_factor.c -- computes backward, but a decay factor between steps underflows to 0.
 * Book: chapter 18c, "One kernel".
 * The mutant imitates a kernel that computes steps of 32 rows from last to first. The
 * kernel stores X = 2^(E - a) dS for dS at a step's end. E is the sum of the step's
 * log2 decays, a the sum up to row 15 and G the sum up to any row. A term of X is
 * 2^(E - a + a') X', where a' and X' belong to the following step. In fp32 this factor
 * is 0 below 2^-126. This 0 is wrong, because a row needs X / 2^(G - a), which is not
 * small if G is near E. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 32, ANCHOR = 15 };

/* The arrays are outputs of chapter 02, their gradients, sums for gradients of
 * parameters, states at the start of steps, and o, which is not read. */
enum { Q, KEYS, DECAYS, BETA, DQ, DK, DG, DBETA, RSTD_Q, RSTD_K, SUMS, DA, DDT, STARTS,
       OUT, ARRAYS };

/* Runs chapter 01 on tokens t0 to t1 - 1 from the state S. Forward writes the state
 * after these tokens to `to`. For backward, `to` has dS after these tokens, and is
 * overwritten with dS before them. */
static int step(const struct kcp_backward *a, double **x, enum kcp_pass pass,
                int64_t t0, int64_t t1, const double *S, double *to)
{
    const int64_t cu[] = { 0, t1 - t0 }, k = t0 * a->H * a->K, b = t0 * a->HV;
    const int64_t v = b * a->V, g = b * a->KG;
    struct kcp_step s = { 0 };
    memcpy(&s, a, sizeof(struct kcp_call));
    s.pass = pass; s.T = t1 - t0; s.N = 1; s.cu_seqlens = cu;
    s.q = x[Q] + k; s.k = x[KEYS] + k; s.v = (const double *)a->v + v;
    s.g = x[DECAYS] + g; s.beta = x[BETA] + b; s.h0 = S;
    s.o = x[OUT] + v; s.ht = s.dh0 = to; s.dht = to;
    s.do_ = (const double *)a->do_ + v; s.dv = (double *)a->dv + v;
    s.dq = x[DQ] + k; s.dk = x[DK] + k; s.dg = x[DG] + g; s.dbeta = x[DBETA] + b;
    return ref_step(&s);
}

/* Sets dS at a step's end to 0 in channels whose decay factor underflows. The step's
 * tokens are `begin` to `end` - 1, the following step's `end` to `next` - 1. */
static void underflow(const struct kcp_backward *a, const double *g, int64_t begin,
                      int64_t end, int64_t next, double *dS)
{
    const int K = a->K, V = a->V, HV = a->HV, KG = a->KG;
    for (int e = 0; e < HV * K && next > end; e++) {
        const int n = e / K, i = e % K;
        double sum = 0;
        for (int64_t t = begin + ANCHOR + 1; t <= end + ANCHOR && t < next; t++)
            sum += g[(t * HV + n) * KG + (KG == 1 ? 0 : i)];
        for (int v = 0; v < V && sum / log(2) < -126; v++)
            dS[n * K * V + (a->layout == KCP_VK ? v * K + i : i * V + v)] = 0;
    }
}

static void copy_or_zero(double *to, const double *from, int64_t n)
{
    if (from) memcpy(to, from, sizeof *to * (size_t)n);
    else memset(to, 0, sizeof *to * (size_t)n);
}

static int sequence(const struct kcp_backward *a, double **x, int n, int one_factor)
{
    const int64_t size = (int64_t)a->HV * a->K * a->V, at = n * size;
    const int64_t begin = a->plan->cu_seqlens[n], end = a->plan->cu_seqlens[n + 1];
    const int64_t steps = (end - begin + STEP - 1) / STEP;
    double *S = x[STARTS], *dS = (double *)a->dh0 + at;
    int status = KCP_OK;
    copy_or_zero(S, a->h0 ? (const double *)a->h0 + at : NULL, size);
    copy_or_zero(dS, a->dht ? (const double *)a->dht + at : NULL, size);
    for (int64_t j = 0; j < 2 * steps && !status; j++) {
        const int back = j >= steps;
        const int64_t s = back ? 2 * steps - 1 - j : j, t0 = begin + s * STEP;
        const int64_t t1 = t0 + STEP < end ? t0 + STEP : end;
        if (back && one_factor)
            underflow(a, x[DECAYS], t0, t1, t1 + STEP < end ? t1 + STEP : end, dS);
        status = step(a, x, back ? KCP_BACKWARD : KCP_FORWARD, t0, t1, S + s * size,
                      back ? dS : S + (s + 1) * size);
    }
    return status;
}

static int front(const struct kcp_backward *a, double **x, int back)
{
    struct kcp_gate g = { 0 };
    memcpy(&g, a, sizeof(struct kcp_call));
    g.pass = back ? KCP_BACKWARD : KCP_FORWARD;
    g.cu = a->cu; g.cn = a->cn; g.sc = a->sc;
    g.q_raw = a->q_raw; g.k_raw = a->k_raw; g.g_raw = a->g_raw;
    g.beta_raw = a->beta_raw; g.A_log = a->A_log; g.dt_bias = a->dt_bias;
    g.q = x[Q]; g.k = x[KEYS]; g.g = x[DECAYS]; g.beta = x[BETA];
    g.rstd_q = x[RSTD_Q]; g.rstd_k = x[RSTD_K]; g.G = x[SUMS];
    if (!back) return ref_gate(&g);
    g.dq = x[DQ]; g.dk = x[DK]; g.dg = x[DG]; g.dbeta = x[DBETA];
    g.dq_raw = a->dq_raw; g.dk_raw = a->dk_raw; g.dg_raw = a->dg_raw;
    g.dbeta_raw = a->dbeta_raw; g.dA_part = x[DA]; g.ddt_part = x[DDT];
    int status = ref_gate(&g);
    if (!status && a->dA_log)
        status = kcp_segment_sum(a->plan, a->comm, x[DA], a->HV, a->dA_log);
    if (!status && a->ddt_bias)
        status = kcp_segment_sum(a->plan, a->comm, x[DDT], (int64_t)a->HV * a->KG,
                                 a->ddt_bias);
    return status;
}

static int one_rank(const struct kcp_backward *a, int one_factor)
{
    const int64_t TH = a->T * a->H, TV = a->T * a->HV, K = a->K;
    const int64_t parts = (int64_t)a->NS * a->HV, states = a->T / STEP + 2;
    const int64_t n[ARRAYS] = { TH * K, TH * K, TV * a->KG, TV, TH * K, TH * K,
                                TV * a->KG, TV, TH, TH, TV * a->KG, parts,
                                parts * a->KG, states * a->HV * K * a->V, TV * a->V };
    double *x[ARRAYS];
    int full = 0;
    if (a->R > 1 || a->plan->scattered) return KCP_NA;
    for (int i = 0; i < ARRAYS; i++) {
        x[i] = calloc((size_t)n[i] + 1, sizeof *x[i]);
        full |= !x[i];
    }
    int status = full ? KCP_NO_MEMORY : front(a, x, 0);
    for (int i = 0; i < a->plan->N && !status; i++)
        status = sequence(a, x, i, one_factor);
    if (!status) status = front(a, x, 1);
    for (int i = 0; i < ARRAYS; i++) free(x[i]);
    return status;
}

static int run_twin(void *args) { return one_rank(args, 0); }
static int run_mutant(void *args) { return one_rank(args, 1); }

KCP_VARIANT(m13_step_twin) = { "13_backward", "twin_steps",
    "correct: computes the recurrence's adjoint, with exact decays", KCP_F64,
    KCP_HOST, "one rank", run_twin, NULL };
KCP_VARIANT(m13_one_factor) = { "13_backward", "mutant_one_factor",
    "sets one decay factor per 32 rows to 0 if it is below 2^-126",
    KCP_F64, KCP_HOST, "one rank", run_mutant, NULL };
