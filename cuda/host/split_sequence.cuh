// split_sequence.cuh -- cuts segments into strips if (segment, head) pairs are few.
// Book: chapter 18b, "Few heads".
#pragma once

#include "workspace.cuh"
#include "processors.cuh"
#include "cuda/host/split.h"
#include "split_sequence_fold.cuh"

// A plan consists of segments. A rank with few (segment, head) pairs cuts its segments
// into strips at multiples of L tokens. Chunks do not change. The maps of the strips
// (chapter 05) are computed once, for two uses. First, their composition is the
// segment's map for the exchange. Second, the maps compute the first state of each
// strip from the segment's first state. If L is 0, a strip is a segment, and all arrays
// of this struct are the segments' arrays. L is 0 for a canonical plan, because the
// bits of results must depend only on the plan's segments.
struct split {
    int64_t L;
    int NS;                              // strips on this rank
    int *cu, *cn, *want;                 // [NS+1], [NS+1], [NS]
    void *maps, *starts, *ends, *spare;  // one per strip, but `spare` is one map
};

// Sets NS, cu and cn of a stage's call to the values for strips instead of segments.
#define ON_SPLIT(c, p)                                                                \
    do {                                                                              \
        (c).NS = (p).NS;                                                              \
        (c).cu = (p).cu;                                                              \
        (c).cn = (p).cn;                                                              \
    } while (0)

static inline const struct kcp_segment *segments_of(const struct kcp_call *a)
{
    return a->plan->seg + a->plan->ctx[a->r].seg0;
}

static inline int strips_of(const struct split *p, const struct kcp_segment *s)
{
    return p->L ? (int)((s->end - s->begin + p->L - 1) / p->L) : 1;
}

// Places the strips' tables cu, cn and want in the workspace. If the rank does not
// split segments, returns `whole`, which has the tables and arrays of the segments.
static inline struct split split_grid(const struct kcp_call *a, struct arena *r,
                                      const struct split *whole)
{
    struct split p = *whole;
    p.L = kcp_stage_length(a, processors());
    if (!p.L) return p;
    p.NS = 0;
    for (int s = 0; s < a->NS; s++) p.NS += strips_of(&p, segments_of(a) + s);
    p.cu = (int *)arena_take(r, 3 * p.NS + 2, sizeof(int));
    p.cn = p.cu + p.NS + 1;
    p.want = p.cn + p.NS + 1;
    return p;
}

// Returns 1 if a segment or a strip (part of a segment) of this rank needs a map.
static inline int needs_maps(const struct kcp_call *a, const struct split *p)
{
    return p->L || !kcp_entire(a);
}

static inline struct split split_sequence(const struct kcp_call *a, struct arena *r,
                                          const struct split *whole)
{
    struct split p = split_grid(a, r, whole);
    const int64_t state = (int64_t)a->HV * a->K * a->V, f = sizeof(float);
    if (!p.L) return p;
    p.starts = arena_take(r, p.NS * state, f);
    p.ends = arena_take(r, p.NS * state, f);
    p.maps = arena_take(r, p.NS * (state + (int64_t)a->HV * a->K * a->K), f);
    p.spare = arena_take(r, state + (int64_t)a->HV * a->K * a->K, f);
    return p;
}

// Iterator over this rank's strips (parts of segments). `at`: index of the strip;
// `segment`, `j`: it is strip j of this segment; `ends`: 1 if it is the last of these;
// `first`: 1 if the sequence starts in the strip; `last`: 1 if the sequence ends there;
// `row`: the strip's first token row; `tokens`: number of tokens.
struct strip {
    int next, at, segment, j, ends, sequence, first, last, row;
    int64_t tokens;
};

// Advances `s` to the next strip (or to the next segment, if nothing is cut). Returns 0
// after the last strip. The first call takes s = { 0 }.
static inline int next_strip(const struct kcp_call *a, const struct split *p,
                             struct strip *s)
{
    if (s->next == p->NS) return 0;
    if (s->next) s->j = s->ends ? 0 : s->j + 1;
    if (s->next) s->segment += s->ends;
    const struct kcp_segment *g = segments_of(a) + s->segment;
    const int64_t begin = s->j * p->L, rest = g->end - g->begin - begin;
    s->at = s->next++;
    s->ends = s->j + 1 == strips_of(p, g);
    s->sequence = g->n;
    s->first = g->first && s->j == 0;
    s->last = g->last && s->ends;
    s->row = a->plan->ctx[a->r].cu[s->segment] + (int)begin;
    s->tokens = s->ends ? rest : p->L;
    return 1;
}

// Stores token and chunk boundaries of strips (parts of segments), as in p.cu and p.cn.
static inline void put_grid(const struct kcp_call *a, const struct split *p,
                            struct putter *x)
{
    int chunks = 0;
    for (struct strip s = {}; next_strip(a, p, &s);) put(x, s.row);
    put(x, (int)a->T);
    for (struct strip s = {}; next_strip(a, p, &s);) {
        put(x, chunks);
        chunks += (int)((s.tokens + a->C - 1) / a->C);
    }
    put(x, chunks);
}

// Fills cu, cn and want of the strips (parts of segments), or only `want` if L is 0.
static inline void put_split(const struct kcp_call *a, int backward,
                             const struct split *p)
{
    if (!p->L) return put_wants(a, backward, p->want);
    struct putter x = { p->cu, {}, a->stream };
    put_grid(a, p, &x);
    for (struct strip s = {}; next_strip(a, p, &s);) {
        const int parts = s.first || s.last ? KCP_WANT_H : KCP_WANT_H | KCP_WANT_M;
        put(&x, (backward ? s.first : s.last) ? 0 : parts);
    }
    put_rest(&x);
}

