// v4_scans_finish_sm90.cu -- the backward from chunk factors: two scans, then finish.
// Book: chapter 18c.
#include "v4_scans_finish_workspace.cuh"
#include "backward/chunk_parts.cuh"
#include "cuda/host/realigned.cuh"

static const struct kcp_path *path_of(const struct kcp_backward *a)
{
    return a->plan ? kcp_path_of("13_backward", factors_name, KCP_BF16, a) : NULL;
}

// ---- gradients of the parameters

static int sum_parameters(struct factors_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    if (!a->dA_log && !a->ddt_bias) return KCP_OK;
    const int terms = a->NS && a->gate != KCP_GATE_RAW;  // a raw gate has no parameters
    if (terms && a->NS == 1 && a->plan->R == 1) {        // a single term
        add_chunk_parts<0><<<a->HV, SUM_THREADS, 0, a->stream>>>(
            f->x, (float *)a->dA_log, (float *)a->ddt_bias);
        return launched();
    }
    if (!terms || a->NS < padded_rows(a->plan))
        clear_parameter_rows(a, f->dA_rows, f->ddt_rows);
    if (terms)
        add_chunk_parts<0><<<dim3(a->HV, a->NS), SUM_THREADS, 0, a->stream>>>(
            f->x, f->dA_rows, f->ddt_rows);
    return parameter_sums(a, f->dA_rows, f->ddt_rows, f->all);
}

// ---- chapters 11 and 07: the gradient of the state after every segment

static int scans(struct factors_backward *f, struct backward_params *x, int launch)
{
    x->jobs = f->jobs[launch];
    x->njobs = f->count[launch];
    return x->njobs ? backward_scans(x, f->l.reverse_columns[launch]) : KCP_OK;
}

// Returns 1 if a sequence extends beyond this rank on both sides, so that M is needed.
static int needs_M(const struct kcp_call *a)
{
    const int seg0 = a->plan->ctx[a->r].seg0;
    for (int s = 0; s < a->NS; s++)
        if (kcp_plan_want(a->plan, seg0 + s, 1) & KCP_WANT_M) return 1;
    return 0;
}

// Computes the segments' maps dS -> M^T dS + dh_ext. SCAN_DH_EXT jobs compute dh_ext. M
// is forward's M, which was saved or is recomputed.
static int make_maps(struct factors_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    const size_t maps = sizeof(float) * a->NS * a->HV * a->K * (a->V + a->K);
    struct backward_params of_maps = f->x;
    int status = KCP_OK;
    if (!a->NS) return KCP_OK;
    put_wants(call, 1, f->want);
    of_maps.want = f->want;
    of_maps.maps = of_maps.dh_ext = (float *)f->dmap;
    of_maps.pitch = a->V + a->K;
    if (a->reuse_M)
        cudaMemcpyAsync(f->dmap, arena_named(&f->r, "maps", 0, 1), maps,
                        cudaMemcpyDeviceToDevice, a->stream);
    else if (needs_M(call)) {
        cudaMemsetAsync(f->own, 0xff, sizeof(int) * a->NS, a->stream);
        status = backward_maps(&of_maps, f->own);
    }
    return status ? status : scans(f, &of_maps, 0);
}

// First runs the scans that do not depend on other strips (parts of a segment). Then
// fold_chains computes the gradient of the state after each strip, from the last strip
// of a sequence to the first. Then the remaining scans run.
static int scan_strips(struct factors_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    const float *maps = (const float *)f->p.maps;
    const struct fold_arrays fold = { (const float *)f->p.ends, maps + a->V, a->V,
                                      a->V + a->K, NULL, (float *)f->p.starts };
    struct backward_params x = f->x;
    ON_SPLIT(x.a, f->p);
    x.dh_ext = (float *)f->p.ends;
    x.pitch = a->V;
    int status = scans(f, &x, 0);
    if (!status && f->count[1])
        status = fold_chains<1>((const struct kcp_call *)a, &f->p, &fold);
    x.dh_ext = NULL;
    x.last = { f->p.starts, f->own_row, KCP_KV };
    return status ? status : scans(f, &x, 1);
}

static int carry_back(struct factors_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    profile_hook(PART_SUM, a->stream);
    states_in(call, 0, a->h0, f->h_start);
    copy_kept(call, f->h_start, f->h_kept);
    states_in(call, 1, a->dht, f->states);
    int status = make_maps(f);
    profile_hook(PART_EXCHANGE, a->stream);
    if (!status) status = exchange(&f->e);
    profile_hook(PART_MAIN, a->stream);
    return status;
}

static int run_factors(const struct kcp_backward *args, const struct kcp_path *path)
{
    struct factors_backward f;
    int status = place_backward(&f, args, path) <= args->work_bytes ? KCP_OK : KCP_BAD;
    const struct kcp_backward *a = &f.x.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    if (a->saved_bytes < f.r.head.bytes) status = KCP_BAD;

    if (!status) put_rows(&f);
    for (int p = PART_SUM; p <= PART_MAIN && f.l.entire; p++)
        profile_hook((enum profile_part)p, a->stream);
    //> kernel-backward-factors
    if (!status && !f.l.entire) status = carry_back(&f);
    if (!status && f.p.L) status = scan_strips(&f);
    if (!status && !f.p.L) status = scans(&f, &f.x, !f.l.entire);
    if (!status && a->NS) status = backward_finish(&f.x, f.sms);
    if (!status) status = sum_parameters(&f);
    //< kernel-backward-factors
    if (!status && f.l.entire) pass_empty_states(call, 0, a->dht, a->dh0);
    if (!status && !f.l.entire) states_out(call, 0, f.dh_in, a->dht, a->dh0);
    if (!status) nan_if_block_differs(a, &f.r, KCP_BF16);
    report_failure(call, status, factors_name);
    return status ? status : launched();
}

static int run(void *args)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    return run_realigned(*a, path_of(a), run_factors);
}

static size_t work_of(const struct kcp_backward *a, const struct kcp_path *path)
{
    struct factors_backward f;
    return place_backward(&f, a, path);
}

static size_t work(const void *args)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    return realigned_work(*a, path_of(a), work_of);
}

KCP_VARIANT(backward_v4_scans_finish) = {
    "13_backward", "v4_scans_finish",
    "from chunk factors: two scans in one grid, then one finishing kernel", KCP_BF16,
    KCP_DEVICE, "K, V 64 or 128, C 64; saved format chunks; sm_90a", run, work };
