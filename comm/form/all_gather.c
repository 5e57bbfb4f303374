/* all_gather.c -- everybody gets every map that crosses a cut, and folds for himself.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: comm/form/chain.c.
 * One collective; t_sum + a + (R-1) 2S/bw + fold + t_main. The only form that leaves
 * M of other ranks behind, which backward may use again (reuse_M). */
#include "exchange.h"

/* Which local segments of a rank travel: [0,a) of its first sequence if that one
 * entered, [b,NS) of its last one if that one leaves. One each in classic mode, where
 * forward needs the last and backward the first. Forward in canonical mode with
 * kept gathers both, because M of every segment of a later rank will be asked for. */
struct parcel { int a, b, n; };

static struct parcel parcel_of(const struct kcp_plan *plan, int r, int entered,
                            int leaving)
{
    const struct kcp_context *ctx = &plan->ctx[r];
    const struct kcp_segment *seg = plan->seg + ctx->seg0;
    struct parcel t = { 0, ctx->NS, 0 };
    if (ctx->NS == 0)
        return t;
    if (entered && !seg[0].first)
        while (t.a < ctx->NS && seg[t.a].n == seg[0].n)
            t.a++;
    if (leaving && !seg[ctx->NS - 1].last)
        while (t.b > t.a && seg[t.b - 1].n == seg[ctx->NS - 1].n)
            t.b--;
    t.n = t.a + ctx->NS - t.b;
    return t;
}

/* What one gather carries: of each rank one row of P maps, unit bytes each. */
struct gather_layout { int entered, leaving, P; size_t unit; };

static struct gather_layout layout_of(const struct fold *f, int both, size_t unit)
{
    const int backward = f->x->backward;
    struct gather_layout g = { backward || both, !backward || both, 0, unit };
    for (int r = 0; r < f->x->plan->R; r++) {
        const struct parcel t = parcel_of(f->x->plan, r, g.entered, g.leaving);
        g.P = t.n > g.P ? t.n : g.P;
    }
    return g;
}

static struct gather_layout layout_kept(const struct fold *f)
{
    struct gather_layout g = layout_of(f, f->x->plan->L > 0, f->map);
    if (f->x->backward && f->x->plan->L == 0)        /* forward's: the last segments */
        g = (struct gather_layout){ 0, 1, 1, f->map };
    return g;
}

static struct gather_layout layout_sent(const struct fold *f)
{
    if (f->x->backward)
        return layout_of(f, 0, f->x->reuse_M ? f->state : f->map);
    return f->x->kept ? layout_kept(f) : layout_of(f, 0, f->map);
}

/* Where segment s lies in gathered rows. */
static char *gathered_map(const struct fold *f, const struct gather_layout *g,
                          void *all, const struct kcp_segment *s)
{
    const struct kcp_plan *plan = f->x->plan;
    const struct parcel t = parcel_of(plan, s->rank, g->entered, g->leaving);
    const int at = (int)(s - plan->seg) - plan->ctx[s->rank].seg0;
    const int i = at < t.a ? at : t.a + at - t.b;
    return (char *)all + ((size_t)s->rank * g->P + i) * g->unit;
}

/* Columns [0,width) or [from,from+width) of a [HV,K] matrix of rows, pitch to pitch. */
static int copy_columns(const struct fold *f, void *to, int to_ld, int to_at,
                        const void *from, int from_ld, int from_at, int width)
{
    const struct kcp_exchange *x = f->x;
    const size_t e = x->ops->elem;
    return x->ops->copy((char *)to + to_at * e, to_ld * e,
                        (const char *)from + from_at * e, from_ld * e, width * e,
                        (size_t)x->HV * x->K, x->stream);
}

/* What is wanted of local segment s to its place in this rank's row: nobody has made
 * the rest, and nobody reads it. */
static int copy_to_row(const struct fold *f, const struct gather_layout *g, void *all,
                       int s)
{
    const struct kcp_exchange *x = f->x;
    const int j = f->ctx->seg0 + s, want = kcp_plan_want(x->plan, j, x->backward);
    const int ld = g->unit == f->map ? x->V + x->K : x->V;
    const int from = want & KCP_WANT_H ? 0 : x->V;
    const int to = want & KCP_WANT_M ? ld : x->V;
    if (from >= to)
        return KCP_OK;
    return copy_columns(f, gathered_map(f, g, all, &x->plan->seg[j]), ld, from,
                        (char *)x->maps + s * f->map, x->V + x->K, from, to - from);
}

static int send_and_gather(const struct fold *f, const struct gather_layout *g,
                           void *all)
{
    const struct kcp_exchange *x = f->x;
    const struct parcel t = parcel_of(x->plan, f->r, g->entered, g->leaving);
    int err = KCP_OK;
    for (int s = 0; s < f->NS && !err; s++)
        if (s < t.a || s >= t.b)
            err = copy_to_row(f, g, all, s);
    const size_t row = g->P * g->unit;
    if (err)
        return err;
    return x->comm->all_gather(x->comm, (char *)all + f->r * row, all, row, x->stream);
}

/* S = h of the segment that starts the sequence, then S <- op(M) S + h up to ours. */
//> fold_gathered
static int fold_gathered(const struct fold *f, const struct gather_layout *g,
                         void *all, char *tmp)
{
    const struct kcp_exchange *x = f->x;
    const struct kcp_segment *mine = fold_segment(f, 0), *s = mine;
    const int V = x->V, VK = x->V + x->K, step = x->backward ? -1 : 1;
    const struct gather_layout kept = layout_kept(f);
    int err = KCP_OK;

    while (!fold_starts(f, s))
        s -= step;
    for (int first = 1; s != mine && !err; s += step, first = 0) {
        char *map = gathered_map(f, g, all, s);
        if (g->unit == f->state) {                   /* only h came: M is in kept */
            err = copy_columns(f, tmp, VK, 0, map, V, 0, V);
            if (!err && !first)
                err = copy_columns(f, tmp, VK, V, gathered_map(f, &kept, x->kept, s),
                                   VK, V, x->K);
            map = tmp;
        }
        if (!err)
            err = x->ops->apply(x->HV, x->K, V, map, x->backward, first, 0, V,
                                fold_state(f, 0), V, fold_state(f, 0), V, x->stream);
    }
    return err;
}
//< fold_gathered

static int all_gather_run(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    const struct gather_layout g = layout_sent(f);
    char *all = x->kept && !x->backward ? x->kept : x->work;
    if (x->backward && x->reuse_M && !x->kept)
        return KCP_BAD;
    int err = send_and_gather(f, &g, all);
    if (!err && f->in)
        err = fold_gathered(f, &g, all, (char *)x->work + x->plan->R * g.P * g.unit);
    return err ? err : fold_states(f, 0, f->NS, 0, x->V);
}

/* The gathered rows, and one map to put h and a kept M side by side. */
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

size_t all_gather_kept(const struct fold *f)
{
    const struct gather_layout g = layout_kept(f);
    return (size_t)f->x->plan->R * g.P * f->map;
}

const struct form form_all_gather = { all_gather_run, all_gather_work,
                                      all_gather_formula };
