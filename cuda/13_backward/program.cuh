// program.cuh -- the whole backward: launches the kernels of all stages on one stream.
// Book: chapter 13, "Code: kernels".
#include "workspace.cuh"
#include "cuda/host/refused.cuh"
#include "cuda/host/profile_hooks.cuh"

// Bound: the sum of the stages' bounds. As in chapter 08, nothing is allocated, and the
// host waits only for the communicator. If the block saved by forward does not match
// this call's sizes, save mode and reuse_M, all gradients but dh0 become NaN.

// Recomputes the arrays of chapters 02 and 03 that KCP_SAVE_ALL would have saved. beta,
// Aqk and A were saved, so the Aqk and A that chapter 03's kernel may recompute are
// discarded.
static int front_recompute(struct backward *x)
{
    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    struct kcp_gate gate = stage_args<struct kcp_gate>(call, x->s);
    struct kcp_wy wy = stage_args<struct kcp_wy>(call, x->s);
    gate.pass = KCP_FORWARD;
    gate.beta = NULL;
    gate.q = gate.k = NULL;
    int status = x->t.recompute ? x->t.recompute(&gate, &wy) : KCP_NA;
    if (status != KCP_NA) return status;
    wy.Aqk = x->s.dAqk;
    wy.A = x->A_recomputed;
    status = x->t.gate(&gate);
    return status ? status : x->t.wy(&wy);
}

// Computes the first state of every segment and strip (part of a segment). The first
// state of a segment was saved or is h0. For strips, recomputes maps (chapter 05).
static int starts_recompute(struct backward *x, const struct split *f)
{
    const struct kcp_call *call = (struct kcp_call *)&x->a;
    int status = KCP_OK;
    struct kcp_affine map = stage_args<struct kcp_affine>(call, x->s);
    ON_SPLIT(map, *f);

    states_in(call, 0, x->a.h0, x->h_start);
    if (f->L) {
        put_split(call, 0, f);
        if (x->a.h0) spread(call, f, 0, 0, x->h_start, f->starts);
        status = x->t.affine(&map);
    }
    copy_kept(call, x->h_start, x->h_kept);
    return status ? status : start_strips(call, f, 0, x->h_start);
}

// Recomputes what KCP_SAVE_ALL would have saved: the results of chapters 02 and 03, the
// first states, and the results of chapter 04.
static int recompute(struct backward *x)
{
    struct split f = x->p;
    if (!f.L) f.starts = x->h_start;
    x->s.h_start = x->a.h0 ? f.starts : NULL;
    x->s.h_in = f.starts;
    int status = front_recompute(x);
    if (!status) status = starts_recompute(x, &f);

    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    struct kcp_chunk chunk = stage_args<struct kcp_chunk>(call, x->s);
    ON_SPLIT(chunk, f);
    return status ? status : x->t.chunk(&chunk);
}

// Runs one part of chapter 09's kernels: KCP_LOCAL before the exchange or, after the
// exchange, KCP_REVERSE, which scans strips (parts of segments).
static int chunks(struct backward *x, int part)
{
    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    struct kcp_chunk_backward c = stage_args<struct kcp_chunk_backward>(call, x->s);
    if (part == KCP_REVERSE) ON_SPLIT(c, x->p);
    c.part = part;
    const int status = x->t.chunk_backward(&c);
    if (part == KCP_REVERSE) gather(call, &x->p, 1, x->p.ends, x->dh_in);
    return status;
}

// Runs the kernels of chapters 11 and 07: `states[s]` becomes the gradient of the state
// after segment s. From `states[s]`, also computes the gradient after each strip (part)
// of the segment. With reuse_M and without strips, M of a segment is copied from
// forward's maps. M of strips was not saved and is recomputed.
static int carry(struct backward *x)
{
    const struct kcp_backward *a = &x->a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    struct kcp_merge_backward m = stage_args<struct kcp_merge_backward>(call, x->s);
    ON_SPLIT(m, x->p);
    m.reuse_M = a->reuse_M && !x->p.L;

    profile_hook(PART_SUM, a->stream);
    put_split(call, 1, &x->p);
    states_in(call, 1, a->dht, x->states);
    if (a->dht) spread(call, &x->p, 1, 0, x->states, x->p.starts);
    if (m.reuse_M && a->NS)
        cudaMemcpyAsync(x->dmap, arena_named(&x->r, "maps", 0, 1),
                        sizeof(float) * a->NS * a->HV * a->K * (a->V + a->K),
                        cudaMemcpyDeviceToDevice, a->stream);
    int status = needs_maps(call, &x->p) ? x->t.merge_backward(&m) : KCP_OK;
    if (!status) status = compose_strips(call, &x->p, 1, x->dmap);
    profile_hook(PART_EXCHANGE, a->stream);
    if (!status) status = exchange(&x->e);
    if (!status) status = start_strips(call, &x->p, 1, x->states);
    profile_hook(PART_MAIN, a->stream);
    return status;
}

// Runs the kernels of chapters 10 and 02: computes the gradients of the raw inputs and,
// per segment, of the parameters.
static int down(struct backward *x)
{
    const struct kcp_call *call = (const struct kcp_call *)&x->a;
    struct kcp_wy_backward wy = stage_args<struct kcp_wy_backward>(call, x->s);
    struct kcp_gate gate = stage_args<struct kcp_gate>(call, x->s);
    wy.work = x->work_10;
    wy.work_bytes = x->bytes_10;
    gate.pass = KCP_BACKWARD;
    gate.work = x->work_02;

    clear_parameter_rows(&x->a, (float *)x->s.dA_part, (float *)x->s.ddt_part);
    const int status = x->t.wy_backward(&wy);
    return status ? status : x->t.gate(&gate);
}

// Computes dh0 of the sequences that start on this rank, and sums dA_log and ddt_bias
// over the ranks.
static int last(struct backward *x)
{
    const struct kcp_backward *a = &x->a;
    states_out((const struct kcp_call *)a, 0, x->dh_in, a->dht, a->dh0);
    const int status = parameter_sums(a, (float *)x->s.dA_part, (float *)x->s.ddt_part,
                                      x->all);
    return status ? status : launched();
}

template <class X>
static size_t backward_work(const void *args, const struct stages &t)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    struct backward x;
    return a->plan && t.path ? place<X>(&x, a, t) : 0;
}

template <class X>
static int backward_run(void *args, const struct stages &t)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    struct backward x;
    if (!a->plan || !a->saved) return KCP_BAD;
    if (!t.path) return KCP_NA;
    int status = place<X>(&x, a, t) <= a->work_bytes ? KCP_OK : KCP_BAD;
    if (a->saved_bytes < x.r.head.bytes) status = KCP_BAD;

    //> kernel-backward
    if (!status && !all_was_kept(&x)) status = recompute(&x);
    if (!status) status = chunks(&x, KCP_LOCAL);
    if (!status) status = carry(&x);
    if (!status) status = chunks(&x, KCP_REVERSE);
    if (!status) status = down(&x);
    if (!status) status = last(&x);
    //< kernel-backward
    if (!status) nan_if_block_differs(&x.a, &x.r, sizeof(X) == 2 ? KCP_BF16 : KCP_F32);
    return report_failure((const struct kcp_call *)a, status, t.name);
}
