/* scan.c -- maps composed over windows that double: log2 R steps instead of R - 1.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: 08_forward.c.
 * Number the non-empty ranks of one sequence m = 0, 1, ... in the order of the walk,
 * f_m the map of rank m's part of it. At distance d = 1, 2, 4, ... rank m holds
 *     W = f_m after ... after f_m-d+1    d maps, its own included
 *     X = f_m-1 after ... after f_m-d+1  d-1 maps, its own left out
 * (clipped at the start), sends W to m+d, and what comes from m-d goes under both. When
 * the start is reached, h of X is the state: exclusive without an extra hop. A rank
 * may end one sequence's scan and begin another's.
 * t_sum + l (a + (B + B_M)/bw) + 2 (l - 1) t_MM + t_main, l = log2 R rounded up. */
#include "exchange.h"

/* Ranks that hold the entering sequence before us, or the leaving one after us. */
static int holders(const struct walk *w, int after)
{
    if (after ? !w->out : !w->in)
        return 0;
    const int step = (w->x->backward ? -1 : 1) * (after ? 1 : -1);
    const struct kcp_segment *s = walk_segment(w, after ? w->NS - 1 : 0);
    int ranks = 0;
    while (!(after ? walk_ends(w, s) : walk_starts(w, s))) {
        ranks += s[step].rank != s->rank;
        s += step;
    }
    return ranks;
}

/* The d-th non-empty rank from here, walking on or back. */
static int rank_at(const struct walk *w, int d, int after)
{
    const int step = (w->x->backward ? -1 : 1) * (after ? 1 : -1);
    const struct kcp_segment *s = walk_segment(w, after ? w->NS - 1 : 0);
    while (d) {
        d -= s[step].rank != s->rank;
        s += step;
    }
    return s->rank;
}

/* b after a into one of two buffers, whichever b is not. */
static int under(const struct walk *w, char **b, const char *a, int a_first,
                 char *const buffer[2])
{
    const struct kcp_exchange *x = w->x;
    char *out = buffer[*b == buffer[0]];
    const int err = x->ops->compose(x->HV, x->K, x->V, *b, a, x->backward, a_first, out,
                                    x->stream);
    *b = out;
    return err;
}

/* The map of this rank's part of the sequence that leaves; *first: it starts here. */
static int own_map(const struct walk *w, char **W, char *const buffer[2])
{
    const struct kcp_exchange *x = w->x;
    int p = w->NS - 1, err = KCP_OK;
    while (p > 0 && walk_segment(w, p - 1)->n == walk_segment(w, p)->n)
        p--;
    const int first = walk_starts(w, walk_segment(w, p));
    *W = walk_map(w, p);
    for (int q = p + 1; q < w->NS && !err; q++) {
        char *out = buffer[*W == buffer[0]];
        err = x->ops->compose(x->HV, x->K, x->V, walk_map(w, q), *W, x->backward, first,
                              out, x->stream);
        *W = out;
    }
    return err;
}

//> scan
static int run(const struct walk *w)
{
    const struct kcp_exchange *x = w->x;
    struct kcp_comm *comm = x->comm;
    char *buf[5], *W = NULL, *X = NULL;
    for (int b = 0; b < 5; b++)
        buf[b] = (char *)x->work + b * w->map;
    const int before = holders(w, 0), after = holders(w, 1);
    const int through = w->in == w->NS && w->out;     /* one sequence covers the rank */
    char *const Y = buf[4];
    int err = walk_fold(w, w->in, w->NS, 0, x->V);
    if (!err && w->out)
        err = own_map(w, &W, buf);

    for (int d = 1; (d <= before || d <= after) && !err; d *= 2) {
        err = comm->group(comm, 1);
        if (!err && d <= after)
            err = comm->send(comm, W, w->map, rank_at(w, d, 1), x->stream);
        if (!err && d <= before)
            err = comm->recv(comm, Y, w->map, rank_at(w, d, 0), x->stream);
        if (!err)
            err = comm->group(comm, 0);
        const int first = before < 2 * d;             /* Y reaches the start */
        if (!err && d <= before && through && 2 * d <= after)
            err = under(w, &W, Y, first, buf);
        if (!err && d <= before && X)
            err = under(w, &X, Y, first, buf + 2);
        else if (!err && d <= before) {
            X = buf[2];                               /* d = 1: X was the identity */
            err = x->ops->copy(X, w->map, Y, w->map, w->map, 1, x->stream);
        }
    }
    const size_t e = x->ops->elem;
    if (!err && w->in)
        err = x->ops->copy(walk_state(w, 0), x->V * e, X, (x->V + x->K) * e, x->V * e,
                           (size_t)x->HV * x->K, x->stream);
    return err ? err : walk_fold(w, 0, w->in, 0, x->V);
}
//< scan

static size_t work(const struct walk *w)
{
    return 5 * w->map;
}

/* One map to each rank of the leaving sequence at distance 1, 2, 4, ... */
static struct kcp_traffic formula(const struct walk *w)
{
    struct kcp_traffic t = { 0, 0, 0 };
    for (int d = 1, after = holders(w, 1); d <= after; d *= 2)
        t.messages++;
    t.bytes = t.messages * (int64_t)w->map;
    return t;
}

const struct form form_scan = { run, work, formula };
