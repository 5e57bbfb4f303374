/* batch.h -- runs forward and backward of one batch with R threads as ranks.
 *
 * Book: chapters 12 and 13.  Checked by: the tests that include it.
 * Next: ref/13_backward.c.
 * The batch has six sequences (two empty, one of one token), h0, dht, softplus gates,
 * two value heads per key head, and K != V. */
#ifndef KCP_TEST_13_H
#define KCP_TEST_13_H

#include "tests/judge/family_batch.h"

enum { K = 8, V = 6 };

enum { Q, KK, VV, G, BETA, A_LOG, DT, H0, DO, DHT, INPUTS };
enum { O, HT, DQ, DK, DV, DG, DBETA, DA, DDT, DH0, OUTPUTS };
static const char *const out_name[] = { "o", "ht", "dq", "dk", "dv", "dg", "dbeta",
                                        "dA_log", "ddt_bias", "dh0" };

/* The options of one run, and the outputs of all ranks. */
struct batch {
    enum kcp_model model;
    int R, reuse_M;
    int spoil;                          /* an error of tests/08_forward/layer.c */
    int64_t L;
    const int64_t *cuts;
    enum kcp_form form;
    enum kcp_save save;
    enum kcp_layout layout;
    struct kcp_plan *plan;
    int out_size[OUTPUTS];
    double *in[INPUTS], *out[OUTPUTS];
    double *params;                     /* dA_log, ddt_bias of every rank */
    struct kcp_traffic ahead[MOST], traffic[MOST];          /* of forward, backward */
    struct kcp_traffic formula[2][MOST];                    /* of each exchange */
};

static inline int wide(const struct batch *x)
{
    return x->model == KCP_KDA ? K : 1;
}

/* Draws inputs, with gates so near 0 that states survive the longest sequence. */
static inline int draw(struct batch *x)
{
    enum { QK = T * H * K, VALUES = T * HV * V, STATES = N * HV * K * V };
    const int w = wide(x);
    const int in_size[] = { QK, QK, VALUES, T * HV * w, T * HV, HV, HV * w, STATES,
                            VALUES, STATES };
    const int out_size[] = { VALUES, STATES, QK, QK, VALUES, T * HV * w, T * HV, HV,
                             HV * w, STATES };
    struct stream s = stream_of(13, "13_backward");
    memcpy(x->out_size, out_size, sizeof out_size);
    for (int j = 0; j < INPUTS; j++) {
        if (!(x->in[j] = malloc(sizeof(double) * in_size[j]))) return KCP_NO_MEMORY;
        for (int e = 0; e < in_size[j]; e++)
            switch (j) {
            case G:     x->in[j][e] = -5 + .5 * normal(&s); break;
            case BETA:  x->in[j][e] = -1 + normal(&s); break;
            case A_LOG: x->in[j][e] = log(1 + uniform(&s)); break;
            default:    x->in[j][e] = normal(&s);
            }
    }
    return KCP_OK;
}

static inline struct kcp_forward call(const struct batch *x, struct kcp_comm *comm)
{
    const struct kcp_context *c = &x->plan->ctx[comm->r];
    const int64_t t = c->begin, w = wide(x);
    return (struct kcp_forward){
        .T = c->end - c->begin, .N = N, .NS = c->NS, .NC = c->NC, .R = x->R,
        .r = comm->r, .H = H, .HV = HV, .K = K, .V = V, .C = x->plan->C, .KG = (int)w,
        .model = x->model, .gate = KCP_GATE_SOFTPLUS, .beta_form = KCP_BETA_SIGMOID2,
        .l2norm = 1, .scale = 0.4, .layout = x->layout, .save = x->save,
        .form = x->form, .reuse_M = x->reuse_M, .plan = x->plan, .comm = comm,
        .ops = &ref_mapops, .cu = c->cu, .cn = c->cn, .sc = c->sc,
        .q_raw = x->in[Q] + t * H * K, .k_raw = x->in[KK] + t * H * K,
        .v = x->in[VV] + t * HV * V, .g_raw = x->in[G] + t * HV * w,
        .beta_raw = x->in[BETA] + t * HV, .A_log = x->in[A_LOG], .dt_bias = x->in[DT],
        .h0 = x->in[H0], .o = x->out[O] + t * HV * V, .ht = x->out[HT],
    };
}

