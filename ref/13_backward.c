/* 13_backward.c -- computes the backward pass of one rank.
 * Book: chapter 13. */
#include "08_rank.h"
#include "moves.h"

#include <string.h>

/* The tensors of a backward pass. */
struct backward_rank {
    const struct kcp_backward *a;
    const struct kcp_plan *plan;
    struct rank_arrays own;                /* freed at the end */
    double *q, *k, *beta, *Aqk, *A;        /* saved; q and k may be recomputed */
    double *G, *w, *u, *qg, *kg, *v_new, *h;   /* saved or recomputed */
    double *dAqk, *dv_local, *dU, *dh, *dh_in, *states;          /* chapters 09, 11 */
    double *dq, *dk, *dbeta, *dg, *dA_part, *ddt_part;           /* chapters 10, 02 */
};

/* Checks the saved block and sets pointers to its tensors. */
static int open_block(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    const struct kcp_saved *s = a->saved;
    char why[160] = "";
    const int status = kcp_saved_check_of(s, a->saved_bytes, (const struct kcp_call *)a,
                                          KCP_FORMAT_FACTORS, "ref", sizeof(double),
                                          sizeof(double), why, sizeof why);
    if (status) return kcp_refuse(status, "13_backward: %s", why);
    if (a->reuse_M && (!s->reuse_M || s->form != (int)a->form))
        return kcp_refuse(KCP_MISMATCH, "13_backward: the saved block has no M for "
                          "this form of the exchange");
    double **at[] = { &x->q, &x->k, &x->beta, &x->Aqk, &x->A, &x->G, &x->w, &x->u,
                      &x->qg, &x->kg, &x->v_new, &x->h };
    static const char *const name[] = { "q", "k", "beta", "Aqk", "A", "G", "w", "u",
                                        "qg", "kg", "v_new", "h" };
    for (int j = 0; j < 12; j++)
        *at[j] = kcp_saved_at(s, name[j]);         /* NULL: not saved */
    return KCP_OK;
}

/* Recomputes, from the saved block and the raw inputs, the tensors that forward
 * saves only with KCP_SAVE_ALL. Runs the same functions as forward (stages 02, 03,
 * 04), so the gradients have the same bits for every value of kcp_save. */
static int recompute(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t TV = a->T * a->HV, size = (int64_t)a->HV * a->K * a->V;
    const double *kept = kcp_saved_at(a->saved, "h_kept");
    double *h_start = rank_zeros(&x->own, a->NS * size);
    int status;

    RANK_STAGE(kcp_gate, gate);
    gate.pass = KCP_FORWARD;
    gate.g_raw = a->g_raw; gate.A_log = a->A_log; gate.dt_bias = a->dt_bias;
    gate.g = rank_zeros(&x->own, TV * a->KG);
    gate.G = x->G = rank_zeros(&x->own, TV * a->KG);

    RANK_STAGE(kcp_wy, wy);
    wy.q = x->q; wy.k = x->k; wy.v = a->v; wy.G = x->G; wy.beta = x->beta; wy.A = x->A;
    wy.u = x->u = rank_zeros(&x->own, TV * a->V);
    wy.w = x->w = rank_zeros(&x->own, TV * a->K);
    if (a->model == KCP_KDA) {
        wy.kg = x->kg = rank_zeros(&x->own, TV * a->K);
        wy.qg = x->qg = rank_zeros(&x->own, TV * a->K);
    }

    struct kcp_h0 h0 = { 0 };
    memcpy(&h0, a, sizeof(struct kcp_call));
    h0.pass = KCP_BACKWARD; h0.h_start = h_start; h0.h_kept_in = kept;
    h0.h_back = rank_zeros(&x->own, a->NS * size);

    RANK_STAGE(kcp_chunk, chunk);
    chunk.q = x->q; chunk.k = x->k; chunk.qg = x->qg; chunk.kg = x->kg;
    chunk.u = x->u; chunk.w = x->w; chunk.Aqk = x->Aqk; chunk.G = x->G;
    chunk.h_in = x->plan->L || x->plan->scattered ? kept : h0.h_back;
    chunk.o = rank_zeros(&x->own, TV * a->V);
    chunk.v_new = x->v_new = rank_zeros(&x->own, TV * a->V);
    chunk.h = x->h = rank_zeros(&x->own, a->NC * size);
    chunk.h_out = rank_zeros(&x->own, a->NS * size);
    if (x->own.full) return KCP_NO_MEMORY;
    //> recompute
    rank_enter(a, 0, a->h0, h_start);
    status = ref_gate(&gate);
    if (!status) status = ref_wy_factors(&wy);
    if (!status) status = ref_h0(&h0);
    return status ? status : ref_chunk(&chunk);
    //< recompute
}

