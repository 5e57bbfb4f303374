// rank.cuh -- one rank's workspace for Spike-KDA, and the choice of the scan.
// Book: chapter 15, "Code: kernels".
#pragma once

#include "cuda/host/workspace.cuh"
#include "cuda/host/mapops.cuh"
#include "gradients.cuh"
#include "repeat.cuh"
#include "scan.cuh"
#include "sequential.cuh"

// One rank's scan. Nothing is allocated, and the host waits only for the communicator.
// Backward stores dO per token and one state per tile (chunk).
struct scan {
    struct kcp_scan a;
    struct scan_kernel by;
    const struct kcp_context *ctx;
    struct arena r;
    struct tile x;
    struct repeats p;
    struct kcp_exchange e;
    int *want;
    float *maps, *decay, *states, *ends, *tmp, *tile_h;    // decay: for one map
    float *dq_part, *dk_part, *part, *mine, *all, *sum;
};

// Returns whether stretch s (a token range of one sequence) uses the parallel scan.
// KCP_AUTO selects the parallel scan only if the cost model predicts less time.
static int scanned(const struct scan *x, int s)
{
    const struct kcp_scan *a = &x->a;
    if (a->walk != KCP_AUTO) return a->walk == KCP_BLELLOCH;
    const int len = x->ctx->cu[s + 1] - x->ctx->cu[s], n = len < a->C ? len : a->C;
    int launches = 5;
    for (int d = 1; d < n; d *= 2) launches += 2;
    const float map = (float)a->HV * a->K * (a->K + a->V);
    const struct pace *pace = &x->by.pace;
    return launches * pace->launch + n * map * pace->number < n * pace->token;
}

static int64_t state_size(const struct scan *x)
{
    return (int64_t)x->a.HV * x->a.K * x->a.V;
}

static size_t scan_layout(struct scan *x, const struct kcp_scan *args,
                          const struct scan_kernel &by)
{
    *x = {};
    struct kcp_scan *a = &x->a;
    *a = *args;
    x->by = by;
    x->ctx = &a->plan->ctx[a->r];
    const int64_t KV = state_size(x), map = KV + (int64_t)a->HV * a->K * a->K;
    const int64_t rows = padded_rows(a->plan), row = (int64_t)a->HV * a->V;
    const int64_t f4 = sizeof(float), n = (int64_t)a->HV * (a->K + 1) * a->D;
    const int back = a->pass == KCP_BACKWARD;
    int64_t C = 0, maps = 0;
    for (int s = 0; s < a->NS; s++) {
        const int len = x->ctx->cu[s + 1] - x->ctx->cu[s], c = len < a->C ? len : a->C;
        C = c > C ? c : C;
        maps = scanned(x, s) && c > maps ? c : maps;
    }
    struct arena *r = &x->r;
    r->base = (char *)a->work;
    x->x.a = *a;
    x->x.alpha = (float *)arena_take(r, C * a->HV * a->K, f4);
    x->x.fade = (float *)arena_take(r, C * a->HV * a->K, f4);
    x->x.beta = (float *)arena_take(r, C * a->HV, f4);
    x->x.beta_slope = (float *)arena_take(r, C * a->HV, f4);
    x->x.node = (float *)arena_take(r, maps * map, f4);
    x->x.decay = (float *)arena_take(r, maps * a->HV * a->K, f4);
    x->decay = (float *)arena_take(r, (int64_t)a->HV * a->K, f4);
    x->x.before = (float *)arena_take(r, (back ? C : maps) * KV, f4);
    x->want = (int *)arena_take(r, a->NS, 4);
    x->maps = (float *)arena_take(r, a->NS * map, f4);
    x->tmp = (float *)arena_take(r, KV, f4);
    x->states = (float *)arena_take(r, a->NS * KV, f4);
    x->p = { *a, (float *)arena_take(r, rows * (row + 1), f4),
             (float *)arena_take(r, a->plan->R * rows * (row + 1), f4), NULL,
             (int *)arena_take(r, a->plan->S, 4),
             (int *)arena_take(r, FACTS * a->NS, 4), (int)row };
    if (back) {
        x->x.after = (float *)arena_take(r, C * KV, f4);
        x->ends = (float *)arena_take(r, a->NS * KV, f4);
        x->tile_h = (float *)arena_take(r, a->NC * KV, f4);
        x->p.dO = (float *)arena_take(r, a->T * row, f4);
        x->x.dO = x->p.dO;
        x->dq_part = (float *)arena_take(r, C * a->HV * a->K, f4);
        x->dk_part = (float *)arena_take(r, C * a->HV * a->K, f4);
        x->part = (float *)arena_take(r, a->NC * n, f4);
        x->mine = (float *)arena_take(r, rows * n, f4);
        x->sum = (float *)arena_take(r, n, f4);
        x->all = (float *)arena_take(r, a->plan->R * rows * n, f4);
    }
    const struct kcp_mapops *ops = a->ops ? a->ops : &cuda_mapops;
    x->e = { a->form, 0, a->blocks, 0, a->HV, a->K, a->V, a->plan, a->comm, ops,
             x->maps, x->states, NULL, NULL, a->stream };
    struct kcp_exchange reversed = x->e; // one workspace for both directions
    reversed.backward = 1;
    const size_t ahead = kcp_exchange_work(&x->e),
                 behind = kcp_exchange_work(&reversed);
    x->e.work = arena_take(r, ahead > behind ? ahead : behind, 1);
    return r->used;
}

// Copies the tables `place` and `facts` (repeat.cuh) to the device.
static void store_tables(struct scan *x)
{
    const struct kcp_plan *p = x->a.plan;
    const struct kcp_segment *seg = p->seg + x->ctx->seg0;
    const int rows = (int)padded_rows(p);
    struct putter place = { x->p.place, {}, x->a.stream };
    for (int j = 0; j < p->S; j++) {
        const int rank = p->seg[p->order[j]].rank;
        put(&place, rank * rows + p->order[j] - p->ctx[rank].seg0);
    }
    put_rest(&place);
    struct putter facts = { x->p.facts, {}, x->a.stream };
    for (int s = 0; s < x->a.NS; s++) {
        const struct kcp_segment *g = &seg[s];
        const int *cu = x->ctx->cu + s;
        const int ends = (g->first ? FIRST : 0) | (g->last ? LAST : 0);
        const int fact[FACTS] = { cu[0], cu[1], ends, g->n, g->at };
        for (int i : fact) put(&facts, i);
    }
    put_rest(&facts);
}
