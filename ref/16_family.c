/* 16_family.c -- runs any model of the family on one of R ranks.
 * Book: chapter 16.
 *
 * This file computes the model's form (w, u, kg, qg and Aqk of all chunks) and passes
 * it to stages 04, 05, 07, 09, 11 and 12. KDA is a case of DPLR and of GDN-2. */
#include "16_family.h"
#include "moves.h"

#include <string.h>

/* Like RANK_STAGE (08_rank.h), but T, C and cu count rows of the form. */
#define STAGE(type, name)                                                             \
    struct type name = { 0 };                                                         \
    memcpy(&name, &x->form, sizeof(struct kcp_call));                                 \
    name.cu = x->cu; name.cn = x->a->cn; name.sc = x->a->sc

/* Computes the gate's sums within chunks (stage 02), then the model's form. */
static int local(struct family_rank *x)
{
    const struct kcp_family *a = x->a;
    const int64_t row = (int64_t)a->HV * a->K, m = x->m->rows;
    struct kcp_gate gate = { 0 };
    memcpy(&gate, a, sizeof(struct kcp_call));
    gate.KG = a->K; gate.gate = KCP_GATE_RAW; gate.pass = KCP_FORWARD;
    gate.cu = a->cu; gate.cn = a->cn; gate.sc = a->sc;
    gate.g_raw = a->g ? a->g : rank_zeros(&x->own, a->T * row);
    gate.g = rank_zeros(&x->own, a->T * row); gate.G = x->G_t;
    const int status = x->own.full ? KCP_NO_MEMORY : ref_gate(&gate);
    if (status) return status;
    for (int64_t e = 0; e < a->T * m && m > 1; e++)
        memcpy(x->G + e * row, x->G_t + e / m * row, sizeof(double) * row);
    family_every(x, 0);
    return KCP_OK;
}

/* Runs stages 05 (backward: 11) and 07, which set states [s] to the state at the start
 * of segment s (backward: to the gradient of the state at the end of s). */
static int carry(struct family_rank *x, int backward, double *states)
{
    const struct kcp_family *a = x->a;
    const struct kcp_mapops *ops = a->ops ? a->ops : &ref_mapops;
    const int diagonal = kcp_models[a->model].map == KCP_DIAGONAL && ops->diagonal;
    int *want = rank_zeros(&x->own, a->NS), status;
    struct kcp_exchange e = {
        .form = a->form, .backward = backward, .blocks = a->blocks, .HV = a->HV,
        .K = a->K, .V = a->V, .plan = x->plan, .comm = a->comm,
        .ops = diagonal ? ops->diagonal : ops, .maps = x->maps, .states = states };
    e.work = rank_zeros(&x->own, kcp_moves->exchange_work(&e) / sizeof(double) + 1);
    if (x->own.full) return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++)
        want[s] = kcp_plan_want(x->plan, x->plan->ctx[a->r].seg0 + s, backward);
    if (backward) {
        STAGE(kcp_merge_backward, b);
        b.want = want; b.qg = x->qg; b.kg = x->kg; b.w = x->w; b.G = x->G;
        b.do_ = x->dO; b.dv_local = x->dv_local; b.dh_end = states; b.dmap = x->maps;
        b.reuse_M = 0; status = ref_merge_backward(&b);
    } else {
        STAGE(kcp_affine, f);
        f.want = want; f.kg = x->kg; f.w = x->w; f.u = x->u; f.G = x->G;
        f.h_start = x->h_start; f.map = x->maps; status = ref_affine(&f);
        memcpy(states, x->h_start, sizeof(double) * a->NS * a->HV * a->K * a->V);
    }
    if (diagonal) family_diagonal(a->NS, a->HV, a->K, a->V, x->maps);
    return status ? status : kcp_moves->exchange_run(&e);
}

/* Computes the segments' initial states by the exchange. If h_kept is not NULL, forward
 * saves these states, or only the first (as in chapter 08), in h_kept, and backward
 * reads h_kept instead of running the exchange. */