/* Runs stage 11 and the exchange, which set x->states [s] to the gradient of the state
 * at the end of segment s. With reuse_M, the exchange uses M of the forward pass. */
static int carry(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    int *want = rank_zeros(&x->own, a->NS), status;

    RANK_STAGE(kcp_merge_backward, m);
    m.want = want; m.q = x->q; m.k = x->k; m.qg = x->qg; m.kg = x->kg; m.w = x->w;
    m.G = x->G; m.do_ = a->do_; m.dv_local = x->dv_local; m.dh_end = x->states;
    m.dmap = rank_zeros(&x->own, a->NS * map);
    struct kcp_exchange e = {
        .form = a->form, .backward = 1, .blocks = a->blocks, .reuse_M = a->reuse_M,
        .HV = a->HV, .K = a->K, .V = a->V, .plan = x->plan, .comm = a->comm,
        .ops = a->ops ? a->ops : &ref_mapops, .maps = m.dmap, .states = x->states,
    };
    const size_t kept = a->reuse_M ? kcp_moves->exchange_kept(&e) : 0;
    const size_t work = kcp_moves->exchange_work(&e);
    e.kept = rank_zeros(&x->own, kept / sizeof(double) + 1);
    e.work = rank_zeros(&x->own, work / sizeof(double) + 1);
    if (x->own.full) return KCP_NO_MEMORY;

    //> carry
    if (a->reuse_M) {
        memcpy(m.dmap, kcp_saved_at(a->saved, "maps"), sizeof(double) * a->NS * map);
        memcpy(e.kept, kcp_saved_at(a->saved, "kept"), kept);
    }
    for (int s = 0; s < a->NS; s++)
        want[s] = kcp_plan_want(x->plan, x->plan->ctx[a->r].seg0 + s, 1);
    rank_enter(a, 1, a->dht, x->states);
    status = ref_merge_backward(&m);
    return status ? status : kcp_moves->exchange_run(&e);
    //< carry
}

/* Runs stage 09. `part` is KCP_LOCAL before the exchange and KCP_REVERSE afterwards. */
static int chunks(struct backward_rank *x, int part)
{
    const struct kcp_backward *a = x->a;
    RANK_STAGE(kcp_chunk_backward, c);
    c.part = part;
    c.q = x->q; c.k = x->k; c.qg = x->qg; c.kg = x->kg; c.w = x->w; c.Aqk = x->Aqk;
    c.v_new = x->v_new; c.G = x->G; c.do_ = a->do_; c.dh_out = x->states;
    c.dAqk = x->dAqk; c.dv_local = x->dv_local; c.dU = x->dU; c.dh = x->dh;
    c.dh_in = x->dh_in;
    return ref_chunk_backward(&c);
}

/* Runs stages 10 and 02, which compute the gradients of the raw inputs and, per
 * segment, those of the parameters. */
