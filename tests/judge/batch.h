/* batch.h -- one small batch on which chapters 01 to 05 and 09 to 11 run.
 *
 * Book: chapters 01 to 05, 09 to 11.  Checked by: the checks that include it. Next:
 * ref/01_step.c.
 *
 * The batch has four stretches (ragged, one token, one whole chunk, several chunks),
 * two value heads per key head, and K != V. Arrays are NaN until they are written. */
#ifndef KCP_TEST_BATCH_H
#define KCP_TEST_BATCH_H

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arrays that are freed together. Field `full` is 1 if an allocation failed. */
enum { MOST_ARRAYS = 64 };
struct arrays { int n, full; double *at[MOST_ARRAYS]; };

static inline double *arrays_add(struct arrays *x, int64_t n)
{
    double *p = x->n < MOST_ARRAYS ? malloc(sizeof *p * (size_t)(n + 1)) : NULL;
    for (int64_t e = 0; p && e < n; e++)
        p[e] = NAN;
    x->full |= !p;
    if (p)
        x->at[x->n++] = p;
    return p;
}

static inline void arrays_free(struct arrays *x)
{
    for (int j = 0; j < x->n; j++)
        free(x->at[j]);
}

/* Returns RMS(a - b) / RMS(b), or NaN if a or b contains NaN. */
static inline double apart(const double *a, const double *b, int64_t n)
{
    double d = 0, r = 0;
    for (int64_t e = 0; e < n; e++) {
        d += (a[e] - b[e]) * (a[e] - b[e]);
        r += b[e] * b[e];
    }
    return r > 0 ? sqrt(d / r) : sqrt(d);
}

enum { BATCH_NS = 4 };

/* The arrays of a batch have the names of the stages' fields. */
#define BATCH_ARRAYS(F)                                                                \
    F(q_raw) F(k_raw) F(g_raw) F(beta_raw) F(rstd) F(q) F(k) F(v) F(g) F(G) F(beta)    \
    F(h0) F(Aqk) F(A) F(u) F(w) F(kg) F(qg) F(o) F(v_new) F(h) F(h_out) F(map)         \
    F(o_step) F(ht) F(dO) F(dht) F(dAqk) F(dv_local) F(dU) F(dh) F(dh_in) F(dmap)      \
    F(dq) F(dk) F(dv) F(dbeta) F(dg)
struct batch {
    struct kcp_call c;
    int cu[BATCH_NS + 1], cn[BATCH_NS + 1], sc[4096], want[BATCH_NS];
    struct arrays arrays;
    int64_t seq[BATCH_NS + 1];
#define BATCH_MEMBER(name) double *name;
    BATCH_ARRAYS(BATCH_MEMBER)
#undef BATCH_MEMBER
};

static inline double *batch_array(struct batch *x, int64_t n)
{
    return arrays_add(&x->arrays, n);
}

static inline void batch_free(struct batch *x)
{
    arrays_free(&x->arrays);
}

/* Finds the array of a field; NULL: the batch has no such array. */
static inline double **batch_find(struct batch *x, const char *field)
{
    static const struct { const char *name; size_t at; } of[] = {
#define BATCH_AT(name) { #name, offsetof(struct batch, name) },
        BATCH_ARRAYS(BATCH_AT)
#undef BATCH_AT
        { "rstd_q", offsetof(struct batch, rstd) },
        { "rstd_k", offsetof(struct batch, rstd) },
        { "h_in", offsetof(struct batch, h0) }, { "do_", offsetof(struct batch, dO) },
        { "dh_out", offsetof(struct batch, dht) } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(of[i].name, field))
            return (double **)(void *)((char *)x + of[i].at);
    return NULL;
}

/* Fills a stage's `args` with the batch's sizes and, by field name, the batch's
 * arrays. */
static inline void batch_bind(struct batch *x, const char *stage, void *args)
{
    const struct { const char *name; void *at; } grid[] = {
        { "cu", x->cu }, { "cn", x->cn }, { "sc", x->sc }, { "want", x->want },
        { "cu_seqlens", x->seq } };
    const struct kcp_stage *s = stage_find(stage);
    memset(args, 0, s->args);
    memcpy(args, &x->c, sizeof x->c);
    for (int i = 0; i < s->nfields; i++) {
        double **array = batch_find(x, s->fields[i].name);
        void *at = array ? *array : NULL;
        for (size_t j = 0; j < sizeof grid / sizeof *grid; j++)
            if (!strcmp(grid[j].name, s->fields[i].name)) at = grid[j].at;
        memcpy((char *)args + s->fields[i].at, &at, sizeof at);
    }
}

/* Allocates the stage's outputs that are arrays of the batch. */
static inline int batch_outputs(struct batch *x, const char *stage)
{
    const struct kcp_stage *s = stage_find(stage);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        double **array = field_in(f) ? NULL : batch_find(x, f->name);
        int64_t dim[4], n = 1;
        if (!array || !field_used(f, &x->c)) continue;
        for (int d = shape_dims(&x->c, f->shape, dim); d > 0; d--) n *= dim[d - 1];
        *array = batch_array(x, n);
    }
    return x->arrays.full ? KCP_NO_MEMORY : KCP_OK;
}

/* Allocates a stage's outputs and runs the stage's reference on the batch. */
static inline int batch_stage(struct batch *x, const char *stage)
{
    char args[sizeof(struct kcp_backward) + 64] __attribute__((aligned(16)));
    const int status = batch_outputs(x, stage);
    batch_bind(x, stage, args);
    return status ? status : stage_find(stage)->ref(args);
}

