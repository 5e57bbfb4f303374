/* layer.h -- runs one layer in both passes over thread ranks and a lossy wire.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c.  Next: book/wire.c.
 *
 * The references compute one sequence in double, with gates of three strengths. */
#ifndef BOOK_LOSSY_LAYER_H
#define BOOK_LOSSY_LAYER_H

#include "ref.h"
#include "ref/layer.h"
#include "wire.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LT = 512, LH = 2, LK = 24, LV = 24, LC = 32, LR = 16 };
enum strength { GATES_LIVE, GATES_MODEST, GATES_STRONG, GATES_ALL };
static const char *const strength_name[] = { "live", "modest", "strong" };

struct answers {
    double o[LT][LH][LV], ht[LH][LK][LV], dq[LT][LH][LK], dk[LT][LH][LK];
    double dv[LT][LH][LV], dg[LT][LH][LK], dbeta[LT][LH], dh0[LH][LK][LV];
};

struct lossy_layer {
    double q[LT][LH][LK], k[LT][LH][LK], v[LT][LH][LV], g[LT][LH][LK], beta[LT][LH];
    double do_[LT][LH][LV];
    enum kcp_model model;
    enum kcp_form form;
    struct kcp_wire wire;
    int lossy;                     /* 0: exact communicator */
    int late;                      /* rank 0 begins after rank 2 ends */
    const struct kcp_plan *plan;
    struct answers got;
    struct kcp_wire_told told[2][LR];                /* forward, backward */
    struct kcp_traffic sent[LR];
};

/* Draws the inputs. Argument `strength` decides if a state survives all tokens, an
 * eighth, or a few. */
static inline void lossy_draw(struct lossy_layer *a, enum kcp_model model,
                              enum strength strength, uint64_t seed)
{
    static const double mean[] = { 1.0 / LT, 24.0 / LT, 1 };
    memset(a, 0, sizeof *a);
    a->model = model;
    for (double *x = &a->q[0][0][0]; x < &a->g[0][0][0]; x++)
        *x = random_normal(&seed);
    for (double *x = &a->g[0][0][0]; x < &a->beta[0][0]; x++)
        *x = -mean[strength] * (0.5 + random_uniform(&seed));
    for (double *x = &a->beta[0][0]; x < &a->do_[0][0][0]; x++)
        *x = random_normal(&seed) - 3;
    for (int i = 0; i < LT * LH * LV; i++)
        (&a->do_[0][0][0])[i] = random_normal(&seed);
}

/* Runs forward and backward on one rank and records which states each pass dropped. GDN
 * uses the first channel of KDA's g. */
static inline int lossy_rank(struct kcp_comm *over, void *arg)
{
    struct lossy_layer *a = arg;
    const struct kcp_context *x = &a->plan->ctx[over->r];
    const int64_t t = x->begin;
    struct kcp_comm *comm = over;
    struct kcp_layer ref;
    int status = KCP_OK;
    if (a->lossy && (status = kcp_wire_over(&comm, over, &a->wire, NULL, 0)))
        return status;
    kcp_layer_ref(&ref);
    const int KG = a->model == KCP_GDN ? 1 : LK;
    struct kcp_call c = { .H = LH, .HV = LH, .K = LK, .V = LV, .KG = KG,
        .model = a->model, .beta_form = KCP_BETA_SIGMOID, .l2norm = 1,
        .scale = 1 / sqrt(LK), .form = a->form };
    kcp_layer_call(&ref, &c, a->plan, comm);
    struct answers *y = &a->got;
    double *g = &a->g[0][0][0] + t * LH * KG, *dg = &y->dg[0][0][0] + t * LH * KG;
    struct kcp_forward f = { .cu = x->cu, .cn = x->cn, .sc = x->sc, .q_raw = a->q[t],
        .k_raw = a->k[t], .v = a->v[t], .g_raw = g, .beta_raw = a->beta[t],
        .o = y->o[t], .ht = y->ht };
    struct kcp_backward b = { .cu = x->cu, .cn = x->cn, .sc = x->sc, .q_raw = a->q[t],
        .k_raw = a->k[t], .v = a->v[t], .g_raw = g, .beta_raw = a->beta[t],
        .do_ = a->do_[t], .dq_raw = y->dq[t], .dk_raw = y->dk[t], .dv = y->dv[t],
        .dg_raw = dg, .dbeta_raw = y->dbeta[t], .dh0 = y->dh0 };
    memcpy(&f, &c, sizeof c);
    memcpy(&b, &c, sizeof c);
    f.saved_bytes = b.saved_bytes = kcp_layer_saved(&ref, &c);
    b.saved = f.saved = malloc(f.saved_bytes + 1);
    status = f.saved ? kcp_layer_forward(&ref, &f) : KCP_NO_MEMORY;
    if (!status && a->lossy) kcp_wire_told(comm, &a->told[0][over->r]);
    if (!status) status = kcp_layer_backward(&ref, &b);
    if (!status && a->lossy) kcp_wire_told(comm, &a->told[1][over->r]);
    a->sent[over->r] = comm->traffic;
    free(f.saved);
    if (comm != over) comm->free(comm);
    return status;
}

/* Runs R ranks with equal shares. On success `why` is empty. */
static inline int lossy_run(struct lossy_layer *a, int R, enum kcp_form form, char *why,
                            size_t n)
{
    const int64_t cu[] = { 0, LT };
    struct kcp_plan *plan;
    const char *no = NULL;
    why[0] = 0;
    a->form = form;
    memset(&a->got, 0xff, sizeof a->got);
    if (kcp_plan_make(&plan, 1, cu, R, NULL, 0, LC, 0, &no))
        return KCP_BAD;
    a->plan = plan;
    const int status = kcp_threads_run(R, lossy_rank, a, why, n);
    kcp_plan_free(plan);
    return status;
}

/* Returns |x - y| / |y| over `bytes` of doubles. */
static inline double lossy_apart(const void *x_, const void *y_, size_t bytes)
{
    const double *x = x_, *y = y_;
    double d = 0, s = 0;
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        d += (x[i] - y[i]) * (x[i] - y[i]);
        s += y[i] * y[i];
    }
    return s > 0 ? sqrt(d / s) : sqrt(d);
}

#endif
