/* 13_backward.c -- the whole backward: one rank's program.
 *
 * Book: chapter 13.  Checked by: tests/13_backward.c and its mutants.
 * Next: 14_conv.c.
 */
#include "ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the program holds. Everything it allocates is in got, and freed at the end. */
struct back {
    const struct kcp_backward *a;
    const struct kcp_plan *plan;
    const struct kcp_segment *seg;         /* this rank's segments */
    char why[160];
    int full, ngot;                        /* full: some room was refused */
    double *got[40];
    double *q, *k, *beta, *Aqk, *A;        /* chapters 02, 03: in the saved block */
    double *G, *w, *u, *qg, *kg, *v_new, *h;   /* there too, or made again */
    double *dAqk, *dv_local, *dU, *dh, *dh_in, *states;              /* chapter 09 */
    double *dq, *dk, *dbeta, *dg, *dA_part, *ddt_part;               /* chapter 10 */
};

static double *room(struct back *x, int64_t numbers)
{
    double *p = calloc(numbers > 0 ? numbers : 1, sizeof *p);
    if (!p)
        x->full = 1;
    return x->got[x->ngot++] = p;
}

/* This rank's call, handed on to a stage: every args struct opens with it. */
#define CALL(type, name)                                                              \
    struct type name = { 0 };                                                         \
    memcpy(&name, x->a, sizeof(struct kcp_call))
#define STAGE(type, name)                                                             \
    CALL(type, name);                                                                 \
    name.cu = x->a->cu, name.cn = x->a->cn, name.sc = x->a->sc

/* Rows of [NS,HV,K,V] that begin (end) a sequence from h0 (dht), zero elsewhere. */
static void rows(const struct back *x, int ends, const double *given, double *to)
{
    const int64_t size = (int64_t)x->a->HV * x->a->K * x->a->V;
    for (int s = 0; s < x->a->NS; s++)
        if (given && (ends ? x->seg[s].last : x->seg[s].first))
            ref_state(x->a, 0, given + x->seg[s].n * size, to + s * size);
}

/* The saved block: refused with a reason, or its tensors found. */
static int open_block(struct back *x)
{
    const struct kcp_backward *a = x->a;
    const struct kcp_saved *s = a->saved;
    const int status = kcp_saved_check(
        s, a->saved_bytes, (const struct kcp_call *)a, "ref", sizeof(double),
        sizeof(double), x->why, sizeof x->why);
    if (status != KCP_OK)
        return status;
    if (a->reuse_M && (!s->reuse_M || s->form != (int)a->form)) {
        snprintf(x->why, sizeof x->why, "saved block: keeps no M for this form");
        return KCP_MISMATCH;
    }
    double **at[] = { &x->q, &x->k, &x->beta, &x->Aqk, &x->A, &x->G, &x->w, &x->u,
                      &x->qg, &x->kg, &x->v_new, &x->h };
    static const char *const name[] = { "q", "k", "beta", "Aqk", "A", "G", "w", "u",
                                        "qg", "kg", "v_new", "h" };
    for (int j = 0; j < 12; j++)
        *at[j] = kcp_saved_at(s, name[j]);         /* NULL: not in this mode */
    return KCP_OK;
}

/* Recompute: what save-all keeps, made again from the block and the raw gate by the
 * functions that made it (chapters 02, 03, 04), so both modes give the same bits. */
static int again(struct back *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t TV = a->T * a->HV, size = (int64_t)a->HV * a->K * a->V;
    const double *kept = kcp_saved_at(a->saved, "h_kept");
    double *h_start = room(x, a->NS * size);
    int status;

    STAGE(kcp_gate, gate);
    gate.pass = KCP_FORWARD;
    gate.g_raw = a->g_raw, gate.A_log = a->A_log, gate.dt_bias = a->dt_bias;
    gate.g = room(x, TV * a->KG), gate.G = x->G = room(x, TV * a->KG);

    STAGE(kcp_wy, wy);
    wy.q = x->q, wy.k = x->k, wy.v = a->v, wy.G = x->G, wy.beta = x->beta, wy.A = x->A;
    wy.u = x->u = room(x, TV * a->V), wy.w = x->w = room(x, TV * a->K);
    if (a->model == KCP_KDA)
        wy.kg = x->kg = room(x, TV * a->K), wy.qg = x->qg = room(x, TV * a->K);

    CALL(kcp_h0, h0);
    h0.pass = KCP_BACKWARD, h0.h_start = h_start, h0.h_kept_in = kept;
    h0.h_back = room(x, a->NS * size);

    STAGE(kcp_chunk, chunk);
    chunk.q = x->q, chunk.k = x->k, chunk.qg = x->qg, chunk.kg = x->kg;
    chunk.u = x->u, chunk.w = x->w, chunk.Aqk = x->Aqk, chunk.G = x->G;
    chunk.h_in = x->plan->L ? kept : h0.h_back;
    chunk.o = room(x, TV * a->V), chunk.v_new = x->v_new = room(x, TV * a->V);
    chunk.h = x->h = room(x, a->NC * size), chunk.h_out = room(x, a->NS * size);
    if (x->full)
        return KCP_NO_MEMORY;
    //> again
    rows(x, 0, a->h0, h_start);
    if ((status = ref_gate(&gate)) || (status = ref_wy_factors(&wy)) ||
        (status = ref_h0(&h0)))
        return status;
    return ref_chunk(&chunk);
    //< again
}

