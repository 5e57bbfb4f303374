// program.cuh -- the whole forward: the taught stages, one after another on a stream.
// Book: chapter 08, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v1_stages.cu, which says whose kernels.
#include "cuda/host/workspace.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/host/profile_hooks.cuh"
#include "cuda/host/stages_v1.cuh"
#include "cuda/host/split_sequence.cuh"

// Bound: the sum of its stages'; what they hand to one another goes through memory.
// Nothing is allocated and the host waits for nothing but comm, so one rank's program
// can be captured in a graph.
struct forward {
    struct kcp_forward a;                // the caller's, its ops filled in
    struct stages t;
    struct room r;
    void *q, *k, *rstd_q, *rstd_k, *G, *beta;         // chapter 02
    void *Aqk, *A, *u, *w, *kg, *qg;                      // 03
    void *v_new, *h, *h_out;                              // 04
    void *maps, *states, *h_kept;                         // 05, 07, 12
    int *want;
    struct strips p;
    struct kcp_exchange e;
};

// This rank's call, handed on to a stage: every args struct opens with it.
#define STAGE(type, name)                                                             \
    struct type name = {};                                                            \
    memcpy((void *)&name, &x->a, sizeof(struct kcp_call));                            \
    name.cu = x->a.cu, name.cn = x->a.cn, name.sc = x->a.sc

// Where everything lies: in the saved block what it keeps, the rest in work.
template <class X>
static size_t place(struct forward *x, const struct kcp_forward *args,
                    const struct stages &t)
{
    *x = {};
    x->a = *args, x->t = t;
    struct kcp_forward *a = &x->a;
    if (!a->ops) a->ops = &cuda_mapops;
    const int64_t T = a->T, TH = T * a->H, TV = T * a->HV, f = sizeof(float);
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    struct room *r = &x->r;

    r->base = (char *)a->work, r->saved = (char *)a->saved;
    kcp_saved_layout_of(&r->head, (struct kcp_call *)a, t.path->format, t.name,
                        sizeof(X), f);
    x->e = { a->form, 0, a->blocks, a->reuse_M, a->HV, a->K, a->V, a->plan, a->comm,
             a->ops, NULL, NULL, NULL, NULL, a->stream };
    x->q = take_named(r, "q", TH * a->K, sizeof(X));
    x->k = take_named(r, "k", TH * a->K, sizeof(X));
    x->rstd_q = take_named(r, "rstd_q", TH, f);
    x->rstd_k = take_named(r, "rstd_k", TH, f);
    x->G = take_named(r, "G", TV * a->KG, f);      // nobody reads g itself here
    x->beta = take_named(r, "beta", TV, f);
    x->Aqk = take_named(r, "Aqk", TV * a->C, sizeof(X));
    x->A = take_named(r, "A", TV * a->C, sizeof(X));
    x->u = take_named(r, "u", TV * a->V, sizeof(X));
    x->w = take_named(r, "w", TV * a->K, sizeof(X));
    if (a->model == KCP_KDA) {
        x->kg = take_named(r, "kg", TV * a->K, sizeof(X));
        x->qg = take_named(r, "qg", TV * a->K, sizeof(X));
    }
    x->v_new = take_named(r, "v_new", TV * a->V, sizeof(X));
    x->h = take_named(r, "h", a->NC * KV, sizeof(X));
    x->h_out = take(r, a->NS * KV, f), x->states = take(r, a->NS * KV, f);
    x->maps = take_named(r, "maps", a->NS * (KV + KK), f);
    x->want = (int *)take(r, a->NS, sizeof(int));
    const struct strips whole = { 0, a->NS, (int *)a->cu, (int *)a->cn, x->want,
                                  x->maps, x->states, x->h_out, NULL };
    x->p = place_strips((struct kcp_call *)a, r, &whole);
    if (a->saved) x->h_kept = take_named(r, "h_kept", 0, f);
    x->e.maps = x->maps, x->e.states = x->states;
    if (a->saved && a->reuse_M) x->e.kept = take_named(r, "kept", 0, 1);
    x->e.work = take(r, kcp_exchange_work(&x->e), 1);
    return r->used;
}

