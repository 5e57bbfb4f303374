/* chain.c -- each rank receives a state S, applies its map to S and sends the result.
 * Book: chapter 07.
 * Time (symbols in chapter 07): t_sum + (R-1) * (a + B/bw) + (R-2) * t_MS + t_main. */
#include "exchange.h"

//> chain
/* A visit is a run of adjacent segments of one sequence on one rank. In hop h, visit
 * number h (0, 1, 2 etc.) of each sequence sends the state at the visit's end. There is
 * no deadlock, because all ranks run the hops in the same order. Within a hop, the
 * sender and the receiver use the same order of messages. */
static int hop(const struct fold *f, int h)
{
    const struct kcp_exchange *x = f->x;
    char *out = x->work;
    int err = KCP_OK;
    struct visit v;

    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (v.leaves && v.hops == h) err = fold_last_state(f, &v, 0, x->V, out);
        out += v.leaves ? f->state : 0;
    }
    const int opened = err ? err : x->comm->group(x->comm, 1);
    err = opened;
    out = x->work;
    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (v.leaves && v.hops == h)
            err = x->comm->send(x->comm, out, f->state, fold_next_rank(f, &v),
                                x->stream);
        out += v.leaves ? f->state : 0;
    }
    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (v.enters && v.hops - 1 == h)
            err = x->comm->recv(x->comm, fold_state(f, p), f->state,
                                fold_previous_rank(f, &v), x->stream);
    }
    err = group_end(x->comm, opened, err);
    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (v.enters && v.hops - 1 == h) err = fold_states(f, v.p0, v.p1, 0, x->V);
    }
    return err;
}

static int chain_run(const struct fold *f)
{
    struct visit v;
    int err = KCP_OK;
    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (!v.enters) err = fold_states(f, v.p0, v.p1, 0, f->x->V);
    }
    for (int h = fold_next_hop(f, -1); h >= 0 && !err; h = fold_next_hop(f, h))
        err = hop(f, h);
    return err;
}
//< chain

static size_t chain_work(const struct fold *f)
{
    return fold_crossings(f, 1) * f->state;
}

static struct kcp_traffic chain_formula(const struct fold *f)
{
    const int n = fold_crossings(f, 1);
    return (struct kcp_traffic){ n * (int64_t)f->state, n, 0 };
}

const struct form form_chain = {
    .run = chain_run, .work_bytes = chain_work, .formula = chain_formula,
    .in_order = 1 };
