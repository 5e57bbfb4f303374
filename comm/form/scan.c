/* scan.c -- maps composed over windows that double: log2 R steps instead of R - 1.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: ref/08_forward.c.
 * Number the non-empty ranks of one sequence m = 0, 1, ... in the order of the fold,
 * f_m the map of rank m's part of it. At distance d = 1, 2, 4, ... rank m holds
 *     W = f_m after ... after f_m-d+1    d maps, its own included
 *     X = f_m-1 after ... after f_m-d+1  d-1 maps, its own left out
 * (clipped at the start), sends W to m+d, and what comes from m-d goes under both. When
 * the start is reached, h of X is the state: exclusive without an extra hop. A rank
 * may end one sequence's scan and begin another's.
 * t_sum + l (a + (B + B_M)/bw) + 2 (l - 1) t_MM + t_main, l = log2 R rounded up. */
#include "exchange.h"

/* Ranks that hold the entering sequence before us, or the leaving one after us. */
static int holders(const struct fold *f, int after)
{
    if (after ? !f->out : !f->in)
        return 0;
    const int step = (f->x->backward ? -1 : 1) * (after ? 1 : -1);
    const struct kcp_segment *s = fold_segment(f, after ? f->NS - 1 : 0);
    int ranks = 0;
    while (!(after ? fold_ends(f, s) : fold_starts(f, s))) {
        ranks += s[step].rank != s->rank;
        s += step;
    }
    return ranks;
}

/* The d-th non-empty rank after this one, or before it. */
static int rank_at(const struct fold *f, int d, int after)
{
    const int step = (f->x->backward ? -1 : 1) * (after ? 1 : -1);
    const struct kcp_segment *s = fold_segment(f, after ? f->NS - 1 : 0);
    while (d) {
        d -= s[step].rank != s->rank;
        s += step;
    }
    return s->rank;
}

/* b after a into one of two buffers, whichever b is not. */
static int compose_after(const struct fold *f, char **b, const char *a, int a_first,
                 char *const buffer[2])
{
    const struct kcp_exchange *x = f->x;
    char *out = buffer[*b == buffer[0]];
    const int err = x->ops->compose(x->HV, x->K, x->V, *b, a, x->backward, a_first, out,
                                    x->stream);
    *b = out;
    return err;
}

/* The map of this rank's part of the sequence that leaves; *first: it starts here. */
static int own_map(const struct fold *f, char **W, char *const buffer[2])
{
    const struct kcp_exchange *x = f->x;
    int p = f->NS - 1, err = KCP_OK;
    while (p > 0 && fold_segment(f, p - 1)->n == fold_segment(f, p)->n)
        p--;
    const int first = fold_starts(f, fold_segment(f, p));
    *W = fold_map(f, p);
    for (int q = p + 1; q < f->NS && !err; q++) {
        char *out = buffer[*W == buffer[0]];
        err = x->ops->compose(x->HV, x->K, x->V, fold_map(f, q), *W, x->backward, first,
                              out, x->stream);
        *W = out;
    }
    return err;
}

//> scan
static int scan_run(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    struct kcp_comm *comm = x->comm;
    char *buf[5], *W = NULL, *X = NULL;
    for (int b = 0; b < 5; b++)
        buf[b] = (char *)x->work + b * f->map;
    const int before = holders(f, 0), after = holders(f, 1);
    const int through = f->in == f->NS && f->out;     /* one sequence covers the rank */
    char *const Y = buf[4];
    int err = fold_states(f, f->in, f->NS, 0, x->V);
    if (!err && f->out)
        err = own_map(f, &W, buf);

    for (int d = 1; (d <= before || d <= after) && !err; d *= 2) {
        err = comm->group(comm, 1);
        if (!err && d <= after)
            err = comm->send(comm, W, f->map, rank_at(f, d, 1), x->stream);
        if (!err && d <= before)
            err = comm->recv(comm, Y, f->map, rank_at(f, d, 0), x->stream);
        if (!err)
            err = comm->group(comm, 0);
        const int first = before < 2 * d;             /* Y reaches the start */
        if (!err && d <= before && through && 2 * d <= after)
            err = compose_after(f, &W, Y, first, buf);
        if (!err && d <= before && X)
            err = compose_after(f, &X, Y, first, buf + 2);
        else if (!err && d <= before) {
            X = buf[2];                               /* d = 1: X was the identity */
            err = x->ops->copy(X, f->map, Y, f->map, f->map, 1, x->stream);
        }
    }
    const size_t e = x->ops->elem;
    if (!err && f->in)
        err = x->ops->copy(fold_state(f, 0), x->V * e, X, (x->V + x->K) * e, x->V * e,
                           (size_t)x->HV * x->K, x->stream);
    return err ? err : fold_states(f, 0, f->in, 0, x->V);
}
//< scan

static size_t scan_work(const struct fold *f)
{
    return 5 * f->map;
}

/* One map to each rank of the leaving sequence at distance 1, 2, 4, ... */
static struct kcp_traffic scan_formula(const struct fold *f)
{
    struct kcp_traffic t = { 0, 0, 0 };
    for (int d = 1, after = holders(f, 1); d <= after; d *= 2)
        t.messages++;
    t.bytes = t.messages * (int64_t)f->map;
    return t;
}

const struct form form_scan = { scan_run, scan_work, scan_formula };
