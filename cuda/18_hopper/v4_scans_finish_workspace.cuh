// v4_scans_finish_workspace.cuh -- the workspace and jobs of v4_scans_finish.
// Book: chapter 18c.
#pragma once

#include "cuda/host/refused.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/host/profile_hooks.cuh"
#include "cuda/host/segment_sum.cuh"
#include "cuda/host/split_sequence.cuh"
#include "cuda/18_hopper/backward/storage.cuh"
#include "core/records.h"

static const char *const factors_name = "v4_scans_finish";

// The backward of this rank. If l.entire is 1, every segment is a whole sequence, so no
// states besides h0, dht, dh0 and those of strips are needed. Otherwise states and maps
// are per segment. `p` describes forward's strips (parts of segments) if forward saved
// the strips' start states and maps, which forward does only if l.entire is 1.
struct factors_backward {
    struct backward_params x;
    struct kcp_launch l;
    struct arena r;
    struct kcp_exchange e;
    struct split p;
    int sms;                             // of this GPU
    void *h_kept, *h_start, *states, *dh_in, *dmap;       // [NS], per segment
    int *want, *own;
    // `first` to `own_row` have, per token range, the index of a state (struct
    // scan_states). `jobs` and `count` have one entry per launch (at most two).
    int *first, *last, *of_first, *own_row, *jobs[2], count[2];
    float *dA_rows, *ddt_rows, *all;     // sums per segment; `all`: from all ranks
};

// Finds forward's results per chunk in the saved block.
static void place_block(struct factors_backward *f)
{
    struct arena *r = &f->r;
    f->x.factors = arena_named(r, "factors", 0, 1);
    f->x.qk_rows = arena_named(r, "qk_rows", 0, 1);
    f->x.rstd_q = (const float *)arena_named(r, "rstd_q", 0, 1);
    f->x.rstd_k = (const float *)arena_named(r, "rstd_k", 0, 1);
    f->x.beta = (const float *)arena_named(r, "beta", 0, 1);
    f->h_kept = arena_named(r, "h_kept", 0, 1);
}

// Places h and v_new of every chunk: with KCP_SAVE_ALL in the saved block, otherwise in
// the workspace, where the scan of states stores h and v_new.
static void place_states(struct factors_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    struct arena *r = &f->r;
    const int64_t heads = (int64_t)a->NC * a->HV;
    f->x.h = arena_named(r, "h_chunks", heads * a->K * a->V, sizeof(bf16));
    f->x.dS = arena_take(r, heads * a->K * a->V, sizeof(bf16));
    f->x.v_new = arena_named(r, "v_new_chunks", heads * CHUNK * a->V, sizeof(bf16));
}

static void place_maps(struct factors_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    struct arena *r = &f->r;
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    f->h_start = arena_take(r, a->NS * KV, sizeof(float));
    f->states = arena_take(r, a->NS * KV, sizeof(float));
    f->dh_in = arena_take(r, a->NS * KV, sizeof(float));
    f->dmap = arena_take(r, a->NS * (KV + KK), sizeof(float));
    f->want = (int *)arena_take(r, 2 * a->NS, sizeof(int));
    f->own = f->want + a->NS;
    f->e = place_exchange(r, (const struct kcp_call *)a, 1, f->dmap, f->states);
}

// Places forward's strips (parts of segments), if forward cut its segments.
static void place_strips(struct factors_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    struct arena *r = &f->r;
    f->p = { 0, a->NS, (int *)a->cu, (int *)a->cn, NULL, NULL, NULL, NULL, NULL };
    if (f->l.split) f->p.L = (int64_t)f->l.strips * a->C;
    for (int s = f->p.NS = 0; s < a->NS; s++)
        f->p.NS += strips_of(&f->p, segments_of(call) + s);
    const int n = f->p.NS;
    f->first = (int *)arena_take(r, 10 * n + 2, sizeof(int));
    f->last = f->first + n;
    f->of_first = f->last + n;
    f->own_row = f->of_first + n;
    f->jobs[0] = f->own_row + n;
    f->jobs[1] = f->jobs[0] + 2 * n;
    if (!f->p.L) return;
    const int64_t state = (int64_t)a->HV * a->K * a->V;
    f->p.cu = f->jobs[1] + 2 * n;
    f->p.cn = f->p.cu + n + 1;
    f->p.maps = arena_named(r, "strip_maps", 0, 1);
    f->p.starts = arena_take(r, n * state, sizeof(float));
    f->p.ends = arena_take(r, n * state, sizeof(float));
}