// Chapters 02 and 03.
static int front(struct forward *x)
{
    STAGE(kcp_gate, gate);
    gate.pass = KCP_FORWARD;
    gate.q_raw = x->a.q_raw, gate.k_raw = x->a.k_raw, gate.g_raw = x->a.g_raw;
    gate.beta_raw = x->a.beta_raw, gate.A_log = x->a.A_log, gate.dt_bias = x->a.dt_bias;
    gate.q = x->q, gate.k = x->k, gate.rstd_q = x->rstd_q, gate.rstd_k = x->rstd_k;
    gate.G = x->G, gate.beta = x->beta;

    STAGE(kcp_wy, wy);
    wy.q = x->q, wy.k = x->k, wy.v = x->a.v, wy.G = x->G, wy.beta = x->beta;
    wy.Aqk = x->Aqk, wy.A = x->A, wy.u = x->u, wy.w = x->w;
    wy.kg = x->kg, wy.qg = x->qg;
    const int status = x->t.gate(&gate);
    return status ? status : x->t.wy(&wy);
}

// Chapters 05 and 07: states [s] becomes the state with which segment s begins, and
// those of its strips follow.
static int carry(struct forward *x)
{
    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    STAGE(kcp_affine, map);
    ON_STRIPS(map, x->p);
    map.want = x->p.want, map.k = x->k, map.kg = x->kg, map.w = x->w, map.u = x->u;
    map.G = x->G, map.map = x->p.maps;
    if (x->a.h0) map.h_start = x->p.starts;

    part(PART_SUM, x->a.stream);
    put_strips(call, 0, &x->p);
    states_in(call, 0, x->a.h0, x->states);
    if (x->a.h0) spread(call, &x->p, 0, 0, x->states, x->p.starts);
    int status = x->t.affine(&map);
    if (!status) status = compose_strips(call, &x->p, 0, x->maps);
    part(PART_EXCHANGE, x->a.stream);
    if (!status) status = exchange(&x->e);
    if (!status) status = start_strips(call, &x->p, 0, x->states);
    part(PART_MAIN, x->a.stream);
    return status;
}

// Does the block keep v_new and h for backward?
static int keeps_all(const struct forward *x)
{
    return x->a.saved && x->a.save == KCP_SAVE_ALL;
}

// Chapters 04 and 12: the output, the last states, and the block for backward.
static int outputs(struct forward *x)
{
    const struct kcp_call *call = (struct kcp_call *)&x->a;
    const size_t state = sizeof(float) * x->a.HV * x->a.K * x->a.V;
    STAGE(kcp_chunk, chunk);
    ON_STRIPS(chunk, x->p);
    chunk.q = x->q, chunk.k = x->k, chunk.qg = x->qg, chunk.kg = x->kg, chunk.u = x->u;
    chunk.w = x->w, chunk.Aqk = x->Aqk, chunk.G = x->G, chunk.h_in = x->p.starts;
    chunk.o = x->a.o, chunk.v_new = x->v_new, chunk.h = x->h, chunk.h_out = x->p.ends;
    if (!keeps_all(x)) chunk.v_new = chunk.h = NULL;     // nobody reads them here

    const int status = x->t.chunk(&chunk);
    if (status) return status;
    gather(call, &x->p, 0, x->p.ends, x->h_out);
    states_out(call, 1, x->h_out, x->a.h0, x->a.ht);
    if (x->a.saved) {
        cudaMemcpyAsync(x->h_kept, x->states, kcp_saved_states(call) * state,
                        cudaMemcpyDeviceToDevice, x->a.stream);
        write_head<<<1, 256, 0, x->a.stream>>>(x->a.saved, x->r.head);
    }
    return launched();
}

template <class X>
static size_t forward_work(const void *args, const struct stages &t)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    struct forward x;
    return a->plan && t.path ? place<X>(&x, a, t) : 0;
}

template <class X>
static int forward_run(void *args, const struct stages &t)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    struct forward x;
    if (!a->plan) return KCP_BAD;
    if (!t.path) return KCP_NA;
    int status = place<X>(&x, a, t) <= a->work_bytes ? KCP_OK : KCP_BAD;
    if (a->saved && a->saved_bytes < x.r.head.bytes) status = KCP_BAD;

    //> kernel-forward
    if (!status) status = front(&x);
    if (!status) status = carry(&x);
    if (!status) status = outputs(&x);
    //< kernel-forward
    if (status && status != KCP_COMM && a->comm)
        a->comm->fail(a->comm, status, t.name);
    return status;
}
