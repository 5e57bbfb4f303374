// v3_records_sm90.cu -- the whole forward from packed records: prepare, maps, scan.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: ../13_backward/v3_records.cu.
#include "../stages_v2.cuh"
#include "program.cuh"
#include "v3_records_maps.cuh"
#include "v3_records_cut.h"
#include "v3_records_gdn.cuh"
#include "v3_records_kda.cuh"
#include "v3_records_scan.cuh"
static struct stages stages(void) { return stages_v2("v3_records"); }

// What the kernels take. Where save-all wants every factor as a tensor, and for other
// shapes, the stages of v2 run instead.
static int takes(const struct kcp_forward *a)
{
    const void *p[] = { a->q_raw, a->k_raw, a->v, a->g_raw, a->o };
    if (a->C != CHUNK || (a->K != 64 && a->K != 128) || (a->V != 64 && a->V != 128))
        return 0;
    if (a->saved && a->save == KCP_SAVE_ALL) return 0;
    for (const void *x : p)
        if (!aligned_16(x)) return 0;
    return 1;
}

// By K and by the gate.
static int run_prepare(const struct records *x)
{
    if (x->a.KG == 1)
        return x->a.K == 128 ? prepare_gdn_records<128>(x) : prepare_gdn_records<64>(x);
    return x->a.K == 128 ? prepare_kda_records<128>(x) : prepare_kda_records<64>(x);
}

static int run_maps(const struct records *x)
{
    if (x->a.KG == 1)
        return x->a.K == 128 ? records_maps<128, 0>(x) : records_maps<64, 0>(x);
    return x->a.K == 128 ? records_maps<128, 1>(x) : records_maps<64, 1>(x);
}

static int run_scan(const struct records *x)
{
    if (x->a.KG == 1)
        return x->a.K == 128 ? scan_records<128, 0>(x) : scan_records<64, 0>(x);
    return x->a.K == 128 ? scan_records<128, 1>(x) : scan_records<64, 1>(x);
}

// This rank's forward. alone: every stretch is a whole sequence and nothing crosses a
// cut, so that h0 and ht are all the states there are; else states and maps as in v1's
// program, of strips where a rank cuts its segments (strips.cuh).
struct fused {
    struct records x;
    struct room r;
    struct kcp_exchange e;
    struct strips p;
    void *states, *maps, *h_kept;        // [NS] of the segments
    int alone;
};

static int is_alone(const struct kcp_forward *a)
{
    const struct kcp_segment *seg = segments_of((const struct kcp_call *)a);
    int alone = !a->plan->crossing;
    for (int s = 0; s < a->NS; s++) alone = alone && seg[s].first && seg[s].last;
    return alone;
}

// Into strips of how many chunks? 0: no strips. A canonical plan is never cut.
static int strip_chunks(const struct kcp_forward *a)
{
    if (a->strip_chunks || a->plan->L) return a->strip_chunks;
    return kcp_records_strip(&a->plan->ctx[a->r], a->HV, a->V, processors(),
                             !is_alone(a));
}

static void place_block(struct fused *f)
{
    struct records *x = &f->x;
    struct room *r = &f->r;
    x->to13.q = take_named(r, "q", 0, 1), x->to13.k = take_named(r, "k", 0, 1);
    x->to13.rstd_q = take_named(r, "rstd_q", 0, 1);
    x->to13.rstd_k = take_named(r, "rstd_k", 0, 1);
    x->to13.beta = take_named(r, "beta", 0, 1);
    x->to13.Aqk = take_named(r, "Aqk", 0, 1), x->to13.A = take_named(r, "A", 0, 1);
    f->h_kept = take_named(r, "h_kept", 0, 1);
}

