/* batch.h -- one small batch, taken through chapters 01 to 05 and 09 to 11.
 *
 * Book: chapters 01 to 05, 09 to 11.  Checked by: the checks that include it. Next:
 * ref/01_step.c.
 *
 * Four stretches (ragged, one token, one whole chunk, several chunks), two value heads
 * per key head, K != V. Every array is NaN until it is written.
 */
#ifndef KCP_TEST_BATCH_H
#define KCP_TEST_BATCH_H

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arrays that are freed together. full: out of memory. */
enum { MOST_ARRAYS = 48 };
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

/* relative RMS of a against b; NaN when there is one */
static inline double apart(const double *a, const double *b, int64_t n)
{
    double d = 0, r = 0;
    for (int64_t e = 0; e < n; e++) {
        d += (a[e] - b[e]) * (a[e] - b[e]);
        r += b[e] * b[e];
    }
    return r > 0 ? sqrt(d / r) : sqrt(d);
}

/* A stage's args over the batch x: its sizes, its grid, its arrays by their names. */
#define BATCH_CALL(type, name)                                                        \
    struct type name = { 0 };                                                         \
    memcpy(&name, &x->c, sizeof(struct kcp_call));                                    \
    name.cu = x->cu;                                                                  \
    name.cn = x->cn;                                                                  \
    name.sc = x->sc
#define BATCH_WY(name)                                                                \
    BATCH_CALL(kcp_wy, name);                                                         \
    name.q = x->q;                                                                    \
    name.k = x->k;                                                                    \
    name.v = x->v;                                                                    \
    name.G = x->G;                                                                    \
    name.beta = x->beta;                                                              \
    name.Aqk = x->Aqk;                                                                \
    name.A = x->A;                                                                    \
    name.u = x->u;                                                                    \
    name.w = x->w;                                                                    \
    name.kg = x->kg;                                                                  \
    name.qg = x->qg
#define BATCH_CHUNK(name)                                                             \
    BATCH_CALL(kcp_chunk, name);                                                      \
    name.q = x->q;                                                                    \
    name.k = x->k;                                                                    \
    name.qg = x->qg;                                                                  \
    name.kg = x->kg;                                                                  \
    name.u = x->u;                                                                    \
    name.w = x->w;                                                                    \
    name.Aqk = x->Aqk;                                                                \
    name.G = x->G;                                                                    \
    name.h_in = x->h0;                                                                \
    name.o = x->o;                                                                    \
    name.v_new = x->v_new;                                                            \
    name.h = x->h;                                                                    \
    name.h_out = x->h_out

enum { BATCH_NS = 4 };

struct batch {
    struct kcp_call c;
    int cu[BATCH_NS + 1], cn[BATCH_NS + 1], sc[4096], want[BATCH_NS];
    struct arrays arrays;
    int64_t seq[BATCH_NS + 1];
    double *q_raw, *k_raw, *g_raw, *beta_raw, *rstd, *q, *k, *v, *g, *G, *beta, *h0;
    double *Aqk, *A, *u, *w, *kg, *qg, *o, *v_new, *h, *h_out, *map, *o_step, *ht;
    double *dO, *dht, *dAqk, *dv_local, *dU, *dh, *dh_in, *dmap;
    double *dq, *dk, *dv, *dbeta, *dg;
};

static inline double *batch_array(struct batch *x, int64_t n)
{
    return arrays_add(&x->arrays, n);
}

static inline void batch_free(struct batch *x)
{
    arrays_free(&x->arrays);
}

static inline void batch_normal(const char *name, double *p, int64_t n)
{
    struct stream s = stream_of(5, name);
    for (int64_t e = 0; e < n; e++)
        p[e] = normal(&s);
}

