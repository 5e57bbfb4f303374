// v3_prepare_scan_sm90.cu -- the forward: chunk_prepare, maps, scan.
// Book: chapters 18 and 18b.
#include "v3_prepare_scan_workspace.cuh"

// Returns the row of the table of paths (ref/core/paths.def) that accepts this call, or
// NULL. Also checks that o is aligned to 16 bytes, which the table does not check.
static const struct kcp_path *path_of(const struct kcp_forward *a)
{
    if (!a->plan || !is_aligned_16(a->o)) return NULL;
    return kcp_path_of("08_forward", fused_name, KCP_BF16, a);
}

static int chunk_prepare(const struct forward_params *x)
{
    return x->a.KG == 1 ? gdn_chunk_prepare(x) : kda_chunk_prepare(x, processors());
}

// Runs the scan. With KCP_SAVE_ALL the scan also stores h and v_new in the saved block.
static int scan(const struct fused *f, const struct forward_params *on_strips)
{
    return forward_scan(on_strips, f->kept.h ? &f->kept : NULL, f->l.columns);
}

// Computes the state at the start of every strip (part of a segment): chapters 05, 07.
static int carry_fused(struct fused *f, const struct forward_params *on_strips)
{
    const struct kcp_call *call = (const struct kcp_call *)&f->x.a;
    int status = KCP_OK;
    profile_hook(PART_SUM, call->stream);
    if (call->NS) status = forward_maps(on_strips);
    if (!status) status = compose_strips(call, &f->p, 0, f->maps);
    profile_hook(PART_EXCHANGE, call->stream);
    if (!status) status = exchange(&f->e);
    if (!status) status = start_strips(call, &f->p, 0, f->states);
    if (!status && f->h_kept) copy_kept(call, f->h_kept, f->states);
    return status;
}

// ---- a rank with one segment: its map is computed concurrently with the factors
//
// A window is the chunks that one launch processes. The walk is a scan that computes
// the segment's map window by window. After each strip the walk stores the map of all
// chunks from the segment's start. This map, applied to the segment's first state,
// gives the state at the start of the next strip. If the sequence starts in this
// segment, the walk starts from h0, and h_ext alone is the next strip's first state.

//> kernel-walk
// For each window (range of chunks), computes the window's factors, then continues the
// walk over the window. That walk overlaps chunk_prepare of the next window.
static int prepare_and_walk(struct fused *f)
{
    struct forward_params x = f->x;
    int status = KCP_OK;
    for (struct kcp_walk_window w = {};
         !status && kcp_walk_next(&w, x.a.NC, f->l.strips, f->map_is_read);) {
        x.first = w.first;
        x.count = w.count;
        status = chunk_prepare(&x);
        if (!status && w.is_read)
            status = forward_maps_walk(&x, w.from, w.strip, f->l.walk == KCP_WANT_H);
    }
    return status;
}
//< kernel-walk

static int start_walked(struct fused *f)
{
    const struct kcp_call *a = (const struct kcp_call *)&f->x.a;
    const struct split *p = &f->p;
    const size_t state = sizeof(float) * a->HV * a->K * a->V;
    int status = KCP_OK;
    if (!p->L) return KCP_OK;
    cudaMemcpyAsync(p->starts, f->states, state, cudaMemcpyDeviceToDevice, a->stream);
    for (int j = 1; j < p->NS && !status; j++)
        status = a->ops->apply(a->HV, a->K, a->V, map_at(a, p->maps, j - 1), 0,
                               f->l.walk == KCP_WANT_H, 0, a->V, f->states, a->V,
                               state_at(a, p->starts, j), a->V, a->stream);
    return status;
}

static int carry_walked(struct fused *f)
{
    const struct kcp_call *call = (const struct kcp_call *)&f->x.a;
    const size_t row = sizeof(float) * (call->V + call->K);
    const size_t width = f->l.walk == KCP_WANT_H ? sizeof(float) * call->V : row;
    int status = prepare_and_walk(f);
    profile_hook(PART_SUM, call->stream);
    if (f->p.L && f->map_is_read)
        cudaMemcpy2DAsync(f->maps, row, map_at(call, f->p.maps, f->p.NS - 1), row,
                          width, (size_t)call->HV * call->K, cudaMemcpyDeviceToDevice,
                          call->stream);
    profile_hook(PART_EXCHANGE, call->stream);
    if (!status) status = exchange(&f->e);
    if (!status) status = start_walked(f);
    if (!status && f->h_kept) copy_kept(call, f->h_kept, f->states);
    return status;
}

// If nothing is cut, launches chunk_prepare and the scan for one window after another.
// Otherwise computes all factors and the maps, exchanges the maps, and
// runs the scan.
static int prepare_and_scan(struct fused *f, struct forward_params *on_strips)
{
    const struct kcp_forward *a = &f->x.a;
    const double ratio = f->l.ratio;
    const int n = !f->l.cut && a->NC ? f->l.windows : 0;
    int status = KCP_OK;
    put_rows(f);
    //> kernel-fused
    for (int i = 0; i < n && !status; i++) {
        f->x.first = kcp_launch_begin(a->NC, ratio, n, i);
        f->x.count = kcp_launch_begin(a->NC, ratio, n, i + 1) - f->x.first;
        on_strips->first = f->x.first;
        on_strips->count = f->x.count;
        status = chunk_prepare(&f->x);
        for (int p = PART_SUM; p <= PART_MAIN && i == 0; p++)
            profile_hook((enum profile_part)p, a->stream);
        if (!status) status = scan(f, on_strips);
    }
    if (!f->l.cut) return status;
    put_split((const struct kcp_call *)a, 0, &f->p);
    states_in((const struct kcp_call *)a, 0, a->h0, f->states);
    if (f->l.walk) status = carry_walked(f);
    else status = chunk_prepare(&f->x);
    if (!status && !f->l.walk) status = carry_fused(f, on_strips);
    profile_hook(PART_MAIN, a->stream);
    return status ? status : scan(f, on_strips);
    //< kernel-fused
}

static int fused_run(const struct kcp_forward *args, const struct kcp_path *path)
{
    struct fused f;
    int status = place_fused(&f, args, path, 0) <= args->work_bytes ? KCP_OK : KCP_BAD;
    const struct kcp_forward *a = &f.x.a;
    if (a->saved && a->saved_bytes < f.r.head.bytes) status = KCP_BAD;
    struct forward_params on_strips = f.x;
    ON_SPLIT(on_strips.a, f.p);

    if (!status && a->NS) status = prepare_and_scan(&f, &on_strips);
    else if (!status && f.l.cut) status = carry_fused(&f, &on_strips);
    if (!status) pass_empty_states((const struct kcp_call *)a, 1, a->h0, a->ht);
    if (!status && a->saved) write_head<<<1, 256, 0, a->stream>>>(a->saved, f.r.head);
    report_failure((const struct kcp_call *)a, status, fused_name);
    return status ? status : launched();
}

static int run(void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    const struct kcp_path *path = path_of(a);
    if (!a->plan) return KCP_BAD;
    return path ? fused_run(a, path) : KCP_NA;
}

static size_t work(const void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    const struct kcp_path *path = path_of(a);
    struct fused f;
    return path ? place_fused(&f, a, path, 0) : 0;
}

KCP_VARIANT(forward_v3_prepare_scan) = {
    "08_forward", "v3_prepare_scan",
    "two kernels: one computes chunk factors, one scans chunks", KCP_BF16, KCP_DEVICE,
    "K, V 64 or 128, C 64; sm_90a", run, work };
