/* one_factor.c -- computes backward with a decay between steps that underflows to 0.
 *
 * Book: chapter 18, "Backward".  Checked by: the judge, which must reject the mutant
 * and pass the twin.  Next: mutants.c.
 * The kernel works backward in steps of 32 rows and stores dS times 2^a, where a is the
 * sum of a step's log2 decays up to row 15. Before each step the kernel multiplies the
 * stored dS by 2^(E - a + a'), where E is the step's whole sum and a' is the following
 * step's a. In fp32 this factor becomes 0 below 2^-126. The factor 0 is wrong, because
 * rows of the step need dS / 2^(G - a), which is not small. G is a row's running sum of
 * log2 decays. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 32, ANCHOR = 15 };

/* The data of one head. Tensors have shape [T, heads, width]. */
struct walk {
    const struct kcp_backward *a;
    int one_factor, n, m;                /* value head, query/key head */
    const double *q, *k, *g, *beta;
    double *dq, *dk, *dg, *dbeta;
    double *S, *dS;                      /* [STEP + 1,K,V]; [K,V] */
};

static const double *row(const double *x, int64_t t, int heads, int n, int width)
{
    return x + (t * heads + n) * width;
}

static double decay(const struct walk *w, int64_t t, int i)
{
    return row(w->g, t, w->a->HV, w->n, w->a->KG)[w->a->KG == 1 ? 0 : i];
}

/* Computes the state [K,V] after token t (`to`) from the state before token t (`from`).
 * Also computes e = v - k S, where S is the decayed state. */
static void forward(const struct walk *w, int64_t t, const double *from, double *to,
                    double *e)
{
    const int K = w->a->K, V = w->a->V;
    const double *k = row(w->k, t, w->a->H, w->m, K);
    const double beta = w->beta[t * w->a->HV + w->n];
    memcpy(e, row(w->a->v, t, w->a->HV, w->n, V), sizeof *e * (size_t)V);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < V; j++) {
            to[i * V + j] = exp(decay(w, t, i)) * from[i * V + j];
            e[j] -= k[i] * to[i * V + j];
        }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < V; j++) to[i * V + j] += beta * k[i] * e[j];
}

/* Computes the adjoint of forward() and of o = scale q S. `before` and `after` are the
 * states before and after token t. */
static void backward(struct walk *w, int64_t t, const double *before,
                     const double *after, const double *e, double *dv)
{
    const struct kcp_backward *a = w->a;
    const int K = a->K, V = a->V;
    const double *q = row(w->q, t, a->H, w->m, K), *k = row(w->k, t, a->H, w->m, K);
    const double *o = row(a->do_, t, a->HV, w->n, V);
    const double beta = w->beta[t * a->HV + w->n];
    double *dq = w->dq + (t * a->H + w->m) * K, *dk = w->dk + (t * a->H + w->m) * K;
    double *dg = w->dg + (t * a->HV + w->n) * a->KG;
    memset(dv, 0, sizeof *dv * (size_t)V);
    for (int i = 0; i < K; i++) {
        double *D = w->dS + i * V, written = 0;
        for (int j = 0; j < V; j++) {
            D[j] += a->scale * q[i] * o[j];
            dq[i] += a->scale * after[i * V + j] * o[j];
            written += D[j] * e[j];
            dv[j] += beta * k[i] * D[j];
        }
        dk[i] += beta * written;
        w->dbeta[t * a->HV + w->n] += k[i] * written;
    }
    for (int i = 0; i < K; i++) {
        double *D = w->dS + i * V;
        const double f = exp(decay(w, t, i));
        for (int j = 0; j < V; j++) {
            D[j] -= k[i] * dv[j];
            dk[i] -= f * before[i * V + j] * dv[j];
            dg[a->KG == 1 ? 0 : i] += f * before[i * V + j] * D[j];
            D[j] *= f;
        }
    }
    memcpy((double *)a->dv + (t * a->HV + w->n) * V, dv, sizeof *dv * (size_t)V);
}

/* Sets dS after tokens begin to end - 1 (one step) to 0 in channels whose decay factor
 * underflows. The following step ends at token `next`. */
static void underflow(struct walk *w, int64_t begin, int64_t end, int64_t next)
{
    const int V = w->a->V;
    for (int i = 0; i < w->a->K && next > end; i++) {
        double sum = 0;
        for (int64_t t = begin + ANCHOR + 1; t <= end + ANCHOR && t < next; t++)
            sum += decay(w, t, i);
        if (sum / log(2) >= -126) continue;
        memset(w->dS + i * V, 0, sizeof *w->dS * (size_t)V);
    }
}

