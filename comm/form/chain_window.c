/* chain_window.c -- the chain (chain.c) without messages: a kernel writes the state
 * into the next rank's GPU memory.
 *
 * Book: chapter 20, "Code: kernels".
 *
 * A visit is a run of adjacent segments of one sequence on one rank. If a visit has one
 * segment, a kernel waits until the previous rank has written a state into this rank's
 * window, applies the map, and writes the result into the next rank's window. In a
 * visit of several segments, the first kernel waits and the last kernel writes. A rank
 * first runs the visits that start a sequence, so that ranks do not wait in a cycle. */
#include "exchange.h"

#include "core/window.h"
#include "moves.h"

static int hop(const struct fold *f, int p, int from, int to)
{
    const struct kcp_exchange *x = f->x;
    const int first = fold_starts(f, fold_segment(f, p));
    x->comm->traffic.messages += to >= 0;
    x->comm->traffic.bytes += to >= 0 ? (int64_t)f->state : 0;
    return kcp_gpu->hops->hop(x->HV, x->K, x->V, fold_map(f, p), x->backward, first,
                         fold_state(f, p), x->comm->window, from, to, x->stream);
}

/* Runs one visit: receives a state if v->enters, computes the states at the starts of
 * the visit's segments, and sends a state if v->leaves. */
//> chain_window
static int pass(const struct fold *f, const struct visit *v)
{
    const int from = v->enters ? fold_previous_rank(f, v) : -1;
    const int to = v->leaves ? fold_next_rank(f, v) : -1;
    int err = KCP_OK;
    if (v->p1 == v->p0 + 1 && (v->enters || v->leaves))
        return hop(f, v->p0, from, to);
    if (v->enters)
        err = hop(f, v->p0, from, -1);
    if (!err)
        err = fold_states(f, v->p0, v->p1, 0, f->x->V);
    return err || !v->leaves ? err : hop(f, v->p1 - 1, -1, to);
}

static int pass_all(const struct fold *f, int entering)
{
    struct visit v;
    int err = KCP_OK;
    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (v.enters == entering)
            err = pass(f, &v);
    }
    return err;
}

int chain_window_run(const struct fold *f)
{
    const int err = pass_all(f, 0);
    return err ? err : pass_all(f, 1);
}
//< chain_window

/* Returns 1 if this exchange can use windows. Windows are not used if a rank owns
 * several ranges (plan->scattered), because such plans need chain.c's order of hops. */
int chain_window_fits(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    const struct kcp_window *w = x->comm->window;
    if (!w || !kcp_gpu || x->ops != kcp_gpu->hops->of || x->plan->scattered)
        return 0;
    const int blocks = kcp_gpu->hops->blocks(x->HV, x->K, x->V);
    return blocks > 0 && blocks <= w->blocks;
}
