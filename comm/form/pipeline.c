/* pipeline.c -- the chain over blocks of V: a block moves on while the next arrives.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: scan.c.
 * Columns of the state never meet, so blocks are exact and the bits are the chain's.
 * B messages of S/B bytes a cut; t_sum + (R+B-2)(a + S/(B bw) + t_MS/B) + t_main. */
#include "exchange.h"

enum { BLOCKS = 4 };          /* unless asked; never more than there are columns */

static int blocks(const struct kcp_exchange *x)
{
    const int B = x->blocks > 0 ? x->blocks : BLOCKS;
    return B < x->V ? B : x->V;
}

static int from(const struct kcp_exchange *x, int b)
{
    return (int)((int64_t)b * x->V / blocks(x));
}

/* The bytes of columns [0,v): where block v's dense copy [HV,K,Vb] begins. */
static size_t dense(const struct walk *w, int v)
{
    return w->state / w->x->V * v;
}

static int leave(const struct walk *w, int v0, int Vb)
{
    const struct kcp_exchange *x = w->x;
    char *out = (char *)x->work + dense(w, v0);
    const int err = walk_leave(w, v0, Vb, out);
    return err ? err
               : x->comm->send(x->comm, out, dense(w, Vb), walk_next(w), x->stream);
}

static int enter(const struct walk *w, int v0, int Vb)
{
    const struct kcp_exchange *x = w->x;
    const size_t e = x->ops->elem;
    char *in = (char *)x->work + w->state + dense(w, v0);
    const int err = x->comm->recv(x->comm, in, dense(w, Vb), walk_previous(w),
                                  x->stream);
    return err ? err
               : x->ops->copy(walk_state(w, 0) + v0 * e, x->V * e, in, Vb * e, Vb * e,
                              (size_t)x->HV * x->K, x->stream);
}

//> pipeline
static int run(const struct walk *w)
{
    const struct kcp_exchange *x = w->x;
    const int own = w->out && w->in < w->NS, B = blocks(x);
    int err = walk_fold(w, w->in, w->NS, 0, x->V);

    for (int b = 0; b < B && !err && own; b++)
        err = leave(w, from(x, b), from(x, b + 1) - from(x, b));
    for (int b = 0; b < B && !err && w->in; b++) {
        const int v0 = from(x, b), Vb = from(x, b + 1) - v0;
        err = enter(w, v0, Vb);
        if (!err)
            err = walk_fold(w, 0, w->in, v0, Vb);
        if (!err && w->out && !own)
            err = leave(w, v0, Vb);
    }
    return err;
}
//< pipeline

static size_t work(const struct walk *w)
{
    return 2 * w->state;
}

static struct kcp_traffic formula(const struct walk *w)
{
    return (struct kcp_traffic){ w->out ? (int64_t)w->state : 0,
                                 w->out ? blocks(w->x) : 0, 0 };
}

const struct form form_pipeline = { run, work, formula };
