/* chapters.h -- what small batches for checks share: arrays, calls of chapters 03, 04.
 *
 * Book: chapters 03, 04.  Checked by: what includes it.  Next: front.h, backward.h.
 */
#ifndef KCP_TEST_CHAPTERS_H
#define KCP_TEST_CHAPTERS_H

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arrays that are freed together, full of NaN. full: there was no memory for one. */
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

/* Room for what chapter 03 writes (wy), and 04; kg and qg are KDA's alone. */
#define BATCH_WY_ARRAYS(x)                                                            \
    do {                                                                              \
        const int64_t rows = (x)->c.T * (x)->c.HV;                                    \
        const int gated = (x)->c.model == KCP_KDA;                                    \
        (x)->Aqk = arrays_add(&(x)->arrays, rows * (x)->c.C);                         \
        (x)->A = arrays_add(&(x)->arrays, rows * (x)->c.C);                           \
        (x)->u = arrays_add(&(x)->arrays, rows * (x)->c.V);                           \
        (x)->w = arrays_add(&(x)->arrays, rows * (x)->c.K);                           \
        (x)->kg = gated ? arrays_add(&(x)->arrays, rows * (x)->c.K) : NULL;           \
        (x)->qg = gated ? arrays_add(&(x)->arrays, rows * (x)->c.K) : NULL;           \
    } while (0)
#define BATCH_CHUNK_ARRAYS(x)                                                         \
    do {                                                                              \
        const int64_t rows = (x)->c.T * (x)->c.HV;                                    \
        const int64_t KV = (int64_t)(x)->c.HV * (x)->c.K * (x)->c.V;                  \
        (x)->o = arrays_add(&(x)->arrays, rows * (x)->c.V);                           \
        (x)->v_new = arrays_add(&(x)->arrays, rows * (x)->c.V);                       \
        (x)->h = arrays_add(&(x)->arrays, (x)->c.NC * KV);                            \
        (x)->h_out = arrays_add(&(x)->arrays, (x)->c.NS * KV);                        \
    } while (0)

#endif