// What maps and their exchange need.
static void place_maps(struct fused *f)
{
    struct kcp_forward *a = &f->x.a;
    struct room *r = &f->r;
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    f->maps = take_named(r, "maps", a->NS * (KV + KK), sizeof(float));
    f->states = take(r, a->NS * KV, sizeof(float));
    f->e = { a->form, 0, a->blocks, a->reuse_M, a->HV, a->K, a->V, a->plan, a->comm,
             a->ops, f->maps, f->states, NULL, NULL, a->stream };
    if (a->saved && a->reuse_M) f->e.kept = take_named(r, "kept", 0, 1);
    f->e.work = take(r, kcp_exchange_work(&f->e), 1);
    f->p.want = (int *)take(r, a->NS, sizeof(int));
    f->p.maps = f->maps, f->p.starts = f->states;
    a->strip_chunks = strip_chunks(a);
    if (a->strip_chunks && !a->plan->L)
        f->p = place_strips((const struct kcp_call *)a, r, &f->p);
    f->x.maps = f->p.maps, f->x.h_in = f->p.starts, f->x.h_layout = KCP_KV;
    f->x.want = f->p.want, f->x.h_own = f->states;
}

// Where everything lies; returns the bytes of work.
static size_t place_fused(struct fused *f, const struct kcp_forward *args)
{
    *f = {};
    f->x.a = *args;
    struct kcp_forward *a = &f->x.a;
    struct room *r = &f->r;
    if (!a->ops) a->ops = &cuda_mapops;
    r->base = (char *)a->work, r->saved = (char *)a->saved;
    kcp_saved_layout(&r->head, (const struct kcp_call *)a, stages().name, sizeof(bf16),
                     sizeof(float));
    if (a->saved) place_block(f);
    f->p = { 0, a->NS, (int *)a->cu, (int *)a->cn, NULL, NULL, NULL, NULL, NULL };
    f->x.record = take(r, (int64_t)a->NC * a->HV,
                       a->KG == 1 ? sizeof(struct head_record)
                     : a->K == 64 ? sizeof(struct record<64>)
                                  : sizeof(struct record<128>));
    f->x.rows = take(r, a->KG == 1 ? (int64_t)a->NC * a->H : 0, 4 * a->K / 64 * PANEL);
    f->x.count = a->NC;
    f->x.carry = take(r, a->NS == 1 ? (int64_t)a->HV * a->K * a->V : 0, sizeof(float));
    f->x.h_in = a->h0, f->x.h_layout = a->layout;
    f->alone = is_alone(a) && !strip_chunks(a);
    if (!f->alone) place_maps(f);
    f->x.from = (int *)take(r, 3 * f->p.NS, sizeof(int));
    f->x.to = f->x.from + f->p.NS, f->x.own = f->x.to + f->p.NS;
    if (!f->alone || !a->saved) return r->used;
    f->x.to13.h_kept = f->h_kept, f->x.kept = kcp_saved_states((struct kcp_call *)a);
    return r->used;
}

// Row of h_in that a stretch begins with; of ht that it ends with, of h_own that its
// map begins with, -1: none.
static void put_rows(const struct fused *f)
{
    const struct kcp_call *a = (const struct kcp_call *)&f->x.a;
    struct putter x = { (int *)f->x.from, {}, a->stream };
    for (int row = 0; row < 3; row++)
        for (int s = 0, at = 0; s < a->NS; s++) {
            const struct kcp_segment *g = segments_of(a) + s;
            for (int j = 0, m = strips_of(&f->p, g); j < m; j++, at++)
                put(&x, row == 0 ? (f->alone ? g->n : at)
                      : row == 1 ? (j + 1 < m || !g->last ? -1 : g->n)
                                 : (j || !g->first ? -1 : s));
        }
    put_rest(&x);
}

// A sequence without tokens hands h0 through, on the rank that owns it.
static void pass_states(const struct kcp_forward *a)
{
    const struct kcp_plan *p = a->plan;
    const struct states from = { (float *)a->h0, 0 }, to = { (float *)a->ht, 0 };
    struct mover m = { (const struct kcp_call *)a, from, to, {} };
    for (int n = 0; n < p->N; n++)
        if (p->ht_rank[n] == a->r && p->cu_seqlens[n] == p->cu_seqlens[n + 1])
            move(&m, n, n);
    flush(&m);
}

