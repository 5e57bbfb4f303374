/* alive.c -- computes how much of a sequence's initial state is left at the last cut.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self_cases.c.
 * Next: family.c.
 *
 * If the state has decayed, a wrong value sent across a cut changes no output. So each
 * verdict contains the share of the state left at the last cut, or NaN if there is no
 * cut. */
#include "judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Finds the last cut that a sequence crosses. Sets *t0 to the first token of that
 * sequence and *T to its number of tokens before the cut. Returns 0 if no sequence
 * crosses a cut. */
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

/* Returns |S| / |S_0|, where the stage's oracle computes state S (field ht) from a
 * random state S_0 (field h0) over the T tokens from t0 on, with v = 0. */
double alive_state(const struct tensor_set *b, const struct kcp_stage *s,
                   const struct kcase *k, const struct kcp_plan *p)
{
    struct kcp_call c = k->call;
    int64_t t0, T;
    if (!stretch_before(p, &t0, &T)) return NAN;
    const int64_t KV = (int64_t)c.HV * c.K * c.V, row = (int64_t)c.HV * c.V;
    const int64_t cu[2] = { 0, T };
    double *h0 = calloc((size_t)(2 * KV + 2 * T * row + row), sizeof *h0);
    double *const ht = h0 + KV, *const v = ht + KV, *const o = v + T * row;
    const struct { const char *name; double *at; } own[] = {
        { "h0", h0 }, { "ht", ht }, { "v", v }, { "o", o }, { "ot", o + T * row } };
    double before = 0, after = 0;
    struct kcp_plan *one = NULL;
    struct stream random = stream_of(k->seed, "alive");
    char *args = alloc_or_exit(s->args);
    int status = h0 ? kcp_plan_make(&one, 1, cu, 1, NULL, 0, c.C, 0, NULL)
                    : KCP_NO_MEMORY;
    for (int64_t i = 0; h0 && i < KV; i++) h0[i] = normal(&random);
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
            if (!strcmp(f->name, own[j].name)) at = (char *)own[j].at;
        memcpy(args + f->at, &at, sizeof at);
    }
    if (!status) status = s->oracle(args);
    for (int64_t i = 0; !status && i < KV; i++) {
        before += h0[i] * h0[i];
        after += ht[i] * ht[i];
    }
    kcp_plan_free(one);
    free(args);
    free(h0);
    return status ? NAN : sqrt(after / before);
}

/* Returns the mean over heads of |P|_F / sqrt(K), where P is the product of token maps
 * up to the last cut. Set b must contain k, g and beta. */
double alive_far(const struct tensor_set *b, const struct kcase *k,
                 const struct kcp_plan *p)
{
    const struct kcp_call *c = &k->call;
    const int K = c->K, HV = c->HV, KG = c->KG;
    const struct tensor *tk = tensor_find(b, "k"), *tg = tensor_find(b, "g"),
                        *tb = tensor_find(b, "beta");
    int64_t t0, T;
    if (!stretch_before(p, &t0, &T) || !tk || !tg || !tb) return NAN;
    const double (*key)[c->H][K] = tk->p, (*g)[HV][KG] = tg->p, (*beta)[HV] = tb->p;
    double (*M)[K] = malloc(sizeof(double) * K * K), *row = malloc(sizeof(double) * K);
    double sum = 0;
    for (int n = 0; M && row && n < HV; n++) {
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) M[i][j] = i == j;
        for (int64_t t = t0; t < t0 + T; t++) {
            const double *x = key[t][n / (HV / c->H)];
            for (int j = 0; j < K; j++) row[j] = 0;
            for (int i = 0; i < K; i++) {
                const double decay = exp(g[t][n][KG == 1 ? 0 : i]);
                for (int j = 0; j < K; j++) row[j] += x[i] * (M[i][j] *= decay);
            }
            for (int i = 0; i < K; i++)
                for (int j = 0; j < K; j++) M[i][j] -= beta[t][n] * x[i] * row[j];
        }
        double f = 0;
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) f += M[i][j] * M[i][j];
        sum += sqrt(f / K) / HV;
    }
    free(M);
    free(row);
    return sum;
}
