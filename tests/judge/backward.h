/* backward.h -- one small batch, taken through chapters 03, 04 and 09 to 11.
 *
 * Book: chapters 09 to 11.  Checked by: what includes it.  Next: 09_chunk_backward.c.
 * Three stretches (a ragged chunk, one token, several chunks), two value heads a key
 * head, K != V.
 */
#ifndef KCP_TEST_BACKWARD_H
#define KCP_TEST_BACKWARD_H

#include "chapters.h"

enum { SMALL_NS = 3, SMALL_T = 101 };

struct small {
    struct kcp_call c;
    int cu[SMALL_NS + 1], cn[SMALL_NS + 1], sc[SMALL_T], want[SMALL_NS];
    struct arrays arrays;
    double *q, *k, *v, *g, *G, *beta, *dO, *h0, *dht;
    double *Aqk, *A, *u, *w, *kg, *qg, *o, *v_new, *h, *h_out;
    double *dAqk, *dv_local, *dU, *dh, *dh_in, *dmap, *map;
    double *dq, *dk, *dv, *dbeta, *dg;
};

static inline double *small_room(struct small *x, int64_t n)
{
    return arrays_add(&x->arrays, n);
}

static inline void small_free(struct small *x)
{
    arrays_free(&x->arrays);
}

static inline double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t e = 0; e < n; e++)
        s += a[e] * b[e];
    return s;
}

/* Sizes, and inputs: gate 0 draws live gates, gate < 0 is every token's g. */
static inline int small_draw(struct small *x, enum kcp_model model, double gate)
{
    static const int cu[SMALL_NS + 1] = { 0, 37, 38, SMALL_T };
    struct stream s = stream_of(7, "backward.h");
    memset(x, 0, sizeof *x);
    x->c.T = SMALL_T;
    x->c.N = x->c.NS = SMALL_NS;
    x->c.R = 1;
    x->c.C = 16;
    x->c.H = 2;
    x->c.HV = 4;
    x->c.K = 8;
    x->c.V = 12;
    x->c.model = model;
    x->c.KG = model == KCP_KDA ? x->c.K : 1;
    x->c.scale = 0.3;
    memcpy(x->cu, cu, sizeof cu);
    for (int j = 0; j < SMALL_NS; j++) {
        x->cn[j + 1] = x->cn[j] + (cu[j + 1] - cu[j] + x->c.C - 1) / x->c.C;
        for (int c = x->cn[j]; c < x->cn[j + 1]; c++)
            x->sc[c] = j;
        x->want[j] = KCP_WANT_H | KCP_WANT_M;
    }
    x->c.NC = x->cn[SMALL_NS];

    const int64_t qk = x->c.T * x->c.H * x->c.K, vo = x->c.T * x->c.HV * x->c.V;
    const int64_t gate_n = x->c.T * x->c.HV * x->c.KG, one = x->c.T * x->c.HV;
    const int64_t st = (int64_t)x->c.NS * x->c.HV * x->c.K * x->c.V;
    x->q = small_room(x, qk);
    x->k = small_room(x, qk);
    x->v = small_room(x, vo);
    x->g = small_room(x, gate_n);
    x->G = small_room(x, gate_n);
    x->beta = small_room(x, one);
    x->dO = small_room(x, vo);
    x->h0 = small_room(x, st);
    x->dht = small_room(x, st);
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    for (int64_t e = 0; e < qk; e++) {
        x->q[e] = normal(&s) / sqrt(x->c.K);
        x->k[e] = normal(&s) / sqrt(x->c.K);
    }
    for (int64_t e = 0; e < vo; e++) {
        x->v[e] = normal(&s);
        x->dO[e] = normal(&s);
    }
    for (int64_t e = 0; e < gate_n; e++)
        x->g[e] = gate < 0 ? gate : -0.02 * fabs(normal(&s));
    for (int64_t e = 0; e < one; e++)
        x->beta[e] = uniform(&s);
    for (int64_t e = 0; e < st; e++) {
        x->h0[e] = normal(&s);
        x->dht[e] = normal(&s);
    }
    for (int c = 0; c < x->c.NC; c++) {
        const int j = x->sc[c], w = x->c.HV * x->c.KG;
        const int t0 = cu[j] + (c - x->cn[j]) * x->c.C;
        const int t1 = t0 + x->c.C < cu[j + 1] ? t0 + x->c.C : cu[j + 1];
        for (int e = t0 * w; e < t1 * w; e++)
            x->G[e] = x->g[e] / log(2) + (e < (t0 + 1) * w ? 0 : x->G[e - w]);
    }
    return KCP_OK;
}

/* Chapters 03, 04: everything backward reads. */
static inline int small_forward(struct small *x)
{
    int status;
    BATCH_WY_ARRAYS(x);
    BATCH_CHUNK_ARRAYS(x);
    if (x->arrays.full)
        return KCP_NO_MEMORY;
    BATCH_WY(y);
    BATCH_CHUNK(c);
    return (status = ref_wy(&y)) ? status : ref_chunk(&c);
}

/* Chapters 09, 10, 11; wy is the function for chapter 10, the reference's if NULL. */
static inline int small_backward(struct small *x, int (*wy)(void *))
{
    const int64_t T = x->c.T, HV = x->c.HV, K = x->c.K, V = x->c.V;
    int status;
    x->dAqk = small_room(x, T * HV * x->c.C);
    x->dv_local = small_room(x, T * HV * V);
    x->dU = small_room(x, T * HV * V);
    x->dh = small_room(x, x->c.NC * HV * K * V);
    x->dh_in = small_room(x, x->c.NS * HV * K * V);
    x->dmap = small_room(x, x->c.NS * HV * K * (V + K));
    x->dq = small_room(x, T * x->c.H * K);
    x->dk = small_room(x, T * x->c.H * K);
    x->dv = small_room(x, T * HV * V);
    x->dbeta = small_room(x, T * HV);
    x->dg = small_room(x, T * HV * x->c.KG);
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

#endif
