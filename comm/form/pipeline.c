/* pipeline.c -- the chain (chain.c) in blocks of columns: a rank sends one block while
 * the rank receives the next block.
 * Book: chapter 07.
 *
 * Columns of the state are independent, so the result has the same bits as that of
 * chain.c. A visit is a run of adjacent segments of one sequence on one rank. Visit
 * number h of a sequence sends block i in time step h + i. In one time step the sends
 * and receives of a rank are one group. With b blocks, the time (symbols in chapter 07)
 * is at most t_sum + (R+b-2) * (a + B/(b * bw) + t_MS/b) + t_main. */
#include "exchange.h"

enum { BLOCKS = 4 };          /* default number of blocks */

static int blocks(const struct kcp_exchange *x)
{
    const int B = x->blocks > 0 ? x->blocks : BLOCKS;
    return B < x->V ? B : x->V;
}

static int block_begin(const struct kcp_exchange *x, int b)
{
    return (int)((int64_t)b * x->V / blocks(x));
}

/* Returns the offset, within a state in x->work, of the block that begins at column v.
 * The offset is the bytes of columns 0..v-1, because each block is dense: [HV,K,Vb]. */
static size_t block_offset(const struct fold *f, int v)
{
    return f->state / f->x->V * v;
}

/* Returns the block that a visit sends in time step t, or -1. The visit receives block
 * b in time step v->hops + b - 1 and sends block b one step later. */
static int block_out(const struct fold *f, const struct visit *v, int t)
{
    const int b = t - v->hops;
    return v->leaves && b >= 0 && b < blocks(f->x) ? b : -1;
}

static int block_in(const struct fold *f, const struct visit *v, int t)
{
    const int b = t - (v->hops - 1);
    return v->enters && b >= 0 && b < blocks(f->x) ? b : -1;
}

/* Returns the first time step after t in which this rank sends or receives, or -1. */
static int next_time(const struct fold *f, int t)
{
    int next = -1;
    struct visit v;
    for (int p = 0; p < f->NS; p = v.p1) {
        v = fold_visit(f, p);
        const int from = v.hops - v.enters;       /* first time step of block 0 */
        const int to = v.leaves ? v.hops : from;  /* last time step of block 0 */
        const int at = from > t + 1 ? from : t + 1;
        if ((v.enters || v.leaves) && at < to + blocks(f->x) &&
            (next < 0 || at < next))
            next = at;
    }
    return next;
}

/* Copies a received block into the visit's first state, then computes the same columns
 * of the visit's other states. */
static int take_block(const struct fold *f, const struct visit *v, int b, char *in)
{
    const struct kcp_exchange *x = f->x;
    const int v0 = block_begin(x, b), Vb = block_begin(x, b + 1) - v0;
    const size_t e = f->elem;
    const int err = x->ops->copy(fold_state(f, v->p0) + v0 * e, x->V * e,
                                 in + block_offset(f, v0), Vb * e, Vb * e,
                                 (size_t)x->HV * x->K, x->stream);
    return err ? err : fold_states(f, v->p0, v->p1, v0, Vb);
}

/* Sends or receives one block of a visit's state. The block is in x->work. */
static int move_block(const struct fold *f, const struct visit *v, int b, char *at,
                      int out)
{
    const struct kcp_exchange *x = f->x;
    const int v0 = block_begin(x, b), Vb = block_begin(x, b + 1) - v0;
    char *block = at + block_offset(f, v0);
    const size_t bytes = block_offset(f, Vb);
    if (out)
        return x->comm->send(x->comm, block, bytes, fold_next_rank(f, v), x->stream);
    return x->comm->recv(x->comm, block, bytes, fold_previous_rank(f, v), x->stream);
}

/* One time step has four rounds, each a loop over the visits. MAKE computes the blocks
 * to send. SEND and RECEIVE are one group, so that block b is sent while block b + 1
 * arrives. TAKE computes states from the blocks that arrived. */
//> pipeline
enum round { MAKE, SEND, RECEIVE, TAKE };

static int round_of(const struct fold *f, enum round what, int t)
{
    const struct kcp_exchange *x = f->x;
    char *out = x->work, *in = out + fold_crossings(f, 1) * f->state;
    struct visit v;
    int err = KCP_OK;
    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        const int o = block_out(f, &v, t), i = block_in(f, &v, t);
        const int v0 = o < 0 ? 0 : block_begin(x, o);
        if (what == MAKE && o >= 0)
            err = fold_last_state(f, &v, v0, block_begin(x, o + 1) - v0,
                                  out + block_offset(f, v0));
        if (what == SEND && o >= 0) err = move_block(f, &v, o, out, 1);
        if (what == RECEIVE && i >= 0) err = move_block(f, &v, i, in, 0);
        if (what == TAKE && i >= 0) err = take_block(f, &v, i, in);
        out += v.leaves ? f->state : 0;
        in += v.enters ? f->state : 0;
    }
    return err;
}

static int pipeline_run(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    int err = KCP_OK;
    struct visit v;
    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (!v.enters) err = fold_states(f, v.p0, v.p1, 0, x->V);
    }
    for (int t = next_time(f, -1); t >= 0 && !err; t = next_time(f, t)) {
        err = round_of(f, MAKE, t);
        const int opened = err ? err : x->comm->group(x->comm, 1);
        err = opened ? opened : round_of(f, SEND, t);
        if (!err) err = round_of(f, RECEIVE, t);
        err = group_end(x->comm, opened, err);
        if (!err) err = round_of(f, TAKE, t);
    }
    return err;
}
//< pipeline

static size_t pipeline_work(const struct fold *f)
{
    return (fold_crossings(f, 1) + fold_crossings(f, 0)) * f->state;
}

static struct kcp_traffic pipeline_formula(const struct fold *f)
{
    const int64_t n = fold_crossings(f, 1);
    return (struct kcp_traffic){ n * (int64_t)f->state, n * blocks(f->x), 0 };
}

const struct form form_pipeline = {
    .run = pipeline_run, .work_bytes = pipeline_work, .formula = pipeline_formula,
    .in_order = 1 };
