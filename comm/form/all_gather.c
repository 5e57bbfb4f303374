/* all_gather.c -- each rank gathers the maps of all ranks and computes its states
 * from the maps.
 * Book: chapter 07.
 *
 * One collective gathers the maps S -> M S + h (S: state). Time (see chapter 07):
 * t_sum + a + (R-1) * (B + B_M)/bw + (R-2) * t_MS + t_main. Only this form keeps M of
 * other ranks (x->kept). With `reuse_M`, backward reads this M and receives only h. */
#include "exchange.h"

/* Layout of the gathered rows: one row per rank, with P maps of `unit` bytes. If
 * `leaving` is 1, a row has the maps that later ranks apply (forward). If `entered` is
 * 1, a row has the maps that earlier ranks apply (backward). In a contiguous classic
 * plan (plan->L = 0), each rank sends one map per pass: in forward the map of its last
 * segment, and in backward the map of its first segment. If a canonical plan (L > 0)
 * keeps maps in x->kept, both flags are 1 in forward, because backward needs M of all
 * segments of later ranks. */
struct gather_layout { int entered, leaving, P; size_t unit; };

static int travels(const struct gather_layout *g, const struct kcp_segment *s)
{
    return (g->entered && s->pre > 0) || (g->leaving && s->post > 0);
}

static struct gather_layout layout_of(const struct fold *f, int both, size_t unit)
{
    const int backward = f->x->backward;
    const struct kcp_plan *plan = f->x->plan;
    struct gather_layout g = { backward || both, !backward || both, 0, unit };
    for (int r = 0; r < plan->R; r++) {
        int n = 0;
        for (int s = 0; s < plan->ctx[r].NS; s++)
            n += travels(&g, &plan->seg[plan->ctx[r].seg0 + s]);
        g.P = n > g.P ? n : g.P;
    }
    return g;
}

/* Returns the layout of x->kept. For every plan, x->kept has the maps that forward
 * gathers, because backward multiplies by M of these maps. For a canonical plan,
 * x->kept also has M of the segments whose maps backward sends. */
static struct gather_layout layout_kept(const struct fold *f)
{
    struct kcp_exchange forward = *f->x;
    struct fold g = *f;
    forward.backward = 0;
    g.x = &forward;
    return layout_of(&g, f->x->plan->L > 0, f->map);
}

static struct gather_layout layout_sent(const struct fold *f)
{
    if (f->x->backward) return layout_of(f, 0, f->x->reuse_M ? f->state : f->map);
    return f->x->kept ? layout_kept(f) : layout_of(f, 0, f->map);
}

/* Returns the address of the map of segment s in the gathered rows. Within a rank's
 * row, maps are in the order of segments. */
static char *gathered_map(const struct fold *f, const struct gather_layout *g,
                          void *all, const struct kcp_segment *s)
{
    const struct kcp_plan *plan = f->x->plan;
    int i = 0;
    for (const struct kcp_segment *b = &plan->seg[plan->ctx[s->rank].seg0]; b < s; b++)
        i += travels(g, b);
    return (char *)all + ((size_t)s->rank * g->P + i) * g->unit;
}

/* Copies `width` columns of HV * K rows between arrays with different pitches. */
static int copy_columns(const struct fold *f, void *to, int to_ld, int to_at,
                        const void *from, int from_ld, int from_at, int width)
{
    const struct kcp_exchange *x = f->x;
    const size_t e = f->elem;
    return x->ops->copy((char *)to + to_at * e, to_ld * e,
                        (const char *)from + from_at * e, from_ld * e, width * e,
                        (size_t)x->HV * x->K, x->stream);
}

/* Copies the columns that other ranks need from the map of local segment s to this
 * rank's row. */
static int copy_to_row(const struct fold *f, const struct gather_layout *g, void *all,
                       int s)
{
    const struct kcp_exchange *x = f->x;
    const int j = f->ctx->seg0 + s, want = kcp_plan_want(x->plan, j, x->backward);
    const int ld = g->unit == f->map ? f->wide : x->V;
    const int from = want & KCP_WANT_H ? 0 : x->V;
    const int to = want & KCP_WANT_M ? ld : x->V;
    if (from >= to) return KCP_OK;
    return copy_columns(f, gathered_map(f, g, all, &x->plan->seg[j]), ld, from,
                        (char *)x->maps + s * f->map, f->wide, from, to - from);
}

