/* run.h -- runs a batch of any model of chapter 16 with R threads as ranks.
 *
 * Book: chapter 16.  Checked by: the tests that include it.  Next: ref/16_family.c.
 * The batch has six sequences (two empty, one of one token), h0, dht, two value heads
 * per key head, and K != V.
 */
#ifndef KCP_TEST_16_H
#define KCP_TEST_16_H

#include "tests/judge/family_batch.h"
#include "ref/16_family.h"
#include "layer.h"

enum { K = 6, V = 5 };
static const enum kcp_model models[] = { KCP_DPLR, KCP_GDN2, KCP_GLA };

enum { Q, KEY, VAL, G, A, B, OMEGA, H0, DO, DHT, INPUTS };
enum { O, HT, DQ, DK, DV, DG, DA, DB, DOMEGA, DH0, OUTPUTS };
static const char *const out_name[] = { "o", "ht", "dq", "dk", "dv", "dg", "da", "db",
                                        "domega", "dh0" };
enum { QK = T * H * K, KEYS = T * HV * K, VALUES = T * HV * V,
       STATES = N * HV * K * V };
static const int in_size[] = { QK, QK, VALUES, KEYS, KEYS, KEYS, VALUES, STATES, VALUES,
                               STATES };
static const int out_size[] = { VALUES, STATES, QK, QK, VALUES, KEYS, KEYS, KEYS,
                                VALUES, STATES };

struct batch {
    enum kcp_model model;
    int R, keep, walk;                  /* keep: pass h_kept; walk: run the oracle */
    int by_layer;                       /* call through layer.h */
    int sequences;                      /* in the plan; 0: N */
    enum kcp_spread spread;             /* owners; 0: cuts */
    const struct kcp_mapops *ops;       /* NULL: the reference's */
    int64_t L;
    const int64_t *cuts;
    enum kcp_form form;
    struct kcp_plan *plan;
    double *in[INPUTS], *out[OUTPUTS];
    struct kcp_traffic traffic[MOST], formula[MOST];       /* of forward */
    struct kcp_traffic traffic_back[MOST];
};

static inline int one_pass(const struct batch *x, struct kcp_family *a)
{
    struct kcp_layer layer;
    kcp_layer_ref(&layer);
    if (x->by_layer) return kcp_layer_family(&layer, a);
    return x->walk ? ref_family_step(a) : ref_family(a);
}

/* Draws the model's inputs, with gates that let states survive (regime LIVE). */
static inline int draw(struct batch *x)
{
    struct kcase k = { .regime = LIVE, .seed = 16 };
    struct tensor_set b = { .n = 0 };
    static const char *const name[] = { "q", "k", "v", "g", "a", "b", "omega", "h0",
                                        "do_", "dht" };
    k.call = (struct kcp_call){ .T = T, .N = N, .H = H, .HV = HV, .K = K, .V = V,
                                .C = C, .KG = K, .model = x->model };
    k.with_h0 = k.with_dht = 1;
    memcpy(k.cu, cu, sizeof cu);
    inputs_draw(&b, &k, stage_find("16"), KCP_F64);
    for (int j = 0; j < INPUTS; j++) {
        const struct tensor *t = tensor_find(&b, name[j]);
        if (!(x->in[j] = calloc(in_size[j], sizeof(double)))) return KCP_NO_MEMORY;
        if (t) memcpy(x->in[j], t->p, sizeof(double) * in_size[j]);
    }
    tensor_set_free(&b);
    return KCP_OK;
}