/* Sizes and inputs. Gates: 0: live, -0.02 |N|; else uniform between gate and 0. */
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
    x->q = batch_array(x, qk);
    x->k = batch_array(x, qk);
    x->v = batch_array(x, T * HV * x->c.V);
    x->h0 = batch_array(x, st);
    x->dht = batch_array(x, st);
    x->dO = batch_array(x, T * HV * x->c.V);
    x->g_raw = batch_array(x, gates);
    x->g = batch_array(x, gates);
    x->G = batch_array(x, gates);
    x->rstd = batch_array(x, T * x->c.H);
    x->beta_raw = batch_array(x, T * HV);
    x->beta = batch_array(x, T * HV);
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

/* Chapters 02 (raw gate, sigmoid) and 03. */
static inline int batch_wy(struct batch *x)
{
    int status;
    const int64_t rows = x->c.T * x->c.HV;
    const int gated = x->c.model == KCP_KDA;
    x->Aqk = batch_array(x, rows * x->c.C);
    x->A = batch_array(x, rows * x->c.C);
    x->u = batch_array(x, rows * x->c.V);
    x->w = batch_array(x, rows * x->c.K);
    x->kg = gated ? batch_array(x, rows * x->c.K) : NULL;
    x->qg = gated ? batch_array(x, rows * x->c.K) : NULL;
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    x->c.beta_form = KCP_BETA_SIGMOID;
    BATCH_CALL(kcp_gate, e);
    e.q_raw = x->q_raw;
    e.k_raw = x->k_raw;
    e.g_raw = x->g_raw;
    e.beta_raw = x->beta_raw;
    e.q = x->q;
    e.k = x->k;
    e.rstd_q = e.rstd_k = x->rstd;
    e.g = x->g;
    e.G = x->G;
    e.beta = x->beta;
    BATCH_WY(y);
    return (status = ref_gate(&e)) ? status : ref_wy(&y);
}

/* Chapter 04, each stretch from h0. */
static inline int batch_chunk(struct batch *x)
{
    const int64_t rows = x->c.T * x->c.HV;
    const int64_t KV = (int64_t)x->c.HV * x->c.K * x->c.V;
    x->o = batch_array(x, rows * x->c.V);
    x->v_new = batch_array(x, rows * x->c.V);
    x->h = batch_array(x, x->c.NC * KV);
    x->h_out = batch_array(x, x->c.NS * KV);
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    BATCH_CHUNK(c);
    return ref_chunk(&c);
}

/* Chapter 05 from h_start, NULL: 0. */
static inline int batch_affine(struct batch *x, const double *h_start)
{
    const int64_t KW = (int64_t)x->c.K * (x->c.K + x->c.V);
    if (!x->map)
        x->map = batch_array(x, BATCH_NS * x->c.HV * KW);
    BATCH_CALL(kcp_affine, f);
    f.want = x->want;
    f.k = x->k;
    f.kg = x->kg;
    f.w = x->w;
    f.u = x->u;
    f.G = x->G;
    f.h_start = h_start;
    f.map = x->map;
    return x->arrays.full ? KCP_NO_MEMORY : ref_affine(&f);
}

/* Chapter 01 on what chapter 02 made: the stretches as sequences, each from h0. */
static inline int batch_step(struct batch *x)
{
    x->o_step = batch_array(x, x->c.T * x->c.HV * x->c.V);
    x->ht = batch_array(x, (int64_t)BATCH_NS * x->c.HV * x->c.K * x->c.V);
    struct kcp_step a = { .cu_seqlens = x->seq };
    memcpy(&a, &x->c, sizeof(struct kcp_call));
    a.q = x->q;
    a.k = x->k;
    a.v = x->v;
    a.g = x->g;
    a.beta = x->beta;
    a.h0 = x->h0;
    a.o = x->o_step;
    a.ht = x->ht;
    return x->arrays.full ? KCP_NO_MEMORY : ref_step(&a);
}

static inline double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t e = 0; e < n; e++)
        s += a[e] * b[e];
    return s;
}

