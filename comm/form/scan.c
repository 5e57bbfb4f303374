/* scan.c -- a parallel prefix scan of the maps of R ranks in log2 R steps, not R - 1.
 * Book: chapter 07.
 *
 * A visit is a run of adjacent segments of one sequence on one rank. The map of visit
 * m = 0, 1, ... (in the order of the pass) is f_m: S -> M S + h. Before the step with
 * distance d = 1, 2, 4, ... visit m holds two maps (f_i with i < 0 is omitted):
 *   W = f_m     after ... after f_(m-d+1)   composes d maps; f_m is applied last
 *   X = f_(m-1) after ... after f_(m-d+1)   composes d-1 maps, without f_m.
 *
 * In that step, visit m sends W to visit m+d, and composes both W and X with the map
 * received from visit m-d. Once X includes f_0, h of X is the state at the start of
 * visit m. X omits f_m (an exclusive scan), so the results need not be moved to the
 * next visit. Each visit of a rank has a separate W and X.
 *
 * Time with l = log2 R rounded up (symbols in chapter 07): t_sum + l * (a +
 * (B + B_M)/bw) + 2 * (l - 1) * t_MM + t_main. */
#include "exchange.h"

#include <stdlib.h>

/* A visit of this rank that receives or sends a state, and the maps W and X of the
 * visit. */
struct scanning {
    struct visit v;
    int after;                 /* number of later visits of the sequence */
    char *W, *X, *buffer[5];   /* buffer[4]: received map */
};

/* Returns a segment of the visit that is d visits after v in the order of the pass
 * (d visits before v if `after` is 0). */
static const struct kcp_segment *visit_at(const struct fold *f, const struct visit *v,
                                          int d, int after)
{
    const struct kcp_segment *s = fold_segment(f, after ? v->p1 - 1 : v->p0);
    while (d) {
        const struct kcp_segment *next = after ? fold_after(f, s) : fold_before(f, s);
        d -= next->rank != s->rank;
        s = next;
    }
    return s;
}

/* Composes map `a` (applied first) with map `*b` in the buffer that `*b` does not use.
 * Then points `*b` to the result. */
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

/* Composes the maps of the visit's segments into W. W has no M if the visit starts a
 * sequence. */
static int own_map(const struct fold *f, struct scanning *u)
{
    const struct kcp_exchange *x = f->x;
    const int first = fold_starts(f, fold_segment(f, u->v.p0));
    int err = KCP_OK;
    u->W = fold_map(f, u->v.p0);
    for (int q = u->v.p0 + 1; q < u->v.p1 && !err; q++) {
        char *out = u->buffer[u->W == u->buffer[0]];
        err = x->ops->compose(x->HV, x->K, x->V, fold_map(f, q), u->W, x->backward,
                              first, out, x->stream);
        u->W = out;
    }
    return err;
}

/* Lists the visits of this rank that receive or send a state. Returns their number. If
 * `list` is NULL, only counts these visits. */
static int visits(const struct fold *f, struct scanning *list)
{
    int n = 0;
    struct visit v;
    for (int p = 0; p < f->NS; p = v.p1) {
        v = fold_visit(f, p);
        if (!v.enters && !v.leaves) continue;
        if (list) {
            list[n].v = v;
            list[n].after = fold_hops_left(f, fold_segment(f, p));
            for (int b = 0; b < 5; b++)
                list[n].buffer[b] = (char *)f->x->work + (5 * n + b) * f->map;
        }
        n++;
    }
    return n;
}

/* Sends map W of every visit m to visit m+d, in one group. If both visits are on this
 * rank, copies W instead. */
