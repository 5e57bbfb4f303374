/* 08_forward.c -- computes the forward pass of one rank.
 * Book: chapter 08. */
#include "08_rank.h"
#include "moves.h"

#include <string.h>

//> fore
/* The tensors of a forward pass. `own` holds the tensors that are not in the saved
 * block (the memory for backward), and is freed at the end. */
struct fore {
    const struct kcp_forward *a;
    const struct kcp_plan *plan;
    struct rank_arrays own;
    double *q, *k, *beta, *G;              /* chapter 02 */
    double *Aqk, *u, *w, *kg, *qg;         /* chapter 03 */
    double *h_start, *maps, *states;       /* chapters 05, 07 */
};
//< fore

/* Returns tensor `name` of the saved block, or a new array if the block lacks it. */
static double *tensor(struct fore *x, const char *name, int64_t numbers)
{
    double *p = x->a->saved ? kcp_saved_at(x->a->saved, name) : NULL;
    return p ? p : rank_zeros(&x->own, numbers);
}

/* Runs stages 02 and 03, in which chunks are independent. */
static int local(struct fore *x)
{
    const struct kcp_forward *a = x->a;
    const int64_t TH = a->T * a->H, TV = a->T * a->HV;
    RANK_STAGE(kcp_gate, gate);
    gate.pass = KCP_FORWARD;
    gate.q_raw = a->q_raw; gate.k_raw = a->k_raw; gate.g_raw = a->g_raw;
    gate.beta_raw = a->beta_raw; gate.A_log = a->A_log; gate.dt_bias = a->dt_bias;
    gate.q = x->q = tensor(x, "q", TH * a->K);
    gate.k = x->k = tensor(x, "k", TH * a->K);
    gate.rstd_q = tensor(x, "rstd_q", TH); gate.rstd_k = tensor(x, "rstd_k", TH);
    gate.beta = x->beta = tensor(x, "beta", TV);
    gate.G = x->G = tensor(x, "G", TV * a->KG);
    gate.g = rank_zeros(&x->own, TV * a->KG);

    RANK_STAGE(kcp_wy, wy);
    wy.q = x->q; wy.k = x->k; wy.v = a->v; wy.G = x->G; wy.beta = x->beta;
    wy.Aqk = x->Aqk = tensor(x, "Aqk", TV * a->C); wy.A = tensor(x, "A", TV * a->C);
    wy.u = x->u = tensor(x, "u", TV * a->V); wy.w = x->w = tensor(x, "w", TV * a->K);
    if (a->model == KCP_KDA) {
        wy.kg = x->kg = tensor(x, "kg", TV * a->K);
        wy.qg = x->qg = tensor(x, "qg", TV * a->K);
    }
    if (x->own.full) return KCP_NO_MEMORY;
    const int status = ref_gate(&gate);
    return status ? status : ref_wy(&wy);
}

/* Runs stages 05 and 07, which compute and exchange the maps that later segments need.
 * On return, x->states [s] is the state at the start of segment s. */
static int carry(struct fore *x)
{
    const struct kcp_forward *a = x->a;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    int *want = rank_zeros(&x->own, a->NS);
    x->h_start = rank_zeros(&x->own, a->NS * KV);
    x->states = rank_zeros(&x->own, a->NS * KV);
    x->maps = tensor(x, "maps", a->NS * map);
    struct kcp_exchange e = {
        .form = a->form, .blocks = a->blocks, .HV = a->HV, .K = a->K, .V = a->V,
        .plan = x->plan, .comm = a->comm, .ops = a->ops ? a->ops : &ref_mapops,
        .maps = x->maps, .states = x->states };
    e.work = rank_zeros(&x->own, kcp_moves->exchange_work(&e) / sizeof(double) + 1);
    if (a->reuse_M && a->saved && kcp_moves->exchange_kept(&e))
        e.kept = kcp_saved_at(a->saved, "kept");
    if (x->own.full) return KCP_NO_MEMORY;

    //> carry
    for (int s = 0; s < a->NS; s++)
        want[s] = kcp_plan_want(x->plan, x->plan->ctx[a->r].seg0 + s, 0);
    rank_enter(a, 0, a->h0, x->h_start);
    RANK_STAGE(kcp_affine, affine);
    affine.want = want; affine.k = x->k; affine.kg = x->kg; affine.w = x->w;
    affine.u = x->u; affine.G = x->G; affine.h_start = x->h_start; affine.map = x->maps;
    const int status = ref_affine(&affine);
    if (status) return status;
    memcpy(x->states, x->h_start, a->NS * KV * sizeof *x->states);
    return kcp_moves->exchange_run(&e);
    //< carry
}

/* Saves the first initial state, or all initial states if L > 0 or plan->scattered. */
static int keep(struct fore *x)
{
    const struct kcp_forward *a = x->a;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    double *kept = kcp_saved_at(a->saved, "h_kept");
    struct kcp_h0 h = { 0 };
    memcpy(&h, a, sizeof(struct kcp_call));
    h.pass = KCP_FORWARD; h.h_in = x->states; h.h_kept = kept;
    if (!x->plan->L && !x->plan->scattered) return ref_h0(&h);
    memcpy(kept, x->states, a->NS * KV * sizeof *kept);
    return KCP_OK;
}

/* Runs stage 04 and writes ht of the sequences that end on this rank. */
static int output(struct fore *x)
{
    const struct kcp_forward *a = x->a;
    const int64_t TV = a->T * a->HV, KV = (int64_t)a->HV * a->K * a->V;
    double *h_out = rank_zeros(&x->own, a->NS * KV);

    RANK_STAGE(kcp_chunk, chunk);
    chunk.q = x->q; chunk.k = x->k; chunk.qg = x->qg; chunk.kg = x->kg;
    chunk.u = x->u; chunk.w = x->w; chunk.Aqk = x->Aqk; chunk.G = x->G;
    chunk.h_in = x->states; chunk.o = a->o; chunk.h_out = h_out;
    chunk.v_new = tensor(x, "v_new", TV * a->V); chunk.h = tensor(x, "h", a->NC * KV);
    if (x->own.full) return KCP_NO_MEMORY;
    const int status = ref_chunk(&chunk);
    if (!status) rank_leave(a, 0, h_out, a->h0, a->ht);
    return status;
}

static int program(struct fore *x)
{
    const struct kcp_forward *a = x->a;
    int status;
    if (a->saved) {
        status = kcp_saved_begin(a->saved, a->saved_bytes, (const struct kcp_call *)a,
                                 "ref", sizeof(double), sizeof(double));
        if (status)
            return kcp_refuse(status, "08_forward: saved_bytes: found %zu, expected "
                              "at least %zu", a->saved_bytes, kcp_saved_bytes(a));
        struct kcp_saved *s = a->saved;   /* sets all tensors to 0 */
        memset((char *)a->saved + sizeof *s, 0, s->bytes - sizeof *s);
    }
    //> program
    status = local(x);
    if (!status) status = carry(x);
    if (!status && a->saved) status = keep(x);
    return status ? status : output(x);
    //< program
}

/* Computes o of this rank's shard, and those rows of ht that the plan assigns to this
 * rank (ht_rank). Row n of h0 is read on the rank on which sequence n starts. `saved`
 * (may be NULL) receives the tensors that ref_backward needs. If a rank fails, all
 * ranks return an error. */
int ref_forward(struct kcp_forward *a)
{
    const int refused = kcp_begin("08_forward", KCP_HOST, a, NULL);
    if (refused) return refused;
    struct fore x = { .a = a, .plan = a->plan };
    kcp_checked_enter();
    return rank_end(a, &x.own, program(&x), "ref_forward");
}