// For each segment s, copies row s of x to the row of its first (backward: last) strip
// in y. If `only` is 0, all other rows of y become 0. Otherwise they do not change.
static inline void spread(const struct kcp_call *a, const struct split *p,
                          int backward, int only, void *x, void *y)
{
    struct mover m = { a, { (float *)x, 0 }, { (float *)y, 0 }, {} };
    if (!p->L) return;
    for (struct strip s = {}; next_strip(a, p, &s);) {
        const int edge = backward ? s.ends : s.j == 0;
        if (edge || !only) move(&m, edge ? s.segment : -1, s.at);
    }
    flush(&m);
}

// For each segment, copies the row of its last (backward: first) strip from x to y.
static inline void gather(const struct kcp_call *a, const struct split *p,
                          int backward, void *x, void *y)
{
    struct mover m = { a, { (float *)x, 0 }, { (float *)y, 0 }, {} };
    if (!p->L) return;
    for (struct strip s = {}; next_strip(a, p, &s);)
        if (backward ? s.j == 0 : s.ends) move(&m, s.at, s.segment);
    flush(&m);
}

static inline char *map_at(const struct kcp_call *a, void *maps, int at)
{
    return (char *)maps + sizeof(float) * at * a->HV * a->K * (a->V + a->K);
}

static inline char *state_at(const struct kcp_call *a, void *states, int at)
{
    return (char *)states + sizeof(float) * at * a->HV * a->K * a->V;
}

// For each segment s that needs a map, composes the maps of its strips (parts) in
// `maps` [s]. The products alternate between p->spare and `maps` [s], so that the last
// product is in `maps` [s].
static inline int compose_strips(const struct kcp_call *a, const struct split *p,
                                int backward, void *maps)
{
    const size_t bytes = sizeof(float) * a->HV * a->K * (a->V + a->K);
    int status = KCP_OK;
    for (int s = 0, at = 0; s < a->NS && p->L; s++) {
        const struct kcp_segment *g = segments_of(a) + s;
        const int count = strips_of(p, g), starts = backward ? g->last : g->first;
        const int want = kcp_plan_want(a->plan, a->plan->ctx[a->r].seg0 + s, backward);
        const int from = backward ? at + count - 1 : at, step = backward ? -1 : 1;
        char *x = map_at(a, p->maps, from), *to = map_at(a, maps, s);
        for (int j = 1; j < count && want && !status; j++) {
            char *out = (count - 1 - j) % 2 ? (char *)p->spare : to;
            status = a->ops->compose(a->HV, a->K, a->V,
                                     map_at(a, p->maps, from + j * step), x, backward,
                                     starts, out, a->stream);
            x = out;
        }
        if (want && count == 1)
            cudaMemcpyAsync(to, x, bytes, cudaMemcpyDeviceToDevice, a->stream);
        at += count;
    }
    return status;
}

// Computes x->starts (split_sequence_fold.cuh), with one launch per FOLD_MOST segments.
template <int back>
static inline int fold_chains(const struct kcp_call *a, const struct split *p,
                              const struct fold_arrays *x)
{
    struct folds f = {};
    int status = KCP_OK;
    for (int s = 0, at = 0; s < a->NS && !status; s++) {
        const struct kcp_segment *g = segments_of(a) + s;
        const int count = strips_of(p, g);
        f.at[f.count] = back ? at + count - 1 : at;
        f.strips[f.count] = count;
        f.begins[f.count++] = back ? g->last : g->first;
        at += count;
        if (f.count < FOLD_MOST && s + 1 < a->NS) continue;
        const int64_t columns = (int64_t)a->HV * a->V * f.count;
        const int few = columns <= (int64_t)processors() * KCP_FOLD_COLUMNS;
        auto launch = few ? fold_launch<128, 8, back> : fold_launch<128, 16, back>;
        if (a->K == 64) launch = fold_launch<64, 16, back>;
        status = launch(a->HV, a->V, x, &f, a->stream);
        f.first = s + 1;
        f.count = 0;
    }
    return status;
}

static inline int fold_forward(const struct kcp_call *a, const struct split *p,
                               void *states)
{
    const float *maps = (const float *)p->maps;
    const struct fold_arrays x = { maps, maps + a->V, a->V + a->K, a->V + a->K,
                                   (const float *)states, (float *)p->starts };
    return fold_chains<0>(a, p, &x);
}

// Stores in p->starts the state before (backward: after) every strip (part of a
// segment), computed from the segments' states.
static inline int start_strips(const struct kcp_call *a, const struct split *p,
                              int backward, void *states)
{
    int status = KCP_OK;
    if (!p->L) return KCP_OK;
    if (!backward && (a->K == 128 || a->K == 64) && a->V % 16 == 0)
        return fold_forward(a, p, states);
    spread(a, p, backward, 1, states, p->starts);
    for (int s = 0, at = 0; s < a->NS; s++) {
        const struct kcp_segment *g = segments_of(a) + s;
        const int count = strips_of(p, g), starts = backward ? g->last : g->first;
        const int from = backward ? at + count - 1 : at, step = backward ? -1 : 1;
        for (int j = 0; j + 1 < count && !status; j++) {
            const int i = from + j * step;
            status = a->ops->apply(a->HV, a->K, a->V, map_at(a, p->maps, i), backward,
                                   starts && j == 0, 0, a->V, state_at(a, p->starts, i),
                                   a->V, state_at(a, p->starts, i + step), a->V,
                                   a->stream);
        }
        at += count;
    }
    return status;
}