static int send_and_gather(const struct fold *f, const struct gather_layout *g,
                           void *all)
{
    const struct kcp_exchange *x = f->x;
    int err = KCP_OK;
    for (int s = 0; s < f->NS && !err; s++)
        if (travels(g, &x->plan->seg[f->ctx->seg0 + s]))
            err = copy_to_row(f, g, all, s);
    const size_t row = g->P * g->unit;
    if (err) return err;
    return x->comm->all_gather(x->comm, (char *)all + f->r * row, all, row, x->stream);
}

/* Applies the map of segment s, which is on another rank, to the state of this rank's
 * segment at position p: S <- M S + h (in backward M^T S + h). */
static int fold_step(const struct fold *f, const struct gather_layout *g, void *all,
                     char *tmp, const struct kcp_segment *s, int p)
{
    const struct kcp_exchange *x = f->x;
    const int V = x->V, first = fold_starts(f, s);
    char *map = gathered_map(f, g, all, s);
    int err = KCP_OK;
    if (g->unit == f->state) {               /* only h was gathered; M is in x->kept */
        const struct gather_layout kept = layout_kept(f);
        err = copy_columns(f, tmp, f->wide, 0, map, V, 0, V);
        if (!err && !first)
            err = copy_columns(f, tmp, f->wide, V, gathered_map(f, &kept, x->kept, s),
                               f->wide, V, f->wide - V);
        map = tmp;
    }
    if (err) return err;
    return x->ops->apply(x->HV, x->K, V, map, x->backward, first, 0, V,
                         fold_state(f, p), V, fold_state(f, p), V, x->stream);
}

/* Computes the state at the start of visit v, a run of adjacent segments on this rank.
 * `last` is the last position of this rank's previous visit of the sequence, or -1.
 * Starts with the state at `last` or, if `last` is -1, with h of the sequence's first
 * segment in the pass's order. Then applies the other maps up to v in this order. */
//> fold_gathered
static int fold_gathered(const struct fold *f, const struct gather_layout *g,
                         void *all, char *tmp, const struct visit *v, int last)
{
    const struct kcp_exchange *x = f->x;
    const struct kcp_segment *mine = fold_segment(f, v->p0), *s = mine;
    const struct kcp_segment *stop = last < 0 ? NULL : fold_segment(f, last);
    int err = KCP_OK;

    while (s != stop && !fold_starts(f, s)) s = fold_before(f, s);
    if (s == stop) {
        err = x->ops->apply(x->HV, x->K, x->V, fold_map(f, last), x->backward,
                            fold_starts(f, s), 0, x->V, fold_state(f, last), x->V,
                            fold_state(f, v->p0), x->V, x->stream);
        s = fold_after(f, s);
    }
    for (; s != mine && !err; s = fold_after(f, s))
        err = fold_step(f, g, all, tmp, s, v->p0);
    return err;
}
//< fold_gathered

static int all_gather_run(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    const struct gather_layout g = layout_sent(f);
    char *all = x->kept && !x->backward ? x->kept : x->work;
    char *tmp = (char *)x->work + x->plan->R * g.P * g.unit;
    if (x->backward && x->reuse_M && !x->kept) return KCP_BAD;
    int err = send_and_gather(f, &g, all);
    for (int p = 0; p < f->NS && !err;) {
        const struct visit v = fold_visit(f, p);
        const int same = p > 0 && fold_segment(f, p - 1)->n == fold_segment(f, p)->n;
        if (v.enters) err = fold_gathered(f, &g, all, tmp, &v, same ? p - 1 : -1);
        if (!err) err = fold_states(f, v.p0, v.p1, 0, x->V);
        p = v.p1;
    }
    return err;
}

/* Returns the size of x->work: the gathered rows and, with `reuse_M`, one map
 * [received h | kept M]. */
static size_t all_gather_work(const struct fold *f)
{
    const struct gather_layout g = layout_sent(f);
    const int reuse = f->x->backward && f->x->reuse_M;
    return f->x->plan->R * g.P * g.unit + (reuse ? f->map : 0);
}

static struct kcp_traffic all_gather_formula(const struct fold *f)
{
    const struct gather_layout g = layout_sent(f);
    const int64_t R = f->x->plan->R;
    return (struct kcp_traffic){ (R - 1) * g.P * (int64_t)g.unit, 0, 1 };
}

static size_t all_gather_kept(const struct fold *f)
{
    const struct gather_layout g = layout_kept(f);
    return (size_t)f->x->plan->R * g.P * f->map;
}

const struct form form_all_gather = {
    .run = all_gather_run, .work_bytes = all_gather_work,
    .formula = all_gather_formula, .kept_bytes = all_gather_kept, .in_order = 1 };