static int down(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    int status;
    RANK_STAGE(kcp_wy_backward, wy);
    wy.q = x->q; wy.k = x->k; wy.v = a->v; wy.G = x->G; wy.beta = x->beta; wy.A = x->A;
    wy.v_new = x->v_new; wy.h = x->h; wy.do_ = a->do_; wy.dAqk = x->dAqk;
    wy.dU = x->dU; wy.dh = x->dh;
    wy.dq = x->dq; wy.dk = x->dk; wy.dv = a->dv; wy.dbeta = x->dbeta; wy.dg = x->dg;

    RANK_STAGE(kcp_gate, gate);
    gate.pass = KCP_BACKWARD;
    gate.q_raw = a->q_raw; gate.k_raw = a->k_raw; gate.g_raw = a->g_raw;
    gate.beta_raw = a->beta_raw; gate.A_log = a->A_log; gate.dt_bias = a->dt_bias;
    gate.dq = x->dq; gate.dk = x->dk; gate.dbeta = x->dbeta; gate.dg = x->dg;
    gate.dq_raw = a->dq_raw; gate.dk_raw = a->dk_raw; gate.dg_raw = a->dg_raw;
    gate.dbeta_raw = a->dbeta_raw;
    gate.dA_part = x->dA_part; gate.ddt_part = x->ddt_part;
    status = ref_wy_backward(&wy);
    return status ? status : ref_gate(&gate);
}

/* Adds the parameters' gradients over all segments in token order, so that a canonical
 * plan (L > 0) gives the same bits for every number of ranks. With KCP_SUM_LOCAL, adds
 * only this rank's segments. */
static int parameters(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    int status = KCP_OK;
    if (a->dA_log)
        status = kcp_moves->parameter_sum(call, x->dA_part, a->HV, a->dA_log);
    if (!status && a->ddt_bias)
        status = kcp_moves->parameter_sum(call, x->ddt_part, (int64_t)a->HV * a->KG,
                                   a->ddt_bias);
    return status;
}

static int program(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t TH = a->T * a->H, TV = a->T * a->HV;
    const int64_t size = (int64_t)a->HV * a->K * a->V;
    struct rank_arrays *own = &x->own;
    int status;

    x->dAqk = rank_zeros(own, TV * a->C); x->dv_local = rank_zeros(own, TV * a->V);
    x->dU = rank_zeros(own, TV * a->V); x->dh = rank_zeros(own, a->NC * size);
    x->dh_in = rank_zeros(own, a->NS * size); x->states = rank_zeros(own, a->NS * size);
    x->dq = rank_zeros(own, TH * a->K); x->dk = rank_zeros(own, TH * a->K);
    x->dbeta = rank_zeros(own, TV); x->dg = rank_zeros(own, TV * a->KG);
    x->dA_part = rank_zeros(own, (int64_t)a->NS * a->HV);
    x->ddt_part = rank_zeros(own, (int64_t)a->NS * a->HV * a->KG);
    if (own->full) return KCP_NO_MEMORY;

    //> program
    status = open_block(x);
    if (!status && !x->h) status = recompute(x);
    if (!status) status = chunks(x, KCP_LOCAL);
    if (!status) status = carry(x);
    if (!status) status = chunks(x, KCP_REVERSE);
    if (!status) status = down(x);
    if (status) return status;
    rank_leave(a, 1, x->dh_in, a->dht, a->dh0);
    return parameters(x);
    //< program
}

/* Computes all gradients of this rank's shard from do_ and, for sequences that end on
 * this rank, dht. Writes dh0 of the sequences that start on this rank, and dA_log and
 * ddt_bias, which are sums over all ranks unless KCP_SUM_LOCAL is set. Recomputes the
 * tensors that are not in `saved` (from ref_forward). If a rank fails, all ranks return
 * an error. Returns KCP_MISMATCH if `saved` does not match the call. */
int ref_backward(struct kcp_backward *a)
{
    const int refused = kcp_begin("13_backward", KCP_HOST, a, NULL);
    if (refused) return refused;
    struct backward_rank x = { .a = a, .plan = a->plan };
    kcp_checked_enter();
    return rank_end(a, &x.own, program(&x), "ref_backward");
}