static int enter(struct family_rank *x)
{
    const struct kcp_family *a = x->a;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int back = a->pass == KCP_BACKWARD;
    struct kcp_h0 h = { 0 };
    int status = KCP_OK;
    memcpy(&h, a, sizeof(struct kcp_call));
    h.h_in = h.h_back = x->states; h.h_start = x->h_start;
    h.h_kept = a->h_kept; h.h_kept_in = a->h_kept;
    rank_enter(a, 0, a->h0, x->h_start);
    if (!back || !a->h_kept) status = carry(x, 0, x->states);
    if (status || !a->h_kept) return status;
    if (!x->plan->L && !x->plan->scattered) return ref_h0(&h);
    memcpy(back ? x->states : a->h_kept, back ? a->h_kept : x->states,
           sizeof(double) * a->NS * KV);
    return KCP_OK;
}

static int scan(struct family_rank *x)
{
    STAGE(kcp_chunk, c);
    c.qg = x->qg; c.kg = x->kg; c.u = x->u; c.w = x->w; c.Aqk = x->Aqk; c.G = x->G;
    c.h_in = x->states; c.o = x->o; c.v_new = x->v_new; c.h = x->h; c.h_out = x->h_out;
    return ref_chunk(&c);
}

/* Runs one part of stage 09, KCP_LOCAL or KCP_REVERSE. */
static int reverse(struct family_rank *x, int part)
{
    STAGE(kcp_chunk_backward, c);
    c.part = part;
    c.qg = x->qg; c.kg = x->kg; c.w = x->w; c.Aqk = x->Aqk; c.v_new = x->v_new;
    c.G = x->G; c.do_ = x->dO; c.dh_out = x->ends;
    c.dAqk = x->dAqk; c.dv_local = x->dv_local; c.dU = x->dU; c.dh = x->dh;
    c.dh_in = x->dh_in;
    return ref_chunk_backward(&c);
}

/* Copies each token's dO to the last of the token's rows of the form, because this row
 * computes o. The other rows stay 0. */
static void spread(struct family_rank *x)
{
    const int64_t row = (int64_t)x->a->HV * x->a->V, m = x->m->rows;
    for (int64_t t = 0; t < x->a->T; t++)
        memcpy(x->dO + ((t + 1) * m - 1) * row, (const double *)x->a->do_ + t * row,
               sizeof(double) * row);
}

static int program(struct family_rank *x)
{
    const struct kcp_family *a = x->a;
    const int64_t m = x->m->rows, row = (int64_t)a->HV * a->V;
    int status;
    //> program
    status = family_prepare(x);
    if (!status) status = local(x);
    if (!status) status = enter(x);
    if (!status) status = scan(x);
    if (status) return status;
    if (a->pass == KCP_FORWARD) {
        for (int64_t t = 0; t < a->T; t++)
            memcpy((double *)a->o + t * row, x->o + ((t + 1) * m - 1) * row,
                   sizeof(double) * row);
        rank_leave(a, 0, x->h_out, a->h0, a->ht);
        return KCP_OK;
    }
    spread(x);
    rank_enter(a, 1, a->dht, x->ends);
    status = reverse(x, KCP_LOCAL);
    if (!status) status = carry(x, 1, x->ends);
    if (!status) status = reverse(x, KCP_REVERSE);
    if (status) return status;
    family_clear(a);
    family_every(x, 1);
    rank_leave(a, 1, x->dh_in, a->dht, a->dh0);
    return KCP_OK;
    //< program
}

/* Forward computes o, and ht of the sequences that end on this rank. Backward computes
 * all gradients of this rank's shard, and dh0 of the sequences that start on this rank.
 * If a rank fails, all ranks return an error. */
int kcp_family_run(const struct family_model *m, const struct kcp_family *a)
{
    struct family_rank x = { .m = m, .a = a, .plan = a->plan };
    kcp_checked_enter();
    return rank_end(a, &x.own, program(&x), m->name);
}

#define REF_KCP_FAMILY(NAME, name) [KCP_##NAME] = &ref_##name,
static const struct family_model *const models[] = { KCP_MODEL_LIST(REF_MODEL) };

/* Runs stage 16. ref_family_step is its oracle. */
int ref_family(struct kcp_family *a)
{
    const int refused = kcp_begin("16_family", KCP_HOST, a, NULL);
    return refused ? refused : kcp_family_run(models[a->model], a);
}

int ref_family_step(struct kcp_family *a)
{
    const int refused = kcp_begin("16_family", KCP_HOST, a, "cu cn sc");
    return refused ? refused : kcp_family_walk(models[a->model], a);
}
