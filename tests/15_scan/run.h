/* run.h -- runs a batch of Spike-KDA with R threads as ranks.
 *
 * Book: chapter 15.  Checked by: the tests that include it.  Next: ref/15_scan.c.
 * The batch has six sequences (two empty, one of one token), long runs of dropped
 * tokens, h0, o0, dht, dot, two value heads per key head, and K != V.
 */
#ifndef KCP_TEST_15_H
#define KCP_TEST_15_H

#include "tests/judge/family_batch.h"

enum { K = 6, V = 5, D = 3 };

enum { Q, KEY, VAL, SPIKE, ABASE, BBASE, WA, WB, H0, O0, DO, DHT, DOT, INPUTS };
enum { O, HT, OT, DQ, DK, DV, DSPIKE, DABASE, DBBASE, DWA, DWB, DH0, DO0, OUTPUTS };
static const char *const in_name[] = { "q", "k", "v", "spike", "alpha_base",
    "beta_base", "W_alpha", "w_beta", "h0", "o0", "do_", "dht", "dot" };
static const char *const out_name[] = { "o", "ht", "ot", "dq", "dk", "dv", "dspike",
    "dalpha_base", "dbeta_base", "dW_alpha", "dw_beta", "dh0", "do0" };
enum { QK = T * H * K, KEYS = T * HV * K, VALUES = T * HV * V, STATES = N * HV * K * V,
       ROWS = N * HV * V, SPIKES = T * HV * D, WAS = HV * K * D, WBS = HV * D };
static const int in_size[] = { QK, QK, VALUES, SPIKES, KEYS, T * HV, WAS, WBS, STATES,
                               ROWS, VALUES, STATES, ROWS };
static const int out_size[] = { VALUES, STATES, ROWS, QK, QK, VALUES, SPIKES, KEYS,
                                T * HV, WAS, WBS, STATES, ROWS };

struct batch {
    enum kcp_walk walk;
    int R, oracle, masks, no_masks;         /* masks: as in struct kcase */
    int64_t L;
    const int64_t *cuts;
    enum kcp_form form;
    struct kcp_plan *plan;
    const struct kcp_mapops *ops;           /* NULL: the reference's */
    double *in[INPUTS], *out[OUTPUTS];
    int *drop, *active;
    double (*sums)[WAS + WBS];              /* [R]: dW_alpha and dw_beta per rank */
    struct kcp_traffic traffic[MOST], formula[MOST];
};

/* Draws inputs whose gates let states survive (regime LIVE). Long runs of tokens are
 * dropped, and spikes are 0 or 1. */
static inline int draw(struct batch *x)
{
    struct kcase k = { .regime = LIVE, .seed = 15, .masks = x->masks, .spike = 1 };
    struct tensor_set b = { .n = 0 };
    k.call = (struct kcp_call){ .T = T, .N = N, .H = H, .HV = HV, .K = K, .V = V,
                                .C = C, .D = D, .KG = K };
    k.with_h0 = k.with_dht = 1;
    memcpy(k.cu, cu, sizeof cu);
    inputs_draw(&b, &k, stage_find("15"), KCP_F64);
    for (int j = 0; j < INPUTS; j++) {
        if (!(x->in[j] = malloc(sizeof(double) * in_size[j]))) return KCP_NO_MEMORY;
        memcpy(x->in[j], tensor_find(&b, in_name[j])->p, sizeof(double) * in_size[j]);
    }
    x->drop = malloc(4 * T); x->active = malloc(4 * T * HV);
    if (!x->drop || !x->active) return KCP_NO_MEMORY;
    memcpy(x->drop, tensor_find(&b, "drop")->p, 4 * T);
    memcpy(x->active, tensor_find(&b, "active")->p, 4 * T * HV);
    tensor_set_free(&b);
    return KCP_OK;
}