/* Chapter 11 and the exchange: states [s] becomes the gradient of the state with which
 * segment s ends. With reuse_M, M is the one that forward made. */
static int carry(struct back *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    int *want = (int *)room(x, a->NS), status;

    STAGE(kcp_merge_backward, m);
    m.want = want, m.q = x->q, m.k = x->k, m.qg = x->qg, m.kg = x->kg, m.w = x->w;
    m.G = x->G, m.do_ = a->do_, m.dv_local = x->dv_local, m.dh_end = x->states;
    m.dmap = room(x, a->NS * map);
    struct kcp_exchange e = {
        .form = a->form, .backward = 1, .blocks = a->blocks, .reuse_M = a->reuse_M,
        .HV = a->HV, .K = a->K, .V = a->V, .plan = x->plan, .comm = a->comm,
        .ops = a->ops ? a->ops : &ref_mapops, .maps = m.dmap, .states = x->states,
    };
    const size_t kept = a->reuse_M ? kcp_exchange_kept(&e) : 0;
    const size_t work = kcp_exchange_work(&e);
    e.kept = room(x, (int64_t)(kept / sizeof(double) + 1));
    e.work = room(x, (int64_t)(work / sizeof(double) + 1));
    if (x->full)
        return KCP_NO_MEMORY;

    //> carry
    if (a->reuse_M) {
        memcpy(m.dmap, kcp_saved_at(a->saved, "maps"), sizeof(double) * a->NS * map);
        memcpy(e.kept, kcp_saved_at(a->saved, "kept"), kept);
    }
    for (int s = 0; s < a->NS; s++)
        want[s] = kcp_plan_want(x->plan, x->plan->ctx[a->r].seg0 + s, 1);
    rows(x, 1, a->dht, x->states);
    status = ref_merge_backward(&m);
    return status ? status : kcp_exchange_run(&e);
    //< carry
}

/* Chapter 09: part KCP_LOCAL before the exchange, part KCP_REVERSE after it. */
static int chunks(struct back *x, int part)
{
    const struct kcp_backward *a = x->a;
    STAGE(kcp_chunk_backward, c);
    c.part = part;
    c.q = x->q, c.k = x->k, c.qg = x->qg, c.kg = x->kg, c.w = x->w, c.Aqk = x->Aqk;
    c.v_new = x->v_new, c.G = x->G, c.do_ = a->do_, c.dh_out = x->states;
    c.dAqk = x->dAqk, c.dv_local = x->dv_local, c.dU = x->dU, c.dh = x->dh;
    c.dh_in = x->dh_in;
    return ref_chunk_backward(&c);
}

/* Chapters 10 and 02: down to the raw inputs and, per segment, the parameters. */
static int down(struct back *x)
{
    const struct kcp_backward *a = x->a;
    int status;
    STAGE(kcp_wy_backward, wy);
    wy.q = x->q, wy.k = x->k, wy.v = a->v, wy.G = x->G, wy.beta = x->beta, wy.A = x->A;
    wy.v_new = x->v_new, wy.h = x->h, wy.do_ = a->do_, wy.dAqk = x->dAqk;
    wy.dU = x->dU, wy.dh = x->dh;
    wy.dq = x->dq, wy.dk = x->dk, wy.dv = a->dv, wy.dbeta = x->dbeta, wy.dg = x->dg;

    STAGE(kcp_gate, gate);
    gate.pass = KCP_BACKWARD;
    gate.q_raw = a->q_raw, gate.k_raw = a->k_raw, gate.g_raw = a->g_raw;
    gate.beta_raw = a->beta_raw, gate.A_log = a->A_log, gate.dt_bias = a->dt_bias;
    gate.dq = x->dq, gate.dk = x->dk, gate.dbeta = x->dbeta, gate.dg = x->dg;
    gate.dq_raw = a->dq_raw, gate.dk_raw = a->dk_raw, gate.dg_raw = a->dg_raw;
    gate.dbeta_raw = a->dbeta_raw;
    gate.dA_part = x->dA_part, gate.ddt_part = x->ddt_part;
    status = ref_wy_backward(&wy);
    return status ? status : ref_gate(&gate);
}

