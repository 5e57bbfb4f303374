/* family.c -- draws inputs of chapters 15 and 16, such as spikes, masks and gates.
 * Book: chapters 15 and 16, and field notes "Inputs are part of the proof".
 *
 * With independent random vectors `a` and `b` the state of DPLR grows without bound.
 * So, as in RWKV-7, a = -κ with |κ| = 1 and b = η * κ with 0 < η < 1 per channel,
 * so that each token removes a part of the state along κ. In cases with alike keys,
 * the vectors κ are alike too, and the gates η are near 1. */
#include "judge.h"
#include "ref/sigmoid.h"
#include <math.h>
#include <string.h>

/* Fills t with gates sigmoid(center + x + y / 2), where x is one normal number per
 * token and y is one per token and channel. With `exact_beta`, a third of the rows are
 * 0 and a third are 1. */
static void gates(struct tensor *t, const struct kcase *k, int width, double center)
{
    struct stream s = stream_of(k->seed, t->name);
    double (*x)[width] = t->p;
    for (int64_t i = 0; i < t->n / width; i++) {
        const double token = normal(&s) + center;
        for (int j = 0; j < width; j++) {
            x[i][j] = sigmoid(token + .5 * normal(&s));
            if (k->exact_beta && i % 3) x[i][j] = i % 3 == 1 ? 0 : 1;
        }
    }
}

void family_draw(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    if (kcp_model_reads(c->model, "g")) add_decays(b, k, "g", KCP_ACC);
    add_states(b, k);
    add_rows(b, k, "q", "T H K", 1, 0);
    add_rows(b, k, "k", "T H K", 1, 1);
    add_normal(b, k, "v", "T HV V", KCP_ACTV, k->big ? 1e4 : 1);
    add_normal(b, k, "do_", "T HV V", KCP_ACTV, 1);
    if (kcp_model_reads(c->model, "b"))
        gates(tensor_add(b, "b", "T HV K", KCP_ACTV, c), k, c->K, mean_logit(k));
    if (kcp_model_reads(c->model, "omega"))
        gates(tensor_add(b, "omega", "T HV V", KCP_ACTV, c), k, c->V, 0);
    if (!kcp_model_reads(c->model, "a")) return;
    const struct tensor *a = add_rows(b, k, "a", "T HV K", 1, 1);
    const struct tensor *e = tensor_find(b, "b");
    for (int64_t i = 0; i < a->n; i++) {
        if (e) ((double *)e->p)[i] *= ((double *)a->p)[i];
        ((double *)a->p)[i] *= -1;
    }
}

/* Draws a mask of runs of equal entries, `run` entries long on average. A run has
 * `value` with probability `chance`, else !value. A run may cover whole ranks. */
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

/* Draws the inputs of chapter 15. alpha_base contains the logits of decays. W_alpha is
 * small, so that a spike (input 0 or 1) has little effect on the decays. */
void spike_draw(struct tensor_set *b, const struct kcase *k)
{
    add_decays(b, k, "alpha_base", KCP_ACTV);
    add_rows(b, k, "q", "T H K", 1, 0);
    add_rows(b, k, "k", "T H K", 1, 1);
    add_normal(b, k, "v", "T HV V", KCP_ACTV, k->big ? 1e4 : 1);
    add_normal(b, k, "do_", "T HV V", KCP_ACTV, 1);
    add_normal(b, k, "W_alpha", "HV K D", KCP_ACC, .3);
    add_normal(b, k, "w_beta", "HV D", KCP_ACC, .3);
    const struct tensor *base = tensor_find(b, "alpha_base");
    for (int64_t i = 0; i < base->n; i++) {            /* becomes the logit of exp(g) */
        const double g = fmin(((double *)base->p)[i], -1e-9);
        ((double *)base->p)[i] = g - log(-expm1(g));
    }
    const struct tensor *beta = add_normal(b, k, "beta_base", "T HV", KCP_ACTV, 1);
    for (int64_t i = 0; i < beta->n; i++) {
        double *x = (double *)beta->p + i;
        *x += mean_logit(k);
        if (k->exact_beta && i % 3) *x = i % 3 == 1 ? -1e3 : 1e3;    /* beta 0 or 1 */
    }
    const struct tensor *spike = tensor_add(b, "spike", "T HV D", KCP_ACTV, &k->call);
    struct stream s = stream_of(k->seed, "spike");
    for (int64_t i = 0; i < spike->n; i++) ((double *)spike->p)[i] = uniform(&s) < .3;
    if (k->masks != 1) {
        static const double dropped[] = { .1, 0, .5, .6 }, run[] = { 1, 1, 2, 60 };
        mask(b, k, "drop", "T", dropped[k->masks], run[k->masks], 1);
        mask(b, k, "active", "T HV", .2, run[k->masks], 0);
    }
    if (k->with_h0) add_normal(b, k, "h0", "N HV K V", KCP_ACC, .5);
    if (k->with_h0) add_normal(b, k, "o0", "N HV V", KCP_ACC, 1);
    if (k->with_dht) add_normal(b, k, "dht", "N HV K V", KCP_ACC, .5);
    if (k->with_dht) add_normal(b, k, "dot", "N HV V", KCP_ACC, 1);
}
