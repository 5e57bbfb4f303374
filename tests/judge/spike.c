/* spike.c -- draws inputs of chapter 15: spikes, gates for a live state, masks.
 *
 * Book: chapter 15, and field notes "Inputs are part of the proof".
 * Checked by: tests/judge/self_cases.c.  Next: tests/15_scan/checks.c. */
#include "judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tensor *normals(struct tensor_set *b, const struct kcase *k,
                              const char *name, const char *shape,
                              enum kcp_store store, double size)
{
    struct tensor *t = tensor_add(b, name, shape, store, &k->call);
    fill_normal(t, k->seed, size);
    return t;
}

/* Draws a mask in runs of mean length `run` tokens. All entries of a run are `value`
 * with probability `chance`, else !value. A run may cover whole ranks. */
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

/* Draws the inputs of chapter 15. Tensor alpha_base contains logarithms of decays on
 * entry and logits of the decays on return. W_alpha is small, so that spikes change
 * decays little. */
void spike_draw(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    struct tensor *base = tensor_find(b, "alpha_base");
    fill_rows(tensor_add(b, "q", "T H K", KCP_ACTV, c), k->seed, c->K, 1);
    fill_rows(tensor_add(b, "k", "T H K", KCP_ACTV, c), k->seed, c->K, 1);
    rows_unlike(tensor_find(b, "q"), k, 0);
    rows_unlike(tensor_find(b, "k"), k, 1);
    normals(b, k, "v", "T HV V", KCP_ACTV, k->big ? 1e4 : 1);
    normals(b, k, "do_", "T HV V", KCP_ACTV, 1);
    normals(b, k, "W_alpha", "HV K D", KCP_ACC, .3);
    normals(b, k, "w_beta", "HV D", KCP_ACC, .3);
    for (int64_t i = 0; i < base->n; i++) {                     /* logit of exp(g) */
        const double g = fmin(((double *)base->p)[i], -1e-9);
        ((double *)base->p)[i] = g - log(-expm1(g));
    }
    struct tensor *beta = normals(b, k, "beta_base", "T HV", KCP_ACTV, 1);
    double center = k->regime == LIVE ? -3 : 0;
    if (k->alike > 0) center = 3;
    for (int64_t i = 0; i < beta->n; i++) {
        double *x = (double *)beta->p + i;
        *x += center;
        if (k->exact_beta && i % 3) *x = i % 3 == 1 ? -1e3 : 1e3;    /* 0 and 1 */
    }
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