static int head(struct walk *w, int seq, int64_t begin, int64_t end)
{
    const struct kcp_backward *a = w->a;
    const int64_t KV = (int64_t)a->K * a->V, steps = (end - begin + STEP - 1) / STEP;
    const int64_t state = (seq * a->HV + w->n) * KV;
    const int turned = a->layout == KCP_VK;
    double *starts = calloc((size_t)((steps + 1) * KV), sizeof *starts);
    double *e = calloc((size_t)(STEP + 1) * (size_t)a->V, sizeof *e);
    double *dv = e ? e + STEP * a->V : NULL, *S = w->S;
    if (!starts || !e) {
        free(starts);
        free(e);
        return KCP_NO_MEMORY;
    }
    for (int64_t x = 0; x < KV; x++) {
        const int64_t at = state + (turned ? x % a->V * a->K + x / a->V : x);
        starts[x] = a->h0 ? ((const double *)a->h0)[at] : 0;
        w->dS[x] = a->dht ? ((const double *)a->dht)[at] : 0;
    }
    for (int back = 0; back < 2; back++)
        for (int64_t s = 0; s < steps; s++) {
            const int64_t at = back ? steps - 1 - s : s, t0 = begin + at * STEP;
            const int64_t t1 = t0 + STEP < end ? t0 + STEP : end;
            memcpy(S, starts + at * KV, sizeof *S * (size_t)KV);
            for (int64_t t = t0; t < t1; t++)
                forward(w, t, S + (t - t0) * KV, S + (t - t0 + 1) * KV,
                        e + (t - t0) * a->V);
            memcpy(starts + (at + 1) * KV, S + (t1 - t0) * KV, sizeof *S * (size_t)KV);
            if (!back) continue;
            if (w->one_factor) underflow(w, t0, t1, t1 + STEP < end ? t1 + STEP : end);
            for (int64_t t = t1 - 1; t >= t0; t--)
                backward(w, t, S + (t - t0) * KV, S + (t - t0 + 1) * KV,
                         e + (t - t0) * a->V, dv);
        }
    for (int64_t x = 0; x < KV; x++)
        ((double *)a->dh0)[state + (turned ? x % a->V * a->K + x / a->V : x)] =
            w->dS[x];
    free(starts);
    free(e);
    return KCP_OK;
}

static int front(const struct kcp_backward *a, double **x, int back)
{
    struct kcp_gate g = { 0 };
    memcpy(&g, a, sizeof(struct kcp_call));
    g.pass = back ? KCP_BACKWARD : KCP_FORWARD;
    g.cu = a->cu; g.cn = a->cn; g.sc = a->sc;
    g.q_raw = a->q_raw; g.k_raw = a->k_raw; g.g_raw = a->g_raw;
    g.beta_raw = a->beta_raw; g.A_log = a->A_log; g.dt_bias = a->dt_bias;
    g.q = x[0]; g.k = x[1]; g.g = x[2]; g.beta = x[3];
    g.rstd_q = x[8]; g.rstd_k = x[9]; g.G = x[10];
    if (!back) return ref_gate(&g);
    g.dq = x[4]; g.dk = x[5]; g.dg = x[6]; g.dbeta = x[7];
    g.dq_raw = a->dq_raw; g.dk_raw = a->dk_raw; g.dg_raw = a->dg_raw;
    g.dbeta_raw = a->dbeta_raw; g.dA_part = x[11]; g.ddt_part = x[12];
    int status = ref_gate(&g);
    if (!status && a->dA_log)
        status = kcp_segment_sum(a->plan, a->comm, x[11], a->HV, a->dA_log);
    if (!status && a->ddt_bias)
        status = kcp_segment_sum(a->plan, a->comm, x[12], (int64_t)a->HV * a->KG,
                                 a->ddt_bias);
    return status;
}

static int heads(const struct kcp_backward *a, double **x, int one_factor)
{
    const struct kcp_plan *p = a->plan;
    struct walk w = { a, one_factor, 0, 0, x[0], x[1], x[2], x[3],
                      x[4], x[5], x[6], x[7], x[13], x[14] };
    int status = front(a, x, 0);
    for (int seq = 0; seq < p->N && !status; seq++)
        for (w.n = 0; w.n < a->HV && !status; w.n++) {
            w.m = w.n / (a->HV / a->H);
            status = head(&w, seq, p->cu_seqlens[seq], p->cu_seqlens[seq + 1]);
        }
    return status ? status : front(a, x, 1);
}

static int one_rank(struct kcp_backward *a, int one_factor)
{
    const int64_t TH = a->T * a->H, TV = a->T * a->HV, K = a->K, KV = K * a->V;
    const int64_t parts = (int64_t)a->NS * a->HV;
    const int64_t n[15] = { TH * K, TH * K, TV * a->KG, TV, TH * K, TH * K, TV * a->KG,
                            TV, TH, TH, TV * a->KG, parts, parts * a->KG,
                            (STEP + 1) * KV, KV };
    double *x[15];
    int full = 0;
    if (a->R > 1 || a->plan->scattered) return KCP_NA;
    for (int i = 0; i < 15; i++) {
        x[i] = calloc((size_t)n[i] + 1, sizeof *x[i]);
        full |= !x[i];
    }
    const int status = full ? KCP_NO_MEMORY : heads(a, x, one_factor);
    for (int i = 0; i < 15; i++) free(x[i]);
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