/* Returns the backward call that belongs to forward call f of a rank. */
static inline struct kcp_backward backward_of(const struct batch *x,
                                              const struct kcp_forward *f)
{
    const int64_t t = x->plan->ctx[f->r].begin, w = wide(x);
    double *params = x->params + f->r * HV * (1 + w);
    struct kcp_backward b = { .cu = f->cu, .cn = f->cn, .sc = f->sc,
        .q_raw = f->q_raw, .k_raw = f->k_raw, .v = f->v, .g_raw = f->g_raw,
        .beta_raw = f->beta_raw, .A_log = f->A_log, .dt_bias = f->dt_bias, .h0 = f->h0,
        .saved = f->saved, .saved_bytes = f->saved_bytes,
        .do_ = x->in[DO] + t * HV * V, .dht = x->in[DHT],
        .dq_raw = x->out[DQ] + t * H * K, .dk_raw = x->out[DK] + t * H * K,
        .dv = x->out[DV] + t * HV * V, .dg_raw = x->out[DG] + t * HV * w,
        .dbeta_raw = x->out[DBETA] + t * HV, .dh0 = x->out[DH0], .dA_log = params,
        .ddt_bias = params + HV };
    memcpy(&b, f, sizeof(struct kcp_call));
    return b;
}

/* Runs forward on one rank, then backward from the saved block. */
static inline int body(struct kcp_comm *comm, void *arg)
{
    struct batch *x = arg;
    struct kcp_forward f = call(x, comm);
    f.saved_bytes = kcp_saved_bytes(&f);
    f.saved = malloc(f.saved_bytes);
    struct kcp_backward b = backward_of(x, &f);
    int status = f.saved ? ref_forward(&f) : KCP_NO_MEMORY;
    x->ahead[comm->r] = comm->traffic;
    comm->traffic = (struct kcp_traffic){ 0 };
    status = status ? status : ref_backward(&b);
    x->traffic[comm->r] = comm->traffic;
    struct kcp_exchange e = {
        .form = x->form, .reuse_M = x->reuse_M, .HV = HV, .K = K, .V = V,
        .plan = x->plan, .comm = comm, .ops = &ref_mapops };
    for (e.backward = 0; e.backward < 2; e.backward++)
        x->formula[e.backward][comm->r] = kcp_exchange_formula(&e);
    free(f.saved);
    return status;
}

static inline void drop(struct batch *x)
{
    arrays_free(x->out, OUTPUTS);
    free(x->params);
    kcp_plan_free(x->plan);
}

static inline void drop_inputs(struct batch *x)
{
    arrays_free(x->in, INPUTS);
}

static inline int go_with(int body_of(struct kcp_comm *, void *), struct batch *x,
                          char *why)
{
    int status = kcp_plan_make(&x->plan, N, cu, x->R, x->cuts, x->L, C, 0, NULL);
    why[0] = 0;
    x->params = malloc(sizeof(double) * x->R * HV * (1 + wide(x)));
    if (!x->params || outputs_add(x->out, x->out_size, OUTPUTS)) return KCP_NO_MEMORY;
    status = status ? status : kcp_threads_run(x->R, body_of, x, why, 160);
    if (!status) {
        memcpy(x->out[DA], x->params, sizeof(double) * HV);
        memcpy(x->out[DDT], x->params + HV, sizeof(double) * HV * wide(x));
    }
    return status;
}

static inline int go(struct batch *x, char *why) { return go_with(body, x, why); }

/* Returns the largest relative RMS difference between two runs over all outputs, or -1
 * if all bits are equal. */
static inline double apart(const struct batch *a, const struct batch *b, int *worst)
{
    return outputs_apart(a->out, b->out, a->out_size, OUTPUTS, worst);
}

#endif
