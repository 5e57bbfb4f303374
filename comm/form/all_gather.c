/* all_gather.c -- everybody gets every map that crosses a cut, and folds for himself.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: chain.c.
 * One collective; t_sum + a + (R-1) 2S/bw + fold + t_main. The only form that leaves
 * M of other ranks behind, which backward may use again (reuse_M). */
#include "exchange.h"

/* Which local segments of a rank travel: [0,a) of its first sequence if that one
 * entered, [b,NS) of its last one if that one leaves. One each in classic mode, where
 * forward needs the last and backward the first. Forward in canonical mode with
 * kept gathers both, because M of every segment of a later rank will be asked for. */
struct parcel { int a, b, n; };

static struct parcel parcel(const struct kcp_plan *plan, int r, int entered,
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

/* What one gather carries: of each rank one row of P slots, unit bytes each. */
struct rows { int entered, leaving, P; size_t unit; };

static struct rows rows(const struct walk *w, int both, size_t unit)
{
    const int backward = w->x->backward;
    struct rows g = { backward || both, !backward || both, 0, unit };
    for (int r = 0; r < w->x->plan->R; r++) {
        const struct parcel t = parcel(w->x->plan, r, g.entered, g.leaving);
        g.P = t.n > g.P ? t.n : g.P;
    }
    return g;
}

static struct rows rows_kept(const struct walk *w)
{
    struct rows g = rows(w, w->x->plan->L > 0, w->map);
    if (w->x->backward && w->x->plan->L == 0)        /* forward's: the last segments */
        g = (struct rows){ 0, 1, 1, w->map };
    return g;
}

static struct rows rows_sent(const struct walk *w)
{
    if (w->x->backward)
        return rows(w, 0, w->x->reuse_M ? w->state : w->map);
    return w->x->kept ? rows_kept(w) : rows(w, 0, w->map);
}

/* Where segment s lies in gathered rows. */
static char *slot(const struct walk *w, const struct rows *g, void *all,
                  const struct kcp_segment *s)
{
    const struct kcp_plan *plan = w->x->plan;
    const struct parcel t = parcel(plan, s->rank, g->entered, g->leaving);
    const int at = (int)(s - plan->seg) - plan->ctx[s->rank].seg0;
    const int i = at < t.a ? at : t.a + at - t.b;
    return (char *)all + ((size_t)s->rank * g->P + i) * g->unit;
}

/* Columns [0,width) or [from,from+width) of a [HV,K] matrix of rows, pitch to pitch. */
static int columns(const struct walk *w, void *to, int to_ld, int to_at,
                   const void *from, int from_ld, int from_at, int width)
{
    const struct kcp_exchange *x = w->x;
    const size_t e = x->ops->elem;
    return x->ops->copy((char *)to + to_at * e, to_ld * e,
                        (const char *)from + from_at * e, from_ld * e, width * e,
                        (size_t)x->HV * x->K, x->stream);
}

/* What is wanted of local segment s to its place in this rank's row: nobody has made
 * the rest, and nobody reads it. */
static int put(const struct walk *w, const struct rows *g, void *all, int s)
{
    const struct kcp_exchange *x = w->x;
    const int j = w->ctx->seg0 + s, want = kcp_plan_want(x->plan, j, x->backward);
    const int ld = g->unit == w->map ? x->V + x->K : x->V;
    const int from = want & KCP_WANT_H ? 0 : x->V, to = want & KCP_WANT_M ? ld : x->V;
    if (from >= to)
        return KCP_OK;
    return columns(w, slot(w, g, all, &x->plan->seg[j]), ld, from,
                   (char *)x->maps + s * w->map, x->V + x->K, from, to - from);
}

static int gather(const struct walk *w, const struct rows *g, void *all)
{
    const struct kcp_exchange *x = w->x;
    const struct parcel t = parcel(x->plan, w->r, g->entered, g->leaving);
    int err = KCP_OK;
    for (int s = 0; s < w->NS && !err; s++)
        if (s < t.a || s >= t.b)
            err = put(w, g, all, s);
    const size_t row = g->P * g->unit;
    return err ? err : x->comm->all_gather(x->comm, (char *)all + w->r * row, all, row,
                                           x->stream);
}

/* S = h of the segment that starts the sequence, then S <- op(M) S + h up to ours. */
//> fold_gathered
static int fold_gathered(const struct walk *w, const struct rows *g, void *all,
                         char *tmp)
{
    const struct kcp_exchange *x = w->x;
    const struct kcp_segment *mine = walk_segment(w, 0), *s = mine;
    const int V = x->V, VK = x->V + x->K, step = x->backward ? -1 : 1;
    const struct rows kept = rows_kept(w);
    int err = KCP_OK;

    while (!walk_starts(w, s))
        s -= step;
    for (int first = 1; s != mine && !err; s += step, first = 0) {
        char *map = slot(w, g, all, s);
        if (g->unit == w->state) {                   /* only h came: M is in kept */
            err = columns(w, tmp, VK, 0, map, V, 0, V);
            if (!err && !first)
                err = columns(w, tmp, VK, V, slot(w, &kept, x->kept, s), VK, V, x->K);
            map = tmp;
        }
        if (!err)
            err = x->ops->apply(x->HV, x->K, V, map, x->backward, first, 0, V,
                                walk_state(w, 0), V, walk_state(w, 0), V, x->stream);
    }
    return err;
}
//< fold_gathered

static int run(const struct walk *w)
{
    const struct kcp_exchange *x = w->x;
    const struct rows g = rows_sent(w);
    char *all = x->kept && !x->backward ? x->kept : x->work;
    if (x->backward && x->reuse_M && !x->kept)
        return KCP_BAD;
    int err = gather(w, &g, all);
    if (!err && w->in)
        err = fold_gathered(w, &g, all, (char *)x->work + x->plan->R * g.P * g.unit);
    return err ? err : walk_fold(w, 0, w->NS, 0, x->V);
}

/* The gathered rows, and one map to put h and a kept M side by side. */
static size_t work(const struct walk *w)
{
    const struct rows g = rows_sent(w);
    const int reuse = w->x->backward && w->x->reuse_M;
    return w->x->plan->R * g.P * g.unit + (reuse ? w->map : 0);
}

static struct kcp_traffic formula(const struct walk *w)
{
    const struct rows g = rows_sent(w);
    const int64_t R = w->x->plan->R;
    return (struct kcp_traffic){ (R - 1) * g.P * (int64_t)g.unit, 0, 1 };
}

size_t all_gather_kept(const struct walk *w)
{
    const struct rows g = rows_kept(w);
    return (size_t)w->x->plan->R * g.P * w->map;
}

const struct form form_all_gather = { run, work, formula };
