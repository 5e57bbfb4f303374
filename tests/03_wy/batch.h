/* batch.h -- makes a small batch, and runs chapters 02 to 05 and 09 to 11 on it.
 * Book: chapters 03 to 05, 10, 11, 17.
 *
 * The batch has four stretches (runs of tokens), of 2C + C/2 + 1, 1, C and 4C - 1
 * tokens. It has two value heads per key head, and K != V. */
#pragma once

#include "tests/judge/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_NS = 4 };
enum batch_gates { UP_TO_GATE, EACH_GATE, SOME_GATES };
/* batch_each tests the gates in row e for enum value e. G, a running sum of gates,
 * counts a gate below -750 as -750, so that rounding does not lose the other gates. */
static const double batch_gate[][5] = { { 0, -1, -5, -50, -700 },
    { 0, -1, -5, -10, -50 }, { -60, -800, -1e8, -1e30, -1.7e308 } };
static const int batch_C[] = { 4, 5, 8, 16, 64 };

/* The tensors of `set` have the names of the stages' fields. */
struct batch {
    struct kcp_call c;
    const int *cu, *cn, *sc;
    struct tensor_set set;
};

static inline void batch_free(struct batch *x)
{
    tensor_set_free(&x->set);
}

static inline double *batch_at(const struct batch *x, const char *name)
{
    return tensor_find(&x->set, name)->p;
}

/* Runs the reference of a stage on the tensors of a set. */
static inline int batch_stage(const struct batch *x, struct tensor_set *set,
                              const char *stage)
{
    return reference_run(set, stage_find(stage), &x->c);
}

/* Returns RMS(a - b) / RMS(b), where a is tensor `name` of x->set, and b is tensor
 * `name_to` of `to`. */
static inline double batch_apart(const struct batch *x, const char *name,
                                 const struct tensor_set *to, const char *name_to)
{
    const struct tensor *a = tensor_find(&x->set, name), *b = tensor_find(to, name_to);
    return a->n == b->n ? rms_apart(a->p, b->p, a->n) : NAN;
}

/* Draws the inputs and runs chapters 02 to 05 and 09 to 11. Each run of tokens starts
 * from its row of h0 (backward: dht), but the maps of chapters 05 and 11 start from 0.
 * If `gate` is 0, random gates are so near 0 that the state does not vanish. Otherwise,
 * EACH_GATE sets all gates to `gate`. UP_TO_GATE draws gates between `gate` and 0.
 * SOME_GATES sets 1 in 10 gates to `gate`, and the other gates near 0. */
static inline int batch_make(struct batch *x, enum kcp_model model, int C, double gate,
                             enum batch_gates gates)
{
    struct stream s = stream_of(5, "gates");
    struct kcase k;
    char words[200], why[160];
    memset(x, 0, sizeof *x);
    snprintf(words, sizeof words, "live %s H=2 HV=4 K=6 V=10 C=%d lengths=%d,1,%d,%d "
             "h0 dht l2norm beta=sigmoid scale=0.3 seed=5", model_name[model], C,
             2 * C + C / 2 + 1, C, 4 * C - 1);
    int status = case_parse(words, &k, why, sizeof why) ? KCP_BAD : KCP_OK;
    if (!status) status = inputs_draw(&x->set, &k, stage_find("10"), KCP_F64);
    const struct tensor *g = tensor_find(&x->set, "g_raw");
    for (int64_t e = 0; !status && gate < 0 && e < g->n; e++) {
        const int far = gates == EACH_GATE || (gates == SOME_GATES && uniform(&s) < .1);
        const double most = gates == SOME_GATES ? -.05 : gate;
        ((double *)g->p)[e] = far ? gate : most * uniform(&s);
    }
    if (!status) status = pipeline_chunks(&x->set, &k, NULL, KCP_FORWARD);
    if (status) return status;
    x->c = k.call;
    x->c.NS = BATCH_NS;
    x->c.NC = (int)tensor_find(&x->set, "sc")->n;
    x->c.part = KCP_LOCAL | KCP_REVERSE;
    x->cu = tensor_find(&x->set, "cu")->p;
    x->cn = tensor_find(&x->set, "cn")->p;
    x->sc = tensor_find(&x->set, "sc")->p;
    tensor_drop(&x->set, "h_start");
    tensor_drop(&x->set, "dh_end");
    status = batch_stage(x, &x->set, "05_affine");
    return status ? status : batch_stage(x, &x->set, "11_merge_backward");
}