/* Parameters: partial sums of every segment of every rank, added in global order, so
 * that a canonical plan gives the same bits for every R. The same on each rank. */
static int parameters(struct back *x)
{
    const struct kcp_backward *a = x->a;
    int status = KCP_OK;
    if (a->dA_log)
        status = kcp_segment_sum(x->plan, a->comm, x->dA_part, a->HV, a->dA_log);
    if (!status && a->ddt_bias)
        status = kcp_segment_sum(x->plan, a->comm, x->ddt_part,
                                 (int64_t)a->HV * a->KG, a->ddt_bias);
    return status;
}

/* dh0 of the sequences that start here; one without tokens hands dht through. */
static void initial(struct back *x)
{
    const struct kcp_backward *a = x->a;
    const struct kcp_plan *p = x->plan;
    const int64_t size = (int64_t)a->HV * a->K * a->V;
    double *dh0 = a->dh0;
    const double *dht = a->dht;

    for (int s = 0; s < a->NS; s++)
        if (x->seg[s].first)
            ref_state(a, 1, x->dh_in + s * size, dh0 + x->seg[s].n * size);
    for (int n = 0; n < p->N; n++)
        if (p->h0_rank[n] == a->r && p->cu_seqlens[n] == p->cu_seqlens[n + 1])
            for (int64_t e = n * size; e < (n + 1) * size; e++)
                dh0[e] = dht ? dht[e] : 0;
}

static int program(struct back *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t TH = a->T * a->H, TV = a->T * a->HV;
    const int64_t size = (int64_t)a->HV * a->K * a->V;
    const struct kcp_context *ctx = &x->plan->ctx[a->r];
    int status;

    if (a->NS != ctx->NS || a->NC != ctx->NC || a->T != ctx->end - ctx->begin)
        return KCP_BAD;
    x->seg = x->plan->seg + ctx->seg0;
    x->dAqk = room(x, TV * a->C), x->dv_local = room(x, TV * a->V);
    x->dU = room(x, TV * a->V), x->dh = room(x, a->NC * size);
    x->dh_in = room(x, a->NS * size), x->states = room(x, a->NS * size);
    x->dq = room(x, TH * a->K), x->dk = room(x, TH * a->K);
    x->dbeta = room(x, TV), x->dg = room(x, TV * a->KG);
    x->dA_part = room(x, (int64_t)a->NS * a->HV);
    x->ddt_part = room(x, (int64_t)a->NS * a->HV * a->KG);
    if (x->full)
        return KCP_NO_MEMORY;

    //> program
    if ((status = open_block(x)))
        return status;
    if (!x->h && (status = again(x)))
        return status;
    if ((status = chunks(x, KCP_LOCAL)) || (status = carry(x)) ||
        (status = chunks(x, KCP_REVERSE)) || (status = down(x)))
        return status;
    initial(x);
    return parameters(x);
    //< program
}

/* spec 8, 7, 2.  All gradients of this rank's shard, from do_ and, on the rank where a
 * sequence ends, dht; dh0 on the rank where it starts; dA_log and ddt_bias summed over
 * the ranks. saved is what ref_forward left: its own mode says what is made again.
 * Rows of dh0 that other ranks own are not touched. On any failure the other ranks are
 * told, and end too. KCP_MISMATCH: a block that someone else wrote. */
int ref_backward(struct kcp_backward *a)
{
    struct back x = { .a = a, .plan = a->plan };
    const int bad = !a->plan || a->r < 0 || a->r >= a->plan->R ||
                    (a->plan->R > 1 && !a->comm);
    const int status = bad ? KCP_BAD : program(&x);

    for (int j = 0; j < x.ngot; j++)
        free(x.got[j]);
    if (status && status != KCP_COMM && a->comm)
        a->comm->fail(a->comm, status, x.why[0] ? x.why : "ref_backward");
    return status;
}