// Chapters 05 and 07: the state with which every strip begins.
static int carry_fused(struct fused *f, const struct records *on_strips)
{
    const struct kcp_call *call = (const struct kcp_call *)&f->x.a;
    const size_t state = sizeof(float) * call->HV * call->K * call->V;
    int status = KCP_OK;
    part(PART_SUM, call->stream);
    if (call->NS) status = run_maps(on_strips);
    if (!status) status = compose_strips(call, &f->p, 0, f->maps);
    part(PART_EXCHANGE, call->stream);
    if (!status) status = exchange(&f->e);
    if (!status) status = start_strips(call, &f->p, 0, f->states);
    if (!status && f->h_kept)
        cudaMemcpyAsync(f->h_kept, f->states, kcp_saved_states(call) * state,
                        cudaMemcpyDeviceToDevice, call->stream);
    return status;
}

// Records of a window, and their scan, window after window; or all records first, for
// maps and states that cross cuts.
static int records_and_scan(struct fused *f, struct records *on_strips)
{
    const struct kcp_forward *a = &f->x.a;
    const struct kcp_context *ctx = &a->plan->ctx[a->r];
    const int n = kcp_windows(ctx, a->HV, a->V, processors(), !f->alone);
    const int chunks = (a->NC + n - 1) / n;
    int status = KCP_OK;
    put_rows(f);
    //> kernel-fused
    for (int first = 0; first < a->NC && f->alone && !status; first += chunks) {
        f->x.first = on_strips->first = first, f->x.count = on_strips->count = chunks;
        status = run_prepare(&f->x);
        for (int p = PART_SUM; p <= PART_MAIN && !first; p++)
            part((enum part)p, a->stream);
        if (!status) status = run_scan(on_strips);
    }
    if (f->alone) return status;
    put_strips((const struct kcp_call *)a, 0, &f->p);
    states_in((const struct kcp_call *)a, 0, a->h0, f->states);
    status = run_prepare(&f->x);
    if (!status) status = carry_fused(f, on_strips);
    part(PART_MAIN, a->stream);
    return status ? status : run_scan(on_strips);
    //< kernel-fused
}

static int fused_run(const struct kcp_forward *args)
{
    struct fused f;
    int status = place_fused(&f, args) <= args->work_bytes ? KCP_OK : KCP_BAD;
    const struct kcp_forward *a = &f.x.a;
    if (a->saved && a->saved_bytes < f.r.head.bytes) status = KCP_BAD;
    struct records on_strips = f.x;
    on_strips.a.cu = f.p.cu, on_strips.a.cn = f.p.cn, on_strips.a.NS = f.p.NS;

    if (!status && a->NS) status = records_and_scan(&f, &on_strips);
    else if (!status && !f.alone) status = carry_fused(&f, &on_strips);
    if (!status) pass_states(a);
    if (!status && a->saved) write_head<<<1, 256, 0, a->stream>>>(a->saved, f.r.head);
    if (status && status != KCP_COMM && a->comm)
        a->comm->fail(a->comm, status, stages().name);
    return status ? status : launched();
}

static int run(void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    return a->plan && takes(a) ? fused_run(a) : forward_run<bf16>(args, stages());
}

static size_t work(const void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    struct fused f;
    return a->plan && takes(a) ? place_fused(&f, a)
                               : forward_work<bf16>(args, stages());
}

KCP_VARIANT(forward_v3_records) = {
    "08_forward", "v3_records", "two kernels: packed records of chunks, and their scan",
    KCP_BF16, KCP_DEVICE, "K, V 64 or 128, C 64; others, and save-all, as v2_stages",
    run, work };