// Fills f with pointers into workspace and saved block. Returns the workspace's size.
// If the path is v7_by_head, no sequence is cut.
static size_t place_backward(struct factors_backward *f,
                             const struct kcp_backward *args,
                             const struct kcp_path *path)
{
    *f = {};
    f->x.a = *args;
    struct kcp_backward *a = &f->x.a;
    struct arena *r = &f->r;
    if (!a->ops) a->ops = &cuda_mapops;
    const struct kcp_call *call = (const struct kcp_call *)a;
    const int64_t heads = (int64_t)a->NC * a->HV, rows = padded_rows(a->plan);
    const int64_t gates = (int64_t)a->HV * a->KG;
    const struct kcp_device device = device_here();
    f->sms = device.sms;
    f->l = kcp_launch_of(call, &device);
    if (path->format == KCP_FORMAT_BY_HEAD) f->l.split = 0;
    arena_open(r, call, a->saved, path->format, factors_name, sizeof(bf16));
    place_block(f);
    place_states(f);
    f->x.dA_part = (float *)arena_take(r, heads * a->KG, sizeof(float));
    f->x.ddt_part = (float *)arena_take(r, heads * a->KG, sizeof(float));
    f->x.scratch = arena_take(r, backward_finish_scratch(a), 1);
    f->dA_rows = (float *)arena_take(r, rows * a->HV, sizeof(float));
    f->ddt_rows = (float *)arena_take(r, rows * gates, sizeof(float));
    f->all = (float *)arena_take(r, a->plan->R * rows * gates, sizeof(float));
    place_strips(f);
    f->x.first = { a->h0, f->first, a->layout };
    f->x.last = { a->dht, f->last, a->layout };
    f->x.of_first = { a->dh0, f->of_first, a->layout };
    if (f->p.L)
        f->x.first = { arena_named(r, "strip_starts", 0, 1), f->first, KCP_KV };
    if (f->l.entire) return r->used;
    place_maps(f);
    f->x.first = { f->h_start, f->first, KCP_KV };
    f->x.last = { f->states, f->last, KCP_KV };
    f->x.of_first = { f->dh_in, f->of_first, KCP_KV };
    return r->used;
}

static_assert(KCP_JOB_STATES == 1 << SCAN_STATES
                  && KCP_JOB_REVERSE == 1 << SCAN_REVERSE
                  && KCP_JOB_DH_EXT == 1 << SCAN_DH_EXT, "bits of jobs");

// Returns a bitmask of the scan jobs of a strip (part of a segment) in a launch.
// Without strips, kcp_scan_jobs (split.h) computes the bitmask. With strips, the first
// launch computes the states, the reverse scan of a sequence's last strip, and dh_ext
// of the strips between the first strip and the last. The second launch follows the
// fold (fold_chains) and computes the remaining reverse scans. With KCP_SAVE_ALL no job
// computes states, because the states were saved.
static int jobs_of(const struct factors_backward *f, const struct strip *s, int launch)
{
    const struct kcp_backward *a = &f->x.a;
    const int states = f->l.keeps_states ? 0 : KCP_JOB_STATES;
    const int reverse = KCP_JOB_REVERSE, dh_ext = KCP_JOB_DH_EXT;
    if (!f->p.L)
        return kcp_scan_jobs((const struct kcp_call *)a, f->l.entire, s->at, launch,
                             f->sms);
    if (launch) return s->last ? 0 : reverse;
    if (s->last) return reverse | states;
    return s->first ? states : dh_ext | states;
}

// Stores the jobs in the order in which the scans start: long jobs first. Lengths are
// compared in multiples of 1/16 of the longest job. Among jobs of equal length
// SCAN_STATES is last, because steps of the reverse scans take longer.
static void put_jobs(struct factors_backward *f, struct putter *x, int launch)
{
    const struct kcp_call *call = (const struct kcp_call *)&f->x.a;
    int64_t longest = 1;
    f->count[launch] = 0;
    for (struct strip s = {}; next_strip(call, &f->p, &s);)
        if (s.tokens > longest) longest = s.tokens;
    for (int at = 16 * SCAN_JOBS + SCAN_JOBS - 1; at >= 0; at--)
        for (struct strip s = {}; next_strip(call, &f->p, &s);) {
            const int job = at % SCAN_JOBS, sixteenth = at / SCAN_JOBS;
            if (16 * s.tokens / longest != sixteenth) continue;
            if (!(jobs_of(f, &s, launch) >> job & 1)) continue;
            put(x, s.at * SCAN_JOBS + job);
            f->count[launch]++;
        }
    for (int i = f->count[launch]; i < 2 * f->p.NS; i++) put(x, 0);
}

// Fills the index arrays, in the order in which place_strips allocated them. Without
// l.entire, each segment has a separate row of states. If a segment's reverse scan
// precedes the exchange, `of_first` is -1, and the scan stores the gradient in the
// map's dh_ext.
static void put_rows(struct factors_backward *f)
{
    const struct kcp_call *call = (const struct kcp_call *)&f->x.a;
    struct putter x = { f->first, {}, f->x.a.stream };
    for (int row = 0; row < 4; row++)
        for (struct strip s = {}; next_strip(call, &f->p, &s);) {
            int at = s.at;
            if (f->l.entire && row == 0 && !f->p.L) at = s.sequence;
            if (f->l.entire && row == 1) at = s.last ? s.sequence : -1;
            if (f->l.entire && row == 2) at = s.first ? s.sequence : -1;
            if (!f->l.entire && row == 2 && kcp_reverses_first(call, s.at, f->sms))
                at = -1;
            put(&x, at);
        }
    put_jobs(f, &x, 0);
    put_jobs(f, &x, 1);
    if (f->p.L) put_grid(call, &f->p, &x);
    put_rest(&x);
}