static inline void batch_normal(const char *name, double *p, int64_t n)
{
    struct stream s = stream_of(5, name);
    for (int64_t e = 0; e < n; e++)
        p[e] = normal(&s);
}

/* Sets sizes and draws inputs. Gates are uniform between `gate` and 0; if `gate` is 0,
 * they are -0.02 |N| with N normal, which keeps the state alive. */
static inline int batch_draw(struct batch *x, enum kcp_model model, int C, double gate)
{
    const int length[BATCH_NS] = { 2 * C + C / 2 + 1, 1, C, 4 * C - 1 };
    struct stream s = stream_of(5, "gates");
    memset(x, 0, sizeof *x);
    x->c.N = x->c.NS = BATCH_NS;
    x->c.R = 1;
    x->c.C = C;
    x->c.model = model;
    x->c.H = 2;
    x->c.HV = 4;
    x->c.K = 6;
    x->c.V = 10;
    x->c.scale = 0.3;
    x->c.KG = model == KCP_KDA ? x->c.K : 1;
    x->c.l2norm = 1;
    for (int j = 0; j < BATCH_NS; j++) {
        x->seq[j + 1] = x->cu[j + 1] = x->cu[j] + length[j];
        x->cn[j + 1] = x->cn[j] + (length[j] + C - 1) / C;
        for (int c = x->cn[j]; c < x->cn[j + 1]; c++)
            x->sc[c] = j;
        x->want[j] = KCP_WANT_H | KCP_WANT_M;
    }
    x->c.T = x->cu[BATCH_NS];
    x->c.NC = x->cn[BATCH_NS];

    const int64_t T = x->c.T, HV = x->c.HV, qk = T * x->c.H * x->c.K;
    const int64_t st = BATCH_NS * HV * x->c.K * x->c.V, gates = T * HV * x->c.KG;
    x->q_raw = batch_array(x, qk);
    x->k_raw = batch_array(x, qk);
    x->v = batch_array(x, T * HV * x->c.V);
    x->h0 = batch_array(x, st);
    x->dht = batch_array(x, st);
    x->dO = batch_array(x, T * HV * x->c.V);
    x->g_raw = batch_array(x, gates);
    x->beta_raw = batch_array(x, T * HV);
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    batch_normal("q", x->q_raw, qk);
    batch_normal("k", x->k_raw, qk);
    batch_normal("v", x->v, T * HV * x->c.V);
    batch_normal("h0", x->h0, st);
    batch_normal("dht", x->dht, st);
    batch_normal("dO", x->dO, T * HV * x->c.V);
    batch_normal("beta", x->beta_raw, T * HV);
    for (int64_t e = 0; e < gates; e++)
        x->g_raw[e] = gate < 0 ? gate * uniform(&s) : -0.02 * fabs(normal(&s));
    return KCP_OK;
}

/* Runs chapters 02 (raw gate, sigmoid) and 03. */
static inline int batch_wy(struct batch *x)
{
    x->c.beta_form = KCP_BETA_SIGMOID;
    const int status = batch_stage(x, "02_gate");
    return status ? status : batch_stage(x, "03_wy");
}

/* Runs chapter 04; each stretch starts from its row of h0. */
static inline int batch_chunk(struct batch *x) { return batch_stage(x, "04_chunk"); }

/* Runs chapter 05 from state 0. */
static inline int batch_affine(struct batch *x) { return batch_stage(x, "05_affine"); }

/* Runs chapter 01 on the outputs of chapter 02. Each stretch is a sequence that
 * starts from its row of h0. */
static inline int batch_step(struct batch *x)
{
    struct kcp_step a;
    x->o_step = batch_array(x, x->c.T * x->c.HV * x->c.V);
    x->ht = batch_array(x, (int64_t)BATCH_NS * x->c.HV * x->c.K * x->c.V);
    batch_bind(x, "01_step", &a);
    a.o = x->o_step;
    return x->arrays.full ? KCP_NO_MEMORY : ref_step(&a);
}

/* Draws a batch in which all raw gates are `gate` (0: random gates that keep the state
 * alive) and runs chapters 02 to 04. */
static inline int batch_forward(struct batch *x, enum kcp_model model, double gate)
{
    int status = batch_draw(x, model, 16, 0);
    const int64_t gates = x->c.T * x->c.HV * x->c.KG;
    for (int64_t e = 0; !status && gate < 0 && e < gates; e++)
        x->g_raw[e] = gate;
    status = status ? status : batch_wy(x);
    return status ? status : batch_chunk(x);
}

/* Runs chapters 09, 11 and 10. */
static inline int batch_backward(struct batch *x)
{
    x->c.part = KCP_LOCAL | KCP_REVERSE;
    int status = batch_stage(x, "09_chunk_backward");
    if (!status) status = batch_stage(x, "11_merge_backward");
    return status ? status : batch_stage(x, "10_wy_backward");
}

/* Applies the token maps of value head n in order, t0 <= t < t1: X [K,V+K] <- A_t X
 * + [B_t | 0], where A_t = (I - beta k k^T) diag(exp g) and B_t = beta k v^T. */
static inline void batch_tokens(const struct batch *x, int64_t t0, int64_t t1, int n,
                                double *X)
{
    const int K = x->c.K, V = x->c.V, W = V + K, HV = x->c.HV, KG = x->c.KG;
    double Y[32 * 64];
    for (int64_t t = t0; t < t1; t++) {
        const double *k = x->k + (t * x->c.H + n / (HV / x->c.H)) * K;
        const double *v = x->v + (t * HV + n) * V, *g = x->g + (t * HV + n) * KG;
        const double beta = x->beta[t * HV + n];
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
    for (int e = 0; e < K * W; e++)
        X[e] = e % W == V + e / W;
}

#endif