/* Calls `check` on a batch of each model, chunk size and gate. `what` describes the
 * batch. */
static inline int batch_each(struct kcp_report *rep, enum batch_gates gates,
                             int (*check)(struct kcp_report *, struct batch *,
                                          const char *what))
{
    int status = KCP_OK;
    for (int j = 0; j < 50 && !status; j++) {
        const enum kcp_model model = j % 2 ? KCP_GDN : KCP_KDA;
        const double gate = batch_gate[gates][j / 10];
        const int C = batch_C[j / 2 % 5];
        struct batch x;
        char what[80];
        snprintf(what, sizeof what, "%s, C = %d, gate %g", model_name[model], C, gate);
        status = batch_make(&x, model, C, gate, gates);
        if (!status) status = check(rep, &x, what);
        batch_free(&x);
    }
    return status;
}

/* Compares `n` outputs of a batch with outputs of chapter 01, which reads outputs of
 * chapter 02. A tensor has name[i][0] in the batch, and name[i][1] in chapter 01. */
static inline int batch_against_step(struct kcp_report *rep, struct batch *x,
                                     const char *what, enum kcp_pass pass,
                                     const char *const (*name)[2], int n, double tol)
{
    struct tensor_set step = { .n = 0 };
    tensor_set_copy(&step, &x->set);
    x->c.pass = pass;
    const int status = batch_stage(x, &step, "01_step");
    for (int i = 0; i < n && !status; i++) {
        const double d = batch_apart(x, name[i][0], &step, name[i][1]);
        EXPECT(rep, d <= tol, "%s: %s differs from chapter 01 by %.2g", what,
               name[i][0], d);
    }
    tensor_set_free(&step);
    return status;
}

/* Applies the maps of tokens t = t0..t1-1 to X [K,V+K] of value head n: X <- A_t X +
 * [B_t | 0], where A_t = (I - beta k k^T) diag(exp g) and B_t = beta k v^T. */
static inline void batch_tokens(const struct batch *x, int64_t t0, int64_t t1, int n,
                                double *X)
{
    const int K = x->c.K, V = x->c.V, W = V + K, HV = x->c.HV, KG = x->c.KG;
    double Y[32 * 64];
    for (int64_t t = t0; t < t1; t++) {
        const double *k = batch_at(x, "k") + (t * x->c.H + n / (HV / x->c.H)) * K;
        const double *v = batch_at(x, "v") + (t * HV + n) * V;
        const double *g = batch_at(x, "g") + (t * HV + n) * KG;
        const double beta = batch_at(x, "beta")[t * HV + n];
        for (int i = 0; i < K; i++)
            for (int j = 0; j < W; j++) {
                double s = j < V ? beta * k[i] * v[j] : 0;
                for (int p = 0; p < K; p++)
                    s += ((i == p) - beta * k[i] * k[p]) * exp(g[KG > 1 ? p : 0]) *
                         X[p * W + j];
                Y[i * W + j] = s;
            }
        memcpy(X, Y, sizeof(double) * K * W);
    }
}

/* Sets X to [0 | I], the identity map. */
static inline void batch_identity(const struct batch *x, double *X)
{
    const int K = x->c.K, V = x->c.V, W = V + K;
    for (int e = 0; e < K * W; e++) X[e] = e % W == V + e / W;
}