static inline struct kcp_scan call(const struct batch *x, struct kcp_comm *comm)
{
    const struct kcp_context *c = &x->plan->ctx[comm->r];
    const int64_t t = c->begin, qk = t * H * K, n = t * HV;
    double *const *in = x->in, *const *out = x->out;
    double *sums = x->sums ? x->sums[comm->r] : NULL;
    return (struct kcp_scan){
        .T = c->end - c->begin, .N = N, .NS = c->NS, .NC = c->NC, .R = x->R,
        .r = comm->r, .H = H, .HV = HV, .K = K, .V = V, .C = C, .D = D, .KG = K,
        .form = x->form, .walk = x->walk, .blocks = 2, .plan = x->plan, .comm = comm,
        .ops = x->ops ? x->ops : &ref_mapops, .cu = c->cu, .cn = c->cn, .sc = c->sc,
        .q = in[Q] + qk, .k = in[KEY] + qk, .v = in[VAL] + n * V,
        .spike = in[SPIKE] + n * D, .alpha_base = in[ABASE] + n * K,
        .beta_base = in[BBASE] + n, .W_alpha = in[WA], .w_beta = in[WB],
        .drop = x->no_masks ? NULL : x->drop + t,
        .active = x->no_masks ? NULL : x->active + n, .h0 = in[H0], .o0 = in[O0],
        .o = out[O] + n * V, .ht = out[HT], .ot = out[OT], .do_ = in[DO] + n * V,
        .dht = in[DHT], .dot = in[DOT], .dq = out[DQ] + qk, .dk = out[DK] + qk,
        .dv = out[DV] + n * V, .dspike = out[DSPIKE] + n * D,
        .dalpha_base = out[DABASE] + n * K, .dbeta_base = out[DBBASE] + n,
        .dW_alpha = sums, .dw_beta = sums ? sums + WAS : NULL, .dh0 = out[DH0],
        .do0 = out[DO0] };
}

/* Returns forward's expected traffic: the exchange, and one gather of last outputs. */
static inline struct kcp_traffic traffic_of(const struct batch *x,
                                            struct kcp_comm *comm)
{
    const struct kcp_exchange e = { .form = x->form, .blocks = 2, .HV = HV, .K = K,
        .V = V, .plan = x->plan, .comm = comm, .ops = &ref_mapops };
    struct kcp_traffic t = kcp_exchange_formula(&e);
    int64_t rows = 1;
    for (int r = 0; r < x->R; r++)
        rows = x->plan->ctx[r].NS > rows ? x->plan->ctx[r].NS : rows;
    if (x->R > 1 && x->plan->crossing && !x->no_masks) {
        t.bytes += (x->R - 1) * rows * (HV * V + 1) * 8;
        t.collectives++;
    }
    return t;
}

static inline int body(struct kcp_comm *comm, void *arg)
{
    struct batch *x = arg;
    struct kcp_scan a = call(x, comm);
    int status = x->oracle ? ref_scan_step(&a) : ref_scan(&a);
    x->traffic[comm->r] = comm->traffic;
    x->formula[comm->r] = traffic_of(x, comm);
    a.pass = KCP_BACKWARD;
    if (status) return status;
    return x->oracle ? ref_scan_step(&a) : ref_scan(&a);
}

static inline void drop(struct batch *x)
{
    arrays_free(x->out, OUTPUTS);
    free(x->sums);
    kcp_plan_free(x->plan);
}

static inline void drop_inputs(struct batch *x)
{
    arrays_free(x->in, INPUTS);
    free(x->drop); free(x->active);
}

/* Runs all ranks. Checks that dW_alpha and dw_beta are equal on all ranks. */
static inline int go(struct batch *x, char *why)
{
    int status = kcp_plan_make(&x->plan, N, cu, x->R, x->cuts, x->L, C, 0, NULL);
    why[0] = 0;
    x->sums = malloc(sizeof *x->sums * x->R);
    if (!x->sums || outputs_add(x->out, out_size, OUTPUTS)) return KCP_NO_MEMORY;
    status = status ? status : kcp_threads_run(x->R, body, x, why, 160);
    for (int r = 1; r < x->R && !status; r++)
        if (memcmp(x->sums[r], x->sums[0], sizeof *x->sums)) status = KCP_MISMATCH;
    memcpy(x->out[DWA], x->sums[0], sizeof(double) * WAS);
    memcpy(x->out[DWB], x->sums[0] + WAS, sizeof(double) * WBS);
    return status;
}

/* Returns the largest relative RMS difference between two runs over all outputs, or -1
 * if all bits are equal. */
static inline double apart(const struct batch *a, const struct batch *b, int *worst)
{
    return outputs_apart(a->out, b->out, out_size, OUTPUTS, worst);
}

#endif
