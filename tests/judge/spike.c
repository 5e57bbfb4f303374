/* spike.c -- chapter 15 for the judge: spikes, gates that keep the state alive, masks.
 *
 * Book: chapter 15, and field notes "Inputs are part of the proof".
 * Checked by: tests/judge/self.c.  Next: tests/15_scan/checks.c.
 */
#include "judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tensor *normals(struct tensor_set *b, const struct kcase *k,
                              const char *name,
                              const char *shape, enum kcp_store store, double size)
{
    struct tensor *t = tensor_add(b, name, shape, store, &k->call);
    struct stream s = stream_of(k->seed, name);
    for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = size * normal(&s);
    return t;
}

static void unit(struct tensor *t, int K)
{
    double (*x)[K] = t->p;
    for (int64_t i = 0; i < t->n / K; i++) {
        double sum = 1e-30;
        for (int j = 0; j < K; j++) sum += x[i][j] * x[i][j];
        for (int j = 0; j < K; j++) x[i][j] /= sqrt(sum);
    }
}

/* 1 with a chance, alone or in runs of so many; a run may cover whole ranks. */
static void mask(struct tensor_set *b, const struct kcase *k, const char *name,
                 const char *shape, double chance, double run, int value)
{
    struct tensor *t = tensor_add(b, name, shape, KCP_I32, &k->call);
    struct stream s = stream_of(k->seed, name);
    int on = uniform(&s) < chance;
    for (int64_t i = 0; i < t->n; i++) {
        if (uniform(&s) < 1 / run) on = uniform(&s) < chance;
        ((int *)t->p)[i] = on ? value : !value;
    }
}

/* alpha_base holds the decays' logarithms already: the spikes move them a little. */
void spike_draw(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    struct tensor *base = tensor_find(b, "alpha_base");
    unit(normals(b, k, "q", "T H K", KCP_ACTV, 1), c->K);
    unit(normals(b, k, "k", "T H K", KCP_ACTV, 1), c->K);
    normals(b, k, "v", "T HV V", KCP_ACTV, 1);
    normals(b, k, "do_", "T HV V", KCP_ACTV, 1);
    normals(b, k, "W_alpha", "HV K D", KCP_ACC, .3);
    normals(b, k, "w_beta", "HV D", KCP_ACC, .3);
    for (int64_t i = 0; i < base->n; i++) {                     /* logit of exp(g) */
        const double g = ((double *)base->p)[i];
        ((double *)base->p)[i] = g - log(-expm1(g));
    }
    struct tensor *beta = normals(b, k, "beta_base", "T HV", KCP_ACTV, 1);
    for (int64_t i = 0; i < beta->n; i++)
        ((double *)beta->p)[i] -= k->regime == LIVE ? 3 : 0;
    struct tensor *spike = tensor_add(b, "spike", "T HV D", KCP_ACTV, c);
    struct stream s = stream_of(k->seed, "spike");
    for (int64_t i = 0; i < spike->n; i++) ((double *)spike->p)[i] = uniform(&s) < .3;
    if (k->masks != 1) {
        static const double dropped[] = { .1, 0, .5, .6 }, run[] = { 1, 1, 2, 60 };
        mask(b, k, "drop", "T", dropped[k->masks], run[k->masks], 1);
        mask(b, k, "active", "T HV", .2, run[k->masks], 0);
    }
    if (k->with_h0) {
        normals(b, k, "h0", "N HV K V", KCP_ACC, .5);
        normals(b, k, "o0", "N HV V", KCP_ACC, 1);
    }
    if (k->with_dht) {
        normals(b, k, "dht", "N HV K V", KCP_ACC, .5);
        normals(b, k, "dot", "N HV V", KCP_ACC, 1);
    }
}

/* Rows of tensor t from token t0 on; NULL when there is none. */
static const void *from(const struct tensor_set *b, const char *name, int64_t t0)
{
    const struct tensor *t = tensor_find(b, name);
    if (!t) return NULL;
    const int64_t width = t->store == KCP_I32 ? 4 : 8;
    const int64_t row = t->dim[0] ? t->n / t->dim[0] : t->n;
    return (char *)t->p + width * t0 * row;
}

/* |S| / |S_0| of a random state that enters the sequence which the last rank takes
 * over, with v = 0, up to that cut. NaN when no sequence crosses it. */
double alive_spike(const struct tensor_set *b, const struct kcase *k,
                   const struct kcp_plan *p)
{
    int last = -1;
    for (int i = 0; i < p->S; i++) {
        const struct kcp_segment *g = &p->seg[p->order[i]];
        if (!g->first && p->seg[g->prev].rank != g->rank) last = p->order[i];
    }
    if (last < 0) return NAN;
    const int64_t t0 = p->cu_seqlens[p->seg[last].n], n = p->seg[last].begin - t0;
    struct kcp_scan a = { .N = 1 };
    memcpy(&a, &k->call, sizeof k->call);
    const int64_t KV = (int64_t)a.HV * a.K * a.V, row = (int64_t)a.HV * a.V;
    const int64_t cu[2] = { 0, n };
    double *S = calloc(2 * KV + 2 * (n + 1) * row, sizeof *S), x = 0, y = 0;
    struct kcp_plan *one = NULL;
    struct stream rnd = stream_of(k->seed, "alive");
    int status = S ? kcp_plan_make(&one, 1, cu, 1, NULL, 0, a.C, 0, NULL)
                   : KCP_NO_MEMORY;
    for (int64_t i = 0; S && i < KV; i++) S[i] = normal(&rnd);
    a.N = 1;
    a.T = n;
    a.R = 1;
    a.r = 0;
    a.pass = KCP_FORWARD;
    a.plan = one;
    a.q = from(b, "q", t0);
    a.k = from(b, "k", t0);
    a.spike = from(b, "spike", t0);
    a.alpha_base = from(b, "alpha_base", t0);
    a.beta_base = from(b, "beta_base", t0);
    a.W_alpha = from(b, "W_alpha", 0);
    a.w_beta = from(b, "w_beta", 0);
    a.drop = from(b, "drop", t0);
    a.active = from(b, "active", t0);
    a.h0 = S;
    a.ht = S + KV;
    a.v = S + 2 * KV;
    a.o = S + 2 * KV + n * row;
    a.ot = (double *)a.o + n * row;
    if (!status) status = ref_scan_step(&a);
    for (int64_t i = 0; !status && i < KV; i++) {
        x += S[i] * S[i];
        y += S[KV + i] * S[KV + i];
    }
    kcp_plan_free(one);
    free(S);
    return status ? NAN : sqrt(y / x);
}
