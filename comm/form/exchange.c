/* exchange.c -- from local maps to the state with which every segment begins.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.
 * Next: all_gather.c, chain.c, pipeline.c, scan.c: one file a form. */
#include "exchange.h"

static const struct form *const forms[] = {
    [KCP_ALL_GATHER] = &form_all_gather, [KCP_CHAIN] = &form_chain,
    [KCP_PIPELINE] = &form_pipeline, [KCP_SCAN] = &form_scan };

struct walk walk_of(const struct kcp_exchange *x)
{
    const struct kcp_plan *plan = x->plan;
    struct walk w = { .x = x, .r = x->comm ? x->comm->r : 0 };
    const size_t elem = x->ops ? x->ops->elem : sizeof(double);
    w.ctx = &plan->ctx[w.r];
    w.NS = w.ctx->NS;
    w.map = elem * x->HV * x->K * (x->V + x->K);
    w.state = elem * x->HV * x->K * x->V;
    if (w.NS == 0)
        return w;
    const struct kcp_segment *first = walk_segment(&w, 0);
    if (!walk_starts(&w, first))
        while (w.in < w.NS && walk_segment(&w, w.in)->n == first->n)
            w.in++;
    w.out = !walk_ends(&w, walk_segment(&w, w.NS - 1));
    return w;
}

static int local(const struct walk *w, int p)
{
    return w->x->backward ? w->NS - 1 - p : p;
}

const struct kcp_segment *walk_segment(const struct walk *w, int p)
{
    return &w->x->plan->seg[w->ctx->seg0 + local(w, p)];
}

int walk_starts(const struct walk *w, const struct kcp_segment *s)
{
    return w->x->backward ? s->last : s->first;
}

int walk_ends(const struct walk *w, const struct kcp_segment *s)
{
    return w->x->backward ? s->first : s->last;
}

char *walk_map(const struct walk *w, int p)
{
    return (char *)w->x->maps + local(w, p) * w->map;
}

char *walk_state(const struct walk *w, int p)
{
    return (char *)w->x->states + local(w, p) * w->state;
}

int walk_next(const struct walk *w)
{
    return walk_segment(w, w->NS - 1)[w->x->backward ? -1 : 1].rank;
}

int walk_previous(const struct walk *w)
{
    return walk_segment(w, 0)[w->x->backward ? 1 : -1].rank;
}

/* S_p = op(M_p-1) S_p-1 + h_p-1. */
//> walk_fold
int walk_fold(const struct walk *w, int p0, int p1, int v0, int Vb)
{
    const struct kcp_exchange *x = w->x;
    const size_t at = v0 * x->ops->elem;
    int err = KCP_OK;
    for (int p = p0 + 1; p < p1 && !err; p++)
        if (!walk_starts(w, walk_segment(w, p)))
            err = x->ops->apply(x->HV, x->K, x->V, walk_map(w, p - 1), x->backward,
                                walk_starts(w, walk_segment(w, p - 1)), v0, Vb,
                                walk_state(w, p - 1) + at, x->V,
                                walk_state(w, p) + at, x->V, x->stream);
    return err;
}
//< walk_fold

int walk_leave(const struct walk *w, int v0, int Vb, void *out)
{
    const struct kcp_exchange *x = w->x;
    const int p = w->NS - 1;
    return x->ops->apply(x->HV, x->K, x->V, walk_map(w, p), x->backward,
                         walk_starts(w, walk_segment(w, p)), v0, Vb,
                         walk_state(w, p) + v0 * x->ops->elem, x->V, out, Vb,
                         x->stream);
}

/* When no sequence crosses a cut there is nobody to talk to: canonical segments are
 * folded where they lie, and a classic rank has nothing to do. */
int kcp_exchange_run(const struct kcp_exchange *x)
{
    const struct walk w = walk_of(x);
    if (x->form < KCP_ALL_GATHER || x->form > KCP_SCAN)
        return KCP_BAD;
    if (!x->plan->crossing)
        return walk_fold(&w, 0, w.NS, 0, x->V);
    return forms[x->form]->run(&w);
}

size_t kcp_exchange_work(const struct kcp_exchange *x)
{
    const struct walk w = walk_of(x);
    return x->plan->crossing ? forms[x->form]->work(&w) : 0;
}

size_t kcp_exchange_kept(const struct kcp_exchange *x)
{
    const struct walk w = walk_of(x);
    const int any = x->plan->crossing && x->form == KCP_ALL_GATHER;
    return any ? all_gather_kept(&w) : 0;
}

struct kcp_traffic kcp_exchange_formula(const struct kcp_exchange *x)
{
    const struct walk w = walk_of(x);
    return x->plan->crossing ? forms[x->form]->formula(&w) : (struct kcp_traffic){ 0 };
}