static inline struct kcp_family call(const struct batch *x, struct kcp_comm *comm)
{
    const struct kcp_context *c = &x->plan->ctx[comm->r];
    const int64_t t = c->begin, qk = t * H * K, key = t * HV * K, value = t * HV * V;
    return (struct kcp_family){
        .T = c->end - c->begin, .N = x->sequences ? x->sequences : N, .NS = c->NS,
        .NC = c->NC, .R = x->R, .r = comm->r, .H = H, .HV = HV, .K = K, .V = V, .C = C,
        .KG = K, .model = x->model, .scale = 0.4, .form = x->form, .blocks = 2,
        .plan = x->plan, .comm = comm,
        .ops = x->ops ? x->ops : &ref_mapops,
        .cu = c->cu, .cn = c->cn, .sc = c->sc,
        .q = x->in[Q] + qk, .k = x->in[KEY] + qk, .v = x->in[VAL] + value,
        .g = x->in[G] + key, .a = x->in[A] + key, .b = x->in[B] + key,
        .omega = x->in[OMEGA] + value, .h0 = x->in[H0],
        .o = x->out[O] + value, .ht = x->out[HT], .do_ = x->in[DO] + value,
        .dht = x->in[DHT], .dq = x->out[DQ] + qk, .dk = x->out[DK] + qk,
        .dv = x->out[DV] + value, .dg = x->out[DG] + key, .da = x->out[DA] + key,
        .db = x->out[DB] + key, .domega = x->out[DOMEGA] + value, .dh0 = x->out[DH0] };
}

static inline int body(struct kcp_comm *comm, void *arg)
{
    struct batch *x = arg;
    struct kcp_family a = call(x, comm);
    const struct kcp_exchange e = { .form = x->form, .blocks = 2, .HV = HV, .K = K,
        .V = V, .plan = x->plan, .comm = comm,
        .ops = x->model == KCP_GLA ? &kcp_diagonal_mapops : &ref_mapops };
    if (x->keep)
        a.h_kept = malloc(sizeof(double) * (a.NS + 1) * HV * K * V);
    int status = one_pass(x, &a);
    x->traffic[comm->r] = comm->traffic;
    x->formula[comm->r] = kcp_exchange_formula(&e);
    a.pass = KCP_BACKWARD;
    comm->traffic = (struct kcp_traffic){ 0 };
    if (!status) status = one_pass(x, &a);
    x->traffic_back[comm->r] = comm->traffic;
    free(a.h_kept);
    return status;
}

static inline void drop(struct batch *x)
{
    arrays_free(x->out, OUTPUTS);
    kcp_plan_free(x->plan);
}

static inline void drop_inputs(struct batch *x)
{
    arrays_free(x->in, INPUTS);
}

static inline int go(struct batch *x, char *why)
{
    struct kcp_owners o = { 0 };
    int status = x->spread ? kcp_owners_make(&o, x->spread, N, cu, x->R, 17, NULL)
                           : KCP_OK;
    if (!status && x->spread)
        status = kcp_plan_owned(&x->plan, N, cu, x->R, &o, x->L, C, 0, NULL);
    else if (!status)
        status = kcp_plan_make(&x->plan, N, cu, x->R, x->cuts, x->L, C, 0, NULL);
    kcp_owners_free(&o);
    why[0] = 0;
    status = status ? status : outputs_add(x->out, out_size, OUTPUTS);
    return status ? status : kcp_threads_run(x->R, body, x, why, 160);
}

/* Returns the largest relative RMS difference between two runs over all outputs, or -1
 * if all bits are equal. */
static inline double apart(const struct batch *a, const struct batch *b, int *worst)
{
    return outputs_apart(a->out, b->out, out_size, OUTPUTS, worst);
}

/* Runs batches x and y, and checks that all outputs have equal bits. */
static inline int same_bits(struct kcp_report *rep, struct batch x, struct batch y)
{
    char why[160] = "";
    int worst = 0, status = go(&x, why);
    if (!status) status = go(&y, why);
    const double err = status ? NAN : apart(&x, &y, &worst);
    EXPECT(rep, !status, "%s %s, R = %d: status %d, %s", model_name[x.model],
           kcp_form_names[x.form], x.R, status, why);
    EXPECT(rep, err < 0, "%s %s, R = %d: %s differs by %.2g", model_name[x.model],
           kcp_form_names[x.form], x.R, out_name[worst], err);
    drop(&x);
    drop(&y);
    return status;
}

#endif
