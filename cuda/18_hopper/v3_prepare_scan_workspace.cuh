// v3_prepare_scan_workspace.cuh -- workspace and index arrays of v3_prepare_scan.
// Book: chapter 18.
#pragma once

#include "cuda/host/mapops.cuh"
#include "cuda/host/profile_hooks.cuh"
#include "cuda/host/split_sequence.cuh"
#include "chunk_factors.cuh"

static const char *const fused_name = "v3_prepare_scan";

// The forward of this rank. If l.cut is 0, every stretch (the token range of one scan)
// is a whole sequence, so h0 and ht are the only states. Otherwise states and maps are
// per segment, or per strip if segments are cut (split_sequence.cuh).
struct fused {
    struct forward_params x;
    struct kcp_launch l;
    struct arena r;
    struct kcp_exchange e;
    struct split p;
    void *states, *maps, *h_kept;        // [NS], per segment
    struct chunk_states kept;            // KCP_SAVE_ALL only
    int map_is_read;                     // 1 if a later rank reads the walk's map
};

static void place_block(struct fused *f)
{
    struct forward_params *x = &f->x;
    struct arena *r = &f->r;
    f->h_kept = arena_named(r, "h_kept", 0, 1);
    x->saved.rstd_q = (float *)arena_named(r, "rstd_q", 0, 1);
    x->saved.rstd_k = (float *)arena_named(r, "rstd_k", 0, 1);
    x->saved.beta = (float *)arena_named(r, "beta", 0, 1);
    if (!f->l.keeps_states) return;
    f->kept.h = arena_named(r, "h_chunks", 0, 1);
    f->kept.v_new = arena_named(r, "v_new_chunks", 0, 1);
}

// Places the workspace of the strips (parts of segments). If no sequence crosses a cut
// between ranks, forward saves the strips' start states and maps for backward.
static void place_strips(struct fused *f)
{
    const struct kcp_forward *a = &f->x.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    struct arena *r = &f->r;
    if (!a->saved || !f->l.entire) {
        f->p = split_sequence(call, r, &f->p);
        return;
    }
    f->p = split_grid(call, r, &f->p);
    f->p.starts = arena_named(r, "strip_starts", 0, 1);
    f->p.maps = arena_named(r, "strip_maps", 0, 1);
}

static void place_maps(struct fused *f)
{
    struct kcp_forward *a = &f->x.a;
    struct arena *r = &f->r;
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    f->maps = arena_named(r, "maps", a->NS * (KV + KK), sizeof(float));
    f->states = arena_take(r, a->NS * KV, sizeof(float));
    f->e = place_exchange(r, (const struct kcp_call *)a, 0, f->maps, f->states);
    f->p.want = (int *)arena_take(r, a->NS, sizeof(int));
    f->p.maps = f->maps;
    f->p.starts = f->states;
    a->strip_chunks = f->l.strips;
    if (a->strip_chunks && !a->plan->L) place_strips(f);
    f->x.maps = f->p.maps;
    f->x.h_in = f->p.starts;
    f->x.h_layout = KCP_KV;
    f->x.want = f->p.want;
    f->x.h_own = f->states;
}

// Fills f with pointers into workspace and saved block. If `whole` is 1, no sequence is
// cut. Returns the size of the workspace.
static size_t place_fused(struct fused *f, const struct kcp_forward *args,
                          const struct kcp_path *path, int whole)
{
    *f = {};
    f->x.a = *args;
    struct kcp_forward *a = &f->x.a;
    f->x.channels = a->KG;
    if (a->KG != 1) a->KG = a->K;        // less than K: a call of v6_adapted
    struct arena *r = &f->r;
    if (!a->ops) a->ops = &cuda_mapops;
    a->g_type = kcp_type_of((const struct kcp_call *)a, KCP_G, KCP_BF16);
    a->beta_type = kcp_type_of((const struct kcp_call *)a, KCP_BETA, KCP_BF16);
    const struct kcp_call *call = (const struct kcp_call *)a;
    const struct kcp_device device = device_here();
    f->l = kcp_launch_of(call, &device);
    if (whole) f->l.cut = 0;
    arena_open(r, call, a->saved, path->format, fused_name, sizeof(bf16));
    if (a->saved) place_block(f);
    f->p = { 0, a->NS, (int *)a->cu, (int *)a->cn, NULL, NULL, NULL, NULL, NULL };
    size_t factors = sizeof(struct gdn_head_factors);
    if (a->KG != 1 && a->K == 64) factors = sizeof(struct chunk_factors<64>);
    if (a->KG != 1 && a->K != 64) factors = sizeof(struct chunk_factors<128>);
    f->x.factors = arena_named(r, "factors", (int64_t)a->NC * a->HV, factors);
    f->x.qk_rows = arena_named(r, "qk_rows", a->KG == 1 ? (int64_t)a->NC * a->H : 0,
                               4 * a->K / 64 * SWIZZLE128_TILE);
    f->x.count = a->NC;
    f->x.carry = arena_take(r, a->NS == 1 ? (int64_t)a->HV * a->K * a->V : 0,
                            sizeof(float));
    f->x.h_in = a->h0;
    f->x.h_layout = a->layout;
    f->x.raw_rows = a->KG == 1 && a->K == 128 && !f->l.cut && !a->saved;
    f->map_is_read = f->l.walk && !segments_of(call)->last;
    if (f->l.cut) place_maps(f);
    f->x.from = (int *)arena_take(r, 4 * f->p.NS, sizeof(int));
    f->x.to = f->x.from + f->p.NS;
    f->x.own = f->x.to + f->p.NS;
    f->x.order = f->x.own + f->p.NS;
    if (f->l.cut || !a->saved) return r->used;
    f->x.saved.h_kept = f->h_kept;
    f->x.kept = kcp_saved_states(call);
    return r->used;
}

// Stores the order in which the scan starts the token ranges: long ranges first, so
// that the last blocks to start are short. Lengths are rounded down to multiples of
// 1/16 of the longest range.
static void put_order(const struct fused *f, struct putter *x)
{
    const struct kcp_call *a = (const struct kcp_call *)&f->x.a;
    int64_t longest = 1;
    for (struct strip s = {}; next_strip(a, &f->p, &s);)
        if (s.tokens > longest) longest = s.tokens;
    for (int sixteenth = 16; sixteenth >= 0; sixteenth--)
        for (struct strip s = {}; next_strip(a, &f->p, &s);)
            if (16 * s.tokens / longest == sixteenth) put(x, s.at);
}

// Stores three row numbers per token range, -1 for none: of the first state in h_in, of
// the last state in ht, and of the state in h_own with which the scan for h_ext starts.
static void put_rows(const struct fused *f)
{
    const struct kcp_call *a = (const struct kcp_call *)&f->x.a;
    struct putter x = { (int *)f->x.from, {}, a->stream };
    for (int row = 0; row < 3; row++)
        for (struct strip s = {}; next_strip(a, &f->p, &s);) {
            if (row == 0) put(&x, f->l.cut ? s.at : s.sequence);
            else if (row == 1) put(&x, s.last ? s.sequence : -1);
            else put(&x, s.first ? s.segment : -1);
        }
    put_order(f, &x);
    put_rest(&x);
}
