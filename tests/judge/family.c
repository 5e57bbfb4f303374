/* family.c -- chapter 16 for the judge: inputs that live, and the token recurrence.
 *
 * Book: chapter 16, and field notes "Inputs are part of the proof".
 * Checked by: tests/judge/self.c.  Next: tests/16_family/checks.c.
 *
 * Unrelated random a and b make DPLR's state explode. As in RWKV-7, a = -κ with
 * |κ| = 1 and b = η κ with 0 < η < 1 channel by channel: the token forgets along κ
 * what it finds there.
 */
#include "judge.h"
#include "ref/sigmoid.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of unit length. */
static void unit_rows(struct tensor *t, uint64_t seed, int K)
{
    struct stream s = stream_of(seed, t->name);
    double (*x)[K] = t->p;
    for (int64_t i = 0; i < t->n / K; i++) {
        double sum = 1e-30;
        for (int j = 0; j < K; j++) {
            x[i][j] = normal(&s);
            sum += x[i][j] * x[i][j];
        }
        for (int j = 0; j < K; j++) x[i][j] /= sqrt(sum);
    }
}

/* sigmoid(center + token + channel): one size a token, a little apart in channels. */
static void gates(struct tensor *t, uint64_t seed, int width, double center)
{
    struct stream s = stream_of(seed, t->name);
    double (*x)[width] = t->p;
    for (int64_t i = 0; i < t->n / width; i++) {
        const double token = normal(&s) + center;
        for (int j = 0; j < width; j++) x[i][j] = sigmoid(token + .5 * normal(&s));
    }
}

void family_draw(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    const double center = k->regime == LIVE ? -3 : 0;
    const char *const plain[] = { "v", "do_" };
    unit_rows(tensor_add(b, "q", "T H K", KCP_ACTV, c), k->seed, c->K);
    unit_rows(tensor_add(b, "k", "T H K", KCP_ACTV, c), k->seed, c->K);
    for (int j = 0; j < 2; j++) {
        struct tensor *t = tensor_add(b, plain[j], "T HV V", KCP_ACTV, c);
        struct stream s = stream_of(k->seed, t->name);
        for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = normal(&s);
    }
    if (c->model != KCP_GLA)
        gates(tensor_add(b, "b", "T HV K", KCP_ACTV, c), k->seed, c->K, center);
    if (c->model == KCP_GDN2)
        gates(tensor_add(b, "omega", "T HV V", KCP_ACTV, c), k->seed, c->V, 0);
    if (c->model == KCP_DPLR) {
        struct tensor *a = tensor_add(b, "a", "T HV K", KCP_ACTV, c);
        struct tensor *e = tensor_find(b, "b");
        unit_rows(a, k->seed, c->K);
        for (int64_t i = 0; i < a->n; i++) {
            ((double *)e->p)[i] *= ((double *)a->p)[i];
            ((double *)a->p)[i] *= -1;
        }
    }
}

/* The batch on one rank: what the family's stage is held to. */
int pipeline_family(struct tensor_set *b, const struct kcp_stage *s,
                    const struct kcase *k,
                    enum kcp_pass pass)
{
    struct kcp_plan *p = case_plan(k, 1);
    if (!p) return KCP_NO_MEMORY;
    struct kcp_stage oracle = *s;
    struct kcp_call c = k->call;
    oracle.ref = s->oracle;
    c.pass = pass;
    c.R = 1;
    c.r = 0;
    c.plan = p;
    c.NS = p->ctx[0].NS;
    c.NC = p->ctx[0].NC;
    grid_add(b, &p->ctx[0], &c);
    const int status = reference_run(b, &oracle, &c);
    kcp_plan_free(p);
    return status;
}

/* Rows of tensor t from token t0 on; NULL when the model has none. */
static const void *from(const struct tensor_set *b, const char *name, int64_t t0)
{
    const struct tensor *t = tensor_find(b, name);
    if (!t) return NULL;
    const int64_t row = t->dim[0] ? t->n / t->dim[0] : t->n;
    return (const double *)t->p + t0 * row;
}

/* How much of a random state that enters the sequence's first token is left where the
 * last rank takes over: |S| / |S_0| with v = 0. NaN: no sequence crosses that cut. */
double alive_family(const struct tensor_set *b, const struct kcp_stage *s,
                    const struct kcase *k, const struct kcp_plan *p)
{
    int last = -1;
    for (int i = 0; i < p->S; i++) {
        const struct kcp_segment *g = &p->seg[p->order[i]];
        if (!g->first && p->seg[g->prev].rank != g->rank) last = p->order[i];
    }
    if (last < 0) return NAN;
    const int64_t t0 = p->cu_seqlens[p->seg[last].n], n = p->seg[last].begin - t0;
    struct kcp_family a = { .N = 1 };
    memcpy(&a, &k->call, sizeof k->call);
    const int64_t KV = (int64_t)a.HV * a.K * a.V, cu[2] = { 0, n };
    double *S = calloc(2 * KV + 2 * n * a.HV * a.V, sizeof *S), x = 0, y = 0;
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
    a.g = from(b, "g", t0);
    a.a = from(b, "a", t0);
    a.b = from(b, "b", t0);
    a.omega = from(b, "omega", t0);
    a.h0 = S;
    a.ht = S + KV;
    a.v = S + 2 * KV;
    a.o = S + 2 * KV + n * a.HV * a.V;
    if (!status) status = s->oracle(&a);
    for (int64_t i = 0; !status && i < KV; i++) {
        x += S[i] * S[i];
        y += S[KV + i] * S[KV + i];
    }
    kcp_plan_free(one);
    free(S);
    return status ? NAN : sqrt(y / x);
}
