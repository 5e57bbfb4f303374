// workspace.cuh -- the arrays of a whole backward.
// Book: chapter 13, "Code: kernels".
#include "cuda/host/stage_args.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/host/segment_sum.cuh"
#include "cuda/host/stages_v1.cuh"
#include "cuda/host/split_sequence.cuh"

struct backward {
    struct kcp_backward a;               // the caller's arguments; ops is not NULL
    struct stages t;
    struct arena r;
    struct pass_arrays s;                // forward's arrays, saved or recomputed
    void *h_kept, *dmap, *states, *dh_in;        // per segment; chapters 12, 11, 07, 09
    void *A_recomputed, *h_start;                         // used by recompute only
    float *all;                                           // sums of all ranks
    void *work_10, *work_02;
    size_t bytes_10;
    struct split p;                      // its arrays serve recompute, then backward
    struct kcp_exchange e;
};

// Returns whether the saved block also contains states and v_new, so that nothing needs
// to be recomputed.
static inline int all_was_kept(const struct backward *x)
{
    return kcp_keeps_states((const struct kcp_call *)&x->a);
}

// Places forward's arrays in the saved block or, if not saved, in the workspace.
template <class X>
static void place_forward(struct backward *x)
{
    const struct kcp_backward *a = &x->a;
    struct arena *r = &x->r;
    struct pass_arrays *s = &x->s;
    s->q = arena_named(r, "q", 0, 1);
    s->k = arena_named(r, "k", 0, 1);
    s->beta = arena_named(r, "beta", 0, 1);
    s->Aqk = arena_named(r, "Aqk", 0, 1);
    s->A = arena_named(r, "A", 0, 1);
    x->h_kept = arena_named(r, "h_kept", 0, 1);
    place_recomputed<X>(r, (const struct kcp_call *)a, s);
    if (all_was_kept(x)) return;
    x->A_recomputed = arena_take(r, a->T * a->HV * a->C, sizeof(X));
    x->h_start = arena_take(r, (int64_t)a->NS * a->HV * a->K * a->V, sizeof(float));
}

// Places backward's arrays. The sums for dA_log and ddt_bias have one row per segment,
// padded to padded_rows rows.
template <class X>
static void place_backward(struct backward *x)
{
    const struct kcp_backward *a = &x->a;
    const int64_t TH = a->T * a->H, TV = a->T * a->HV, f = sizeof(float);
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    const int64_t rows = padded_rows(a->plan), gate = (int64_t)a->HV * a->KG;
    struct arena *r = &x->r;
    struct pass_arrays *s = &x->s;

    s->dAqk = arena_take(r, TV * a->C, sizeof(X));
    s->dh = arena_take(r, a->NC * KV, sizeof(X));
    s->dv_local = arena_take(r, TV * a->V, sizeof(X));
    s->dU = arena_take(r, TV * a->V, sizeof(X));
    x->dh_in = arena_take(r, a->NS * KV, f);
    x->states = arena_take(r, a->NS * KV, f);
    x->dmap = arena_take(r, a->NS * (KV + KK), f);
    s->dq = arena_take(r, TH * a->K, sizeof(X));
    s->dk = arena_take(r, TH * a->K, sizeof(X));
    s->dbeta = arena_take(r, TV, f);
    s->dg = arena_take(r, TV * a->KG, f);
    s->dA_part = arena_take(r, rows * a->HV, f);
    s->ddt_part = arena_take(r, rows * gate, f);
    x->all = (float *)arena_take(r, a->plan->R * rows * gate, f);
    int *want = (int *)arena_take(r, a->NS, sizeof(int));
    const struct split whole = { 0, a->NS, (int *)a->cu, (int *)a->cn, want,
                                 x->dmap, x->states, x->dh_in, NULL };
    x->p = x->t.whole ? whole : split_sequence((const struct kcp_call *)a, r, &whole);
    s->want = x->p.want;
    s->map = s->dmap = x->p.maps;
    s->dh_end = a->dht ? x->p.starts : NULL;
    s->dh_out = x->p.starts;
    s->h_out = s->dh_in = x->p.ends;
    x->e = place_exchange(r, (const struct kcp_call *)a, 1, x->dmap, x->states);
}

template <class X>
static size_t place(struct backward *x, const struct kcp_backward *args,
                    const struct stages &t)
{
    *x = {};
    x->a = *args;
    x->t = t;
    if (!x->a.ops) x->a.ops = &cuda_mapops;
    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    arena_open(&x->r, call, x->a.saved, t.path->format, t.name, sizeof(X));
    take_args(&x->s, &x->a);
    place_forward<X>(x);
    place_backward<X>(x);
    const struct kcp_wy_backward wy = stage_args<struct kcp_wy_backward>(call, x->s);
    struct kcp_gate gate = stage_args<struct kcp_gate>(call, x->s);
    gate.pass = KCP_BACKWARD;
    x->bytes_10 = t.wy_backward_work ? t.wy_backward_work(&wy) : 0;
    x->work_10 = arena_take(&x->r, x->bytes_10, 1);
    x->work_02 = arena_take(&x->r, t.gate_work(&gate), 1);
    return x->r.used;
}
