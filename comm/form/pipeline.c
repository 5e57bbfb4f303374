/* pipeline.c -- the chain over blocks of V: a block moves on while the next arrives.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: comm/form/scan.c.
 * Columns of the state never meet, so blocks are exact and the bits are the chain's.
 * B messages of S/B bytes a cut; t_sum + (R+B-2)(a + S/(B bw) + t_MS/B) + t_main. */
#include "exchange.h"

enum { BLOCKS = 4 };          /* unless asked; never more than there are columns */

static int blocks(const struct kcp_exchange *x)
{
    const int B = x->blocks > 0 ? x->blocks : BLOCKS;
    return B < x->V ? B : x->V;
}

static int block_begin(const struct kcp_exchange *x, int b)
{
    return (int)((int64_t)b * x->V / blocks(x));
}

/* The bytes of columns [0,v): where block v's dense copy [HV,K,Vb] begins. */
static size_t block_offset(const struct fold *f, int v)
{
    return f->state / f->x->V * v;
}

static int send_block(const struct fold *f, int v0, int Vb)
{
    const struct kcp_exchange *x = f->x;
    char *out = (char *)x->work + block_offset(f, v0);
    const int err = fold_last_state(f, v0, Vb, out);
    if (err)
        return err;
    return x->comm->send(x->comm, out, block_offset(f, Vb), fold_next_rank(f),
                         x->stream);
}

static int receive_block(const struct fold *f, int v0, int Vb)
{
    const struct kcp_exchange *x = f->x;
    const size_t e = x->ops->elem;
    char *in = (char *)x->work + f->state + block_offset(f, v0);
    const int err = x->comm->recv(x->comm, in, block_offset(f, Vb),
                                  fold_previous_rank(f), x->stream);
    if (err)
        return err;
    return x->ops->copy(fold_state(f, 0) + v0 * e, x->V * e, in, Vb * e, Vb * e,
                        (size_t)x->HV * x->K, x->stream);
}

//> pipeline
static int pipeline_run(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    const int own = f->out && f->in < f->NS, B = blocks(x);
    int err = fold_states(f, f->in, f->NS, 0, x->V);

    for (int b = 0; b < B && !err && own; b++) {
        const int v0 = block_begin(x, b);
        err = send_block(f, v0, block_begin(x, b + 1) - v0);
    }
    for (int b = 0; b < B && !err && f->in; b++) {
        const int v0 = block_begin(x, b), Vb = block_begin(x, b + 1) - v0;
        err = receive_block(f, v0, Vb);
        if (!err)
            err = fold_states(f, 0, f->in, v0, Vb);
        if (!err && f->out && !own)
            err = send_block(f, v0, Vb);
    }
    return err;
}
//< pipeline

static size_t pipeline_work(const struct fold *f)
{
    return 2 * f->state;
}

static struct kcp_traffic pipeline_formula(const struct fold *f)
{
    return (struct kcp_traffic){ f->out ? (int64_t)f->state : 0,
                                 f->out ? blocks(f->x) : 0, 0 };
}

const struct form form_pipeline = { pipeline_run, pipeline_work, pipeline_formula };
