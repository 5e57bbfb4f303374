// v4_factors_place.cuh -- a rank's backward from chunk factors: where what lies.
// Book: chapter 18, "Backward".
// Checked by: tests/13_backward/checks.c.
// Next: v4_factors_sm90.cu.
#ifndef KCP_V4_FACTORS_PLACE_CUH
#define KCP_V4_FACTORS_PLACE_CUH

#include "cuda/host/refused.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/host/profile_hooks.cuh"
#include "cuda/host/segment_sum.cuh"
#include "cuda/host/split_sequence.cuh"
#include "cuda/18_hopper/backward/storage.cuh"

static const char *const factors_name = "v4_factors";

// This rank's backward. alone: every stretch is a whole sequence and nothing crosses a
// cut, so that h0, dht and dh0 are all the states there are; else states and maps of
// the segments.
struct factors_backward {
    struct backward_params x;
    struct arena r;
    struct kcp_exchange e;
    void *h_kept, *h_start, *states, *dh_in, *dmap;       // [NS] of the segments
    int *want, *own, *row;
    float *dA_rows, *ddt_rows, *all;     // sums of segments; the ranks', gathered
    int *differs;
    int alone;
};

// Of the block.
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

// What maps and their exchange need.
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

// Where everything lies; returns the bytes of work.
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
    arena_open(r, call, a->saved, path->format, factors_name, sizeof(bf16));
    place_block(f);
    f->x.h = arena_take(r, heads * a->K * a->V, sizeof(bf16));
    f->x.dS = arena_take(r, heads * a->K * a->V, sizeof(bf16));
    f->x.v_new = arena_take(r, heads * CHUNK * a->V, sizeof(bf16));
    f->x.dA_part = (float *)arena_take(r, heads * a->KG, sizeof(float));
    f->x.ddt_part = (float *)arena_take(r, heads * a->KG, sizeof(float));
    f->x.scratch = arena_take(r, backward_finish_scratch(a), 1);
    f->dA_rows = (float *)arena_take(r, rows * a->HV, sizeof(float));
    f->ddt_rows = (float *)arena_take(r, rows * gates, sizeof(float));
    f->all = (float *)arena_take(r, a->plan->R * rows * gates, sizeof(float));
    f->differs = (int *)arena_take(r, 1, sizeof(int));
    f->row = (int *)arena_take(r, 2 * a->NS, sizeof(int));
    f->x.row = f->row;
    f->x.order = f->row + a->NS;
    f->alone = kcp_alone(call);
    f->x.h_start = a->h0;
    f->x.dS_end = a->dht;
    f->x.dS_start = a->dh0;
    f->x.layout = a->layout;
    if (f->alone) return r->used;
    place_maps(f);
    f->x.h_start = f->h_start;
    f->x.dS_end = f->states;
    f->x.dS_start = f->dh_in;
    f->x.layout = KCP_KV;
    return r->used;
}

static int64_t segment_length(const struct kcp_call *a, int s)
{
    return segments_of(a)[s].end - segments_of(a)[s].begin;
}

// Rows of the states: by sequence, or by segment; then the segments in the order in
// which the scans begin them: long ones first, by sixteenths of the longest.
static void put_rows(const struct factors_backward *f)
{
    const struct kcp_call *a = (const struct kcp_call *)&f->x.a;
    struct putter x = { f->row, {}, a->stream };
    int64_t longest = 1;
    for (int s = 0; s < a->NS; s++) {
        if (segment_length(a, s) > longest) longest = segment_length(a, s);
        put(&x, f->alone ? segments_of(a)[s].n : s);
    }
    for (int sixteenth = 16; sixteenth >= 0; sixteenth--)
        for (int s = 0; s < a->NS; s++)
            if (16 * segment_length(a, s) / longest == sixteenth) put(&x, s);
    put_rest(&x);
}

#endif
