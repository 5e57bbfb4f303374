/* alive.c -- computes the share of an initial state that remains at the last cut.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * If the state has decayed, a wrong value sent across a cut between ranks changes no
 * output. So each verdict contains this share, or NaN if no sequence crosses a cut. */
#include "judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Finds the last cut that a sequence crosses. Sets *t0 to the sequence's first token
 * and *T to its token count before the cut. Returns 0 if there is no such cut. */
static int stretch_before(const struct kcp_plan *p, int64_t *t0, int64_t *T)
{
    int last = -1;
    for (int i = 0; i < p->S; i++) {
        const struct kcp_segment *g = &p->seg[p->order[i]];
        if (!g->first && p->seg[g->prev].rank != g->rank) last = p->order[i];
    }
    if (last < 0) return 0;
    *t0 = p->cu_seqlens[p->seg[last].n];
    *T = p->seg[last].begin - *t0;
    return 1;
}

double alive_state(const struct tensor_set *b, const struct kcp_stage *s,
                   const struct kcase *k, const struct kcp_plan *p)
{
    struct kcp_call c = k->call;
    int64_t t0, T;
    if (!stretch_before(p, &t0, &T)) return NAN;
    const int64_t KV = (int64_t)c.HV * c.K * c.V, row = (int64_t)c.HV * c.V;
    int64_t cu[2] = { 0, T };
    double *h0 = calloc((size_t)(2 * KV + 2 * T * row + row), sizeof *h0);
    double *const ht = h0 + KV, *const v = ht + KV, *const o = v + T * row;
    const struct { const char *name; void *at; } own[] = {
        { "h0", h0 }, { "ht", ht }, { "v", v }, { "o", o }, { "ot", o + T * row },
        { "cu_seqlens", cu } };
    double after = 0;
    struct kcp_plan *one = NULL;
    struct stream random = stream_of(k->seed, "alive");
    char *args = alloc_or_exit(s->args);
    int status = h0 ? kcp_plan_make(&one, 1, cu, 1, NULL, 0, c.C, 0, NULL)
                    : KCP_NO_MEMORY;
    for (int64_t i = 0; h0 && i < KV; i++) h0[i] = normal(&random) < 0 ? -1 : 1;
    c.N = c.R = 1;
    c.r = 0;
    c.T = T;
    c.pass = KCP_FORWARD;
    c.plan = one;
    memset(args, 0, s->args);
    memcpy(args, &c, sizeof c);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        const struct tensor *t = tensor_find(b, f->name);
        char *at = NULL;
        if (t && f->io == KCP_IN && f->shape[0] != 'N') at = t->p;
        if (at && f->shape[0] == 'T')
            at += (t->store == KCP_I32 ? 4 : 8) * t0 * (t->n / t->dim[0]);
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            if (!strcmp(f->name, own[j].name)) at = own[j].at;
        memcpy(args + f->at, &at, sizeof at);
    }
    if (!status) status = s->oracle ? s->oracle(args) : s->ref(args);
    for (int64_t i = 0; !status && i < KV; i++) after += ht[i] * ht[i];
    kcp_plan_free(one);
    free(args);
    free(h0);
    return status ? NAN : sqrt(after / (double)KV);
}
