/* one_factor.c -- computes forward, but a decay factor between steps underflows to 0.
 * Book: chapter 18.
 * The kernel works in steps of 32 rows and stores the state times 2^a, where a is
 * the sum of a step's log2 decays up to row 15. For the next step the kernel
 * multiplies the stored state by 2^(E - a + a'), where E is the sum over all rows of
 * the step and a' is the next step's a. In fp32, 2^(E - a + a') becomes 0 below
 * 2^-126. The factor 0 is wrong, because a token of the next step multiplies the stored
 * state by a second factor 2^(G - a'), where G is the sum of log2 decays from that
 * step's start to the token. The product of both factors may be near 1. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 32, ANCHOR = 15 };

/* If the decay factor before a step underflows, sets g of the step's first token to
 * -2000, which clears the state as g = -infinity would. */
static void underflow(const struct kcp_forward *a, double *g, int64_t begin,
                      int64_t end)
{
    const int row = a->HV * a->KG;
    for (int64_t t = begin + STEP; t < end; t += STEP)
        for (int at = 0; at < row; at++) {
            double sum = 0;
            for (int64_t r = t - STEP + ANCHOR + 1; r <= t + ANCHOR && r < end; r++)
                sum += g[r * row + at];
            if (sum / log(2) < -126) g[t * row + at] = -2000;
        }
}

/* Computes the gates first, and then forward from raw gates. The reference reads the
 * other inputs, so a new input of stage 08 needs no change here. */
static int from_raw_gates(struct kcp_forward *a, double *x[7], int one_factor)
{
    const struct kcp_plan *p = a->plan;
    struct kcp_gate gate = { 0 };
    struct kcp_forward raw = *a;
    memcpy(&gate, a, sizeof(struct kcp_call));
    gate.pass = KCP_FORWARD;
    gate.cu = a->cu; gate.cn = a->cn; gate.sc = a->sc;
    gate.q_raw = a->q_raw; gate.k_raw = a->k_raw; gate.g_raw = a->g_raw;
    gate.beta_raw = a->beta_raw; gate.A_log = a->A_log; gate.dt_bias = a->dt_bias;
    gate.q = x[0]; gate.k = x[1]; gate.rstd_q = x[2]; gate.rstd_k = x[3];
    gate.g = x[4]; gate.G = x[5]; gate.beta = x[6];
    const int status = ref_gate(&gate);
    if (status) return status;
    for (int n = 0; n < p->N && one_factor; n++)
        underflow(a, x[4], p->cu_seqlens[n], p->cu_seqlens[n + 1]);
    raw.gate = KCP_GATE_RAW;
    raw.g_raw = x[4];
    raw.A_log = raw.dt_bias = NULL;
    raw.saved = NULL;
    raw.saved_bytes = 0;
    return ref_forward(&raw);
}

static int steps(struct kcp_forward *a, int one_factor)
{
    const int64_t TH = a->T * a->H, TV = a->T * a->HV;
    const int64_t n[7] = { TH * a->K, TH * a->K, TH, TH, TV * a->KG, TV * a->KG, TV };
    double *x[7];
    int full = 0;
    if (a->R > 1 || a->plan->scattered) return KCP_NA;
    for (int i = 0; i < 7; i++) {
        x[i] = calloc((size_t)n[i] + 1, sizeof *x[i]);
        full |= !x[i];
    }
    const int status = full ? KCP_NO_MEMORY : from_raw_gates(a, x, one_factor);
    for (int i = 0; i < 7; i++) free(x[i]);
    return status;
}

static int run_twin(void *args) { return steps(args, 0); }
static int run_mutant(void *args) { return steps(args, 1); }

KCP_VARIANT(m08_step_twin) = { "08_forward", "twin_steps",
    "correct: computes the gates first, with exact decays", KCP_F64, KCP_HOST,
    "one rank", run_twin, NULL };
KCP_VARIANT(m08_one_factor) = { "08_forward", "mutant_one_factor",
    "sets one decay factor per 32 rows to 0 if it is below 2^-126", KCP_F64,
    KCP_HOST, "one rank", run_mutant, NULL };
