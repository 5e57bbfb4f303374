// v3_records_sm90.cu -- the whole forward: chunk_prepare, maps, scan.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: ../13_backward/v2_stages.cu, which reads the block that this one leaves.
#include "v3_records_place.cuh"

// What the kernels take is said by their rows of the table of paths, and o's rows leave
// by 16 bytes. NULL: not this call.
static const struct kcp_path *path_of(const struct kcp_forward *a)
{
    if (!a->plan || !is_aligned_16(a->o)) return NULL;
    return kcp_path_of("08_forward", fused_name, KCP_BF16, a);
}

static int chunk_prepare(const struct forward_params *x)
{
    return x->a.KG == 1 ? gdn_chunk_prepare(x) : kda_chunk_prepare(x, processors());
}

// Chapters 05 and 07: the state with which every strip begins.
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

// Factors of some chunks, and their scan, launch after launch; or all factors first,
// for maps and states that cross cuts.
static int prepare_and_scan(struct fused *f, struct forward_params *on_strips)
{
    const struct kcp_forward *a = &f->x.a;
    const struct kcp_cut c = kcp_cut_of((const struct kcp_call *)a, processors());
    const double ratio = kcp_launch_ratio(&c);
    const int n = f->alone && a->NC ? kcp_launches(&c) : 0;
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
        if (!status) status = forward_scan(on_strips, processors());
    }
    if (f->alone) return status;
    put_split((const struct kcp_call *)a, 0, &f->p);
    states_in((const struct kcp_call *)a, 0, a->h0, f->states);
    status = chunk_prepare(&f->x);
    if (!status) status = carry_fused(f, on_strips);
    profile_hook(PART_MAIN, a->stream);
    return status ? status : forward_scan(on_strips, processors());
    //< kernel-fused
}

static int fused_run(const struct kcp_forward *args, const struct kcp_path *path)
{
    struct fused f;
    int status = place_fused(&f, args, path) <= args->work_bytes ? KCP_OK : KCP_BAD;
    const struct kcp_forward *a = &f.x.a;
    if (a->saved && a->saved_bytes < f.r.head.bytes) status = KCP_BAD;
    struct forward_params on_strips = f.x;
    ON_SPLIT(on_strips.a, f.p);

    if (!status && a->NS) status = prepare_and_scan(&f, &on_strips);
    else if (!status && !f.alone) status = carry_fused(&f, &on_strips);
    if (!status) hand_through((const struct kcp_call *)a, 1, a->h0, a->ht);
    if (!status && a->saved) write_head<<<1, 256, 0, a->stream>>>(a->saved, f.r.head);
    tell((const struct kcp_call *)a, status, fused_name);
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
    return path ? place_fused(&f, a, path) : 0;
}

KCP_VARIANT(forward_v3_records) = {
    "08_forward", "v3_records", "two kernels: packed records of chunks, and their scan",
    KCP_BF16, KCP_DEVICE,
    "K, V 64 or 128, C 64, a block to recompute from or none; sm_90a", run, work };
