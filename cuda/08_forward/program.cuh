// program.cuh -- the whole forward: launches the kernels of all stages on one stream.
// Book: chapter 08, "Code: kernels".
#include "cuda/host/stage_args.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/host/profile_hooks.cuh"
#include "cuda/host/stages_v1.cuh"
#include "cuda/host/split_sequence.cuh"

// Bound: the sum of the stages' bounds, because data between stages goes through global
// memory. The program allocates nothing, and the host waits only for the communicator
// `comm`, so with one rank the program can be captured in a CUDA graph.
struct forward {
    struct kcp_forward a;                // the caller's arguments; ops is not NULL
    struct stages t;
    struct arena r;
    struct pass_arrays s;
    void *h_out, *maps, *states, *h_kept;                 // of chapters 04, 05, 07, 12
    struct split p;
    struct kcp_exchange e;
};

// Fills x with pointers into the workspace and the saved block (what forward saves for
// backward). Returns the required bytes of workspace.
template <class X>
static size_t place(struct forward *x, const struct kcp_forward *args,
                    const struct stages &t)
{
    *x = {};
    x->a = *args;
    x->t = t;
    struct kcp_forward *a = &x->a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    if (!a->ops) a->ops = &cuda_mapops;
    const int64_t T = a->T, TH = T * a->H, TV = T * a->HV, f = sizeof(float);
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    struct arena *r = &x->r;
    struct pass_arrays *s = &x->s;

    arena_open(r, call, a->saved, t.path->format, t.name, sizeof(X));
    take_args(s, a);
    s->q = arena_named(r, "q", TH * a->K, sizeof(X));
    s->k = arena_named(r, "k", TH * a->K, sizeof(X));
    s->rstd_q = arena_named(r, "rstd_q", TH, f);
    s->rstd_k = arena_named(r, "rstd_k", TH, f);
    s->beta = arena_named(r, "beta", TV, f);
    s->Aqk = arena_named(r, "Aqk", TV * a->C, sizeof(X));
    s->A = arena_named(r, "A", TV * a->C, sizeof(X));
    place_recomputed<X>(r, call, s);     // does not place g: no kernel reads g
    x->h_out = arena_take(r, a->NS * KV, f);
    x->states = arena_take(r, a->NS * KV, f);
    x->maps = arena_named(r, "maps", a->NS * (KV + KK), f);
    int *want = (int *)arena_take(r, a->NS, sizeof(int));
    const struct split whole = { 0, a->NS, (int *)a->cu, (int *)a->cn, want,
                                 x->maps, x->states, x->h_out, NULL };
    x->p = t.whole ? whole : split_sequence(call, r, &whole);
    s->want = x->p.want;
    s->map = x->p.maps;
    s->h_start = a->h0 ? x->p.starts : NULL;
    s->h_in = x->p.starts;
    s->h_out = x->p.ends;
    if (a->saved) x->h_kept = arena_named(r, "h_kept", 0, f);
    x->e = place_exchange(r, call, 0, x->maps, x->states);
    return r->used;
}

// Runs the kernels of chapters 02 and 03.
static int front(struct forward *x)
{
    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    struct kcp_gate gate = stage_args<struct kcp_gate>(call, x->s);
    struct kcp_wy wy = stage_args<struct kcp_wy>(call, x->s);
    gate.pass = KCP_FORWARD;
    const int status = x->t.gate(&gate);
    return status ? status : x->t.wy(&wy);
}

// Runs chapters 05 (maps) and 07 (exchange). Stores the initial state of each segment
// (tokens of one sequence) in `states` and of each strip (part of it) in `p.starts`.
static int carry(struct forward *x)
{
    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    struct kcp_affine map = stage_args<struct kcp_affine>(call, x->s);
    ON_SPLIT(map, x->p);

    profile_hook(PART_SUM, x->a.stream);
    put_split(call, 0, &x->p);
    states_in(call, 0, x->a.h0, x->states);
    if (x->a.h0) spread(call, &x->p, 0, 0, x->states, x->p.starts);
    int status = needs_maps(call, &x->p) ? x->t.affine(&map) : KCP_OK;
    if (!status) status = compose_strips(call, &x->p, 0, x->maps);
    profile_hook(PART_EXCHANGE, x->a.stream);
    if (!status) status = exchange(&x->e);
    if (!status) status = start_strips(call, &x->p, 0, x->states);
    profile_hook(PART_MAIN, x->a.stream);
    return status;
}

// Returns whether v_new and h are saved for backward.
static int keeps_all(const struct forward *x)
{
    return x->a.saved && kcp_keeps_states((const struct kcp_call *)&x->a);
}

// Runs the kernels of chapters 04 and 12 for o, the last states and the saved block.
static int outputs(struct forward *x)
{
    const struct kcp_call *call = (struct kcp_call *)&x->a;
    struct kcp_chunk chunk = stage_args<struct kcp_chunk>(call, x->s);
    ON_SPLIT(chunk, x->p);
    if (!keeps_all(x) && !x->t.stores_states) chunk.v_new = chunk.h = NULL;

    const int status = x->t.chunk(&chunk);
    if (status) return status;
    gather(call, &x->p, 0, x->p.ends, x->h_out);
    states_out(call, 1, x->h_out, x->a.h0, x->a.ht);
    if (x->a.saved) {
        copy_kept(call, x->h_kept, x->states);
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
    return report_failure((const struct kcp_call *)a, status, t.name);
}