static int pass_on(const struct fold *f, struct scanning *list, int n, int d)
{
    const struct kcp_exchange *x = f->x;
    struct kcp_comm *comm = x->comm;
    const int opened = comm->group(comm, 1);
    int err = opened;
    for (int i = 0; i < n && !err; i++) {
        const int to = d <= list[i].after ? visit_at(f, &list[i].v, d, 1)->rank : f->r;
        if (to != f->r) err = comm->send(comm, list[i].W, f->map, to, x->stream);
    }
    for (int i = 0; i < n && !err; i++) {
        const int from = d <= list[i].v.hops ? visit_at(f, &list[i].v, d, 0)->rank
                                             : f->r;
        if (from != f->r)
            err = comm->recv(comm, list[i].buffer[4], f->map, from, x->stream);
    }
    err = group_end(comm, opened, err);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i && !err; j++)
            if (list[j].v.hops + d == list[i].v.hops &&
                fold_segment(f, list[j].v.p0)->n == fold_segment(f, list[i].v.p0)->n)
                err = x->ops->copy(list[i].buffer[4], f->map, list[j].W, f->map, f->map,
                                   1, x->stream);
    return err;
}

/* Composes maps W and X of visit m with Y. Visit m-d sent Y, its own map W. */
static int take_in(const struct fold *f, struct scanning *u, int d)
{
    const struct kcp_exchange *x = f->x;
    const int first = u->v.hops < 2 * d;              /* Y starts the sequence */
    char *const Y = u->buffer[4];
    int err = KCP_OK;
    if (d > u->v.hops) return KCP_OK;
    if (u->v.leaves && 2 * d <= u->after)
        err = compose_after(f, &u->W, Y, first, u->buffer);
    if (!err && u->X) err = compose_after(f, &u->X, Y, first, u->buffer + 2);
    else if (!err) {
        u->X = u->buffer[2];            /* first step: X was the identity, so X = Y */
        err = x->ops->copy(u->X, f->map, Y, f->map, f->map, 1, x->stream);
    }
    return err;
}

//> scan
static int scan_run(const struct fold *f)
{
    const struct kcp_exchange *x = f->x;
    const size_t e = f->elem;
    struct scanning *list = calloc(f->NS + 1, sizeof *list);
    struct visit v;
    const int n = list ? visits(f, list) : 0;
    int err = list ? KCP_OK : KCP_NO_MEMORY, farthest = 0;

    for (int p = 0; p < f->NS && !err; p = v.p1) {
        v = fold_visit(f, p);
        if (!v.enters) err = fold_states(f, v.p0, v.p1, 0, x->V);
    }
    for (int i = 0; i < n && !err; i++) {
        const int before = list[i].v.hops, after = list[i].after;
        if (list[i].v.leaves) err = own_map(f, &list[i]);
        farthest = before > farthest ? before : farthest;
        farthest = after > farthest ? after : farthest;
    }
    for (int d = 1; d <= farthest && !err; d *= 2) {
        err = pass_on(f, list, n, d);
        for (int i = 0; i < n && !err; i++) err = take_in(f, &list[i], d);
    }
    for (int i = 0; i < n && !err; i++) {
        const struct visit *u = &list[i].v;
        if (!u->enters) continue;
        err = x->ops->copy(fold_state(f, u->p0), x->V * e, list[i].X,
                           f->wide * e, x->V * e, (size_t)x->HV * x->K, x->stream);
        if (!err) err = fold_states(f, u->p0, u->p1, 0, x->V);
    }
    free(list);
    return err;
}
//< scan

static size_t scan_work(const struct fold *f)
{
    return 5 * visits(f, NULL) * f->map;
}

/* Returns the bytes and messages that this rank sends. Each visit that sends a state
 * sends one map to each later visit at distance 1, 2, 4, ... that is on another
 * rank. */
static struct kcp_traffic scan_formula(const struct fold *f)
{
    struct kcp_traffic t = { 0, 0, 0 };
    struct visit v;
    for (int p = 0; p < f->NS; p = v.p1) {
        v = fold_visit(f, p);
        const int after = fold_hops_left(f, fold_segment(f, p));
        for (int d = 1; v.leaves && d <= after; d *= 2)
            t.messages += visit_at(f, &v, d, 1)->rank != f->r;
    }
    t.bytes = t.messages * (int64_t)f->map;
    return t;
}

const struct form form_scan = {
    .run = scan_run, .work_bytes = scan_work, .formula = scan_formula };
