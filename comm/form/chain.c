/* chain.c -- the state itself travels, M stays home: h_out = M h_in + h_ext.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: comm/form/pipeline.c.
 * One message of S bytes a cut; t_sum + (R-1)(a + S/bw + t_MS) + t_main. */
#include "exchange.h"

static int send_state(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    const int err = fold_last_state(f, 0, x->V, x->work);
    if (err)
        return err;
    return x->comm->send(x->comm, x->work, f->state, fold_next_rank(f), x->stream);
}

/* A sequence that starts here and leaves need not wait for the one that enters: its
 * state goes out first, so only ranks inside one sequence form a chain. */
//> chain
static int chain_run(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    const int own = f->out && f->in < f->NS;     /* what leaves has started here */
    int err = fold_states(f, f->in, f->NS, 0, x->V);

    if (!err)
        err = x->comm->group(x->comm, 1);
    if (!err && own)
        err = send_state(f);
    if (!err && f->in)
        err = x->comm->recv(x->comm, fold_state(f, 0), f->state, fold_previous_rank(f),
                            x->stream);
    if (!err)
        err = x->comm->group(x->comm, 0);
    if (!err)
        err = fold_states(f, 0, f->in, 0, x->V);
    if (!err && f->out && !own)
        err = send_state(f);
    return err;
}
//< chain

static size_t chain_work(const struct fold *f)
{
    return f->state;
}

static struct kcp_traffic chain_formula(const struct fold *f)
{
    return (struct kcp_traffic){ f->out ? (int64_t)f->state : 0, f->out, 0 };
}

const struct form form_chain = { chain_run, chain_work, chain_formula };
