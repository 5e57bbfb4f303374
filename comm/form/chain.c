/* chain.c -- the state itself travels, M stays home: h_out = M h_in + h_ext.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: pipeline.c.
 * One message of S bytes a cut; t_sum + (R-1)(a + S/bw + t_MS) + t_main. */
#include "exchange.h"

static int leave(const struct walk *w)
{
    const struct kcp_exchange *x = w->x;
    const int err = walk_leave(w, 0, x->V, x->work);
    return err ? err
               : x->comm->send(x->comm, x->work, w->state, walk_next(w), x->stream);
}

/* A sequence that starts here and leaves need not wait for the one that enters: its
 * state goes out first, so only ranks inside one sequence form a chain. */
//> chain
static int run(const struct walk *w)
{
    const struct kcp_exchange *x = w->x;
    const int own = w->out && w->in < w->NS;     /* what leaves has started here */
    int err = walk_fold(w, w->in, w->NS, 0, x->V);

    if (!err)
        err = x->comm->group(x->comm, 1);
    if (!err && own)
        err = leave(w);
    if (!err && w->in)
        err = x->comm->recv(x->comm, walk_state(w, 0), w->state, walk_previous(w),
                            x->stream);
    if (!err)
        err = x->comm->group(x->comm, 0);
    if (!err)
        err = walk_fold(w, 0, w->in, 0, x->V);
    return !err && w->out && !own ? leave(w) : err;
}
//< chain

static size_t work(const struct walk *w)
{
    return w->state;
}

static struct kcp_traffic formula(const struct walk *w)
{
    return (struct kcp_traffic){ w->out ? (int64_t)w->state : 0, w->out, 0 };
}

const struct form form_chain = { run, work, formula };
