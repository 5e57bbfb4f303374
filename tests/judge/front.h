/* front.h -- one small batch, taken through chapters 01 to 05.
 *
 * Book: chapters 01 to 05.  Checked by: what includes it.  Next: 01_step.c.
 * Four stretches (ragged, one token, one whole chunk, several), two value heads a key
 * head, K != V. Every array is full of NaN until it is written.
 */
#ifndef KCP_TEST_FRONT_H
#define KCP_TEST_FRONT_H

#include "chapters.h"

enum { FRONT_NS = 4 };

struct front {
    struct kcp_call c;
    int cu[FRONT_NS + 1], cn[FRONT_NS + 1], sc[4096], want[FRONT_NS];
    struct arrays arrays;
    int64_t seq[FRONT_NS + 1];
    double *q_raw, *k_raw, *g_raw, *beta_raw, *rstd, *q, *k, *v, *g, *G, *beta, *h0;
    double *Aqk, *A, *u, *w, *kg, *qg, *o, *v_new, *h, *h_out, *map, *o_step, *ht;
};

static inline double *front_room(struct front *x, int64_t n)
{
    return arrays_add(&x->arrays, n);
}

static inline void front_free(struct front *x)
{
    arrays_free(&x->arrays);
}

static inline void front_normal(const char *name, double *p, int64_t n)
{
    struct stream s = stream_of(5, name);
    for (int64_t e = 0; e < n; e++)
        p[e] = normal(&s);
}

/* Sizes, and inputs. Gates: 0 is live, -0.02 |N|; else uniform between gate and 0, so
 * that strong and weak stand side by side. */
static inline int front_draw(struct front *x, enum kcp_model model, int C, double gate)
{
    const int length[FRONT_NS] = { 2 * C + C / 2 + 1, 1, C, 4 * C - 1 };
    struct stream s = stream_of(5, "gates");
    memset(x, 0, sizeof *x);
    x->c.N = x->c.NS = FRONT_NS;
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
    for (int j = 0; j < FRONT_NS; j++) {
        x->seq[j + 1] = x->cu[j + 1] = x->cu[j] + length[j];
        x->cn[j + 1] = x->cn[j] + (length[j] + C - 1) / C;
        for (int c = x->cn[j]; c < x->cn[j + 1]; c++)
            x->sc[c] = j;
        x->want[j] = KCP_WANT_H | KCP_WANT_M;
    }
    x->c.T = x->cu[FRONT_NS];
    x->c.NC = x->cn[FRONT_NS];

    const int64_t T = x->c.T, HV = x->c.HV, qk = T * x->c.H * x->c.K;
    const int64_t st = FRONT_NS * HV * x->c.K * x->c.V, gates = T * HV * x->c.KG;
    x->q_raw = front_room(x, qk);
    x->k_raw = front_room(x, qk);
    x->q = front_room(x, qk);
    x->k = front_room(x, qk);
    x->v = front_room(x, T * HV * x->c.V);
    x->h0 = front_room(x, st);
    x->g_raw = front_room(x, gates);
    x->g = front_room(x, gates);
    x->G = front_room(x, gates);
    x->rstd = front_room(x, T * x->c.H);
    x->beta_raw = front_room(x, T * HV);
    x->beta = front_room(x, T * HV);
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    front_normal("q", x->q_raw, qk);
    front_normal("k", x->k_raw, qk);
    front_normal("v", x->v, T * HV * x->c.V);
    front_normal("h0", x->h0, st);
    front_normal("beta", x->beta_raw, T * HV);
    for (int64_t e = 0; e < gates; e++)
        x->g_raw[e] = gate < 0 ? gate * uniform(&s) : -0.02 * fabs(normal(&s));
    return KCP_OK;
}

/* Chapters 02 (raw gate, sigmoid) and 03. */
static inline int front_wy(struct front *x)
{
    int status;
    BATCH_WY_ARRAYS(x);
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
static inline int front_chunk(struct front *x)
{
    BATCH_CHUNK_ARRAYS(x);
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    BATCH_CHUNK(c);
    return ref_chunk(&c);
}

/* Chapter 05 from h_start, NULL: 0. */
static inline int front_affine(struct front *x, const double *h_start)
{
    const int64_t KW = (int64_t)x->c.K * (x->c.K + x->c.V);
    if (!x->map)
        x->map = front_room(x, FRONT_NS * x->c.HV * KW);
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
static inline int front_step(struct front *x)
{
    x->o_step = front_room(x, x->c.T * x->c.HV * x->c.V);
    x->ht = front_room(x, (int64_t)FRONT_NS * x->c.HV * x->c.K * x->c.V);
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

/* Dense token maps of value head n, one after another: X [K,V+K] <- A_t X + [B_t | 0],
 * A_t = (I - beta k k^T) diag(exp g), B_t = beta k v^T. */
static inline void front_tokens(const struct front *x, int64_t t0, int64_t t1, int n,
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
static inline void front_identity(const struct front *x, double *X)
{
    const int K = x->c.K, V = x->c.V, W = V + K;
    for (int e = 0; e < K * W; e++)
        X[e] = e % W == V + e / W;
}

/* y: the same batch as x, a GDN one, told as KDA with its gate in every channel. */
static inline int front_repeat(const struct front *x, struct front *y, double gate)
{
    const int status = front_draw(y, KCP_KDA, x->c.C, gate), K = x->c.K;
    for (int64_t e = 0; !status && e < x->c.T * x->c.HV * K; e++)
        y->g_raw[e] = x->g_raw[e / K];
    return status;
}

#endif