/* Chapters 02 to 04, with a gate that is `gate` for every token; 0: live gates. */
static inline int batch_forward(struct batch *x, enum kcp_model model, double gate)
{
    int status = batch_draw(x, model, 16, 0);
    const int64_t gates = x->c.T * x->c.HV * x->c.KG;
    for (int64_t e = 0; !status && gate < 0 && e < gates; e++)
        x->g_raw[e] = gate;
    status = status ? status : batch_wy(x);
    return status ? status : batch_chunk(x);
}

/* Chapters 09, 10, 11; wy: the function of chapter 10, NULL: the reference. */
static inline int batch_backward(struct batch *x, int (*wy)(void *))
{
    const int64_t T = x->c.T, HV = x->c.HV, K = x->c.K, V = x->c.V;
    int status;
    x->dAqk = batch_array(x, T * HV * x->c.C);
    x->dv_local = batch_array(x, T * HV * V);
    x->dU = batch_array(x, T * HV * V);
    x->dh = batch_array(x, x->c.NC * HV * K * V);
    x->dh_in = batch_array(x, x->c.NS * HV * K * V);
    x->dmap = batch_array(x, x->c.NS * HV * K * (V + K));
    x->dq = batch_array(x, T * x->c.H * K);
    x->dk = batch_array(x, T * x->c.H * K);
    x->dv = batch_array(x, T * HV * V);
    x->dbeta = batch_array(x, T * HV);
    x->dg = batch_array(x, T * HV * x->c.KG);
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    BATCH_CALL(kcp_chunk_backward, c);
    c.part = KCP_LOCAL | KCP_REVERSE;
    c.q = x->q;
    c.k = x->k;
    c.qg = x->qg;
    c.kg = x->kg;
    c.w = x->w;
    c.Aqk = x->Aqk;
    c.v_new = x->v_new;
    c.G = x->G;
    c.do_ = x->dO;
    c.dh_out = x->dht;
    c.dAqk = x->dAqk;
    c.dv_local = x->dv_local;
    c.dU = x->dU;
    c.dh = x->dh;
    c.dh_in = x->dh_in;
    BATCH_CALL(kcp_wy_backward, y);
    y.q = x->q;
    y.k = x->k;
    y.v = x->v;
    y.G = x->G;
    y.beta = x->beta;
    y.A = x->A;
    y.v_new = x->v_new;
    y.h = x->h;
    y.do_ = x->dO;
    y.dAqk = x->dAqk;
    y.dU = x->dU;
    y.dh = x->dh;
    y.dq = x->dq;
    y.dk = x->dk;
    y.dv = x->dv;
    y.dbeta = x->dbeta;
    y.dg = x->dg;
    BATCH_CALL(kcp_merge_backward, m);
    m.want = x->want;
    m.q = x->q;
    m.k = x->k;
    m.qg = x->qg;
    m.kg = x->kg;
    m.w = x->w;
    m.G = x->G;
    m.do_ = x->dO;
    m.dv_local = x->dv_local;
    m.dmap = x->dmap;
    if ((status = ref_chunk_backward(&c)) || (status = ref_merge_backward(&m)))
        return status;
    return wy ? wy(&y) : ref_wy_backward(&y);
}

/* Dense token maps of value head n, one after another: X [K,V+K] <- A_t X + [B_t | 0],
 * A_t = (I - beta k k^T) diag(exp g), B_t = beta k v^T. */
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

/* [0 | I] */
static inline void batch_identity(const struct batch *x, double *X)
{
    const int K = x->c.K, V = x->c.V, W = V + K;
    for (int e = 0; e < K * W; e++)
        X[e] = e % W == V + e / W;
}

/* y: the GDN batch x as KDA with its gate in every channel. */
static inline int batch_repeat(const struct batch *x, struct batch *y, double gate)
{
    const int status = batch_draw(y, KCP_KDA, x->c.C, gate), K = x->c.K;
    for (int64_t e = 0; !status && e < x->c.T * x->c.HV * K; e++)
        y->g_raw[e] = x->g_raw[e / K];
    return status;
}

#endif
