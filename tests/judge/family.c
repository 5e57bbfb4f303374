/* family.c -- draws inputs of chapter 16 that keep the state alive.
 *
 * Book: chapter 16, and field notes "Inputs are part of the proof".
 * Checked by: tests/judge/self_cases.c.  Next: tests/16_family/checks.c.
 *
 * With independent random a and b the state of DPLR grows without bound. So, as in
 * RWKV-7, a = -κ with |κ| = 1 and b = η κ with 0 < η < 1 per channel, so that each
 * token removes a part of the state along κ. In cases with alike keys, the vectors κ
 * are alike too, and the gates η are near 1. */
#include "judge.h"
#include "ref/sigmoid.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fills t with rows of unit length, then makes rows alike, null or large as set in
 * k. */
static void unit_rows(struct tensor *t, const struct kcase *k, int alike)
{
    fill_rows(t, k->seed, k->call.K, 1);
    rows_unlike(t, k, alike);
}

/* Fills t with gates sigmoid(center + x + y / 2), where x is one normal number per
 * token and y is one per token and channel. With exact_beta, a third of the rows are 0
 * and a third are 1. */
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
    const char *const plain[] = { "v", "do_" };
    double center = k->regime == LIVE ? -3 : 0;
    if (k->alike > 0) center = 3;
    unit_rows(tensor_add(b, "q", "T H K", KCP_ACTV, c), k, 0);
    unit_rows(tensor_add(b, "k", "T H K", KCP_ACTV, c), k, 1);
    for (int j = 0; j < 2; j++) {
        struct tensor *t = tensor_add(b, plain[j], "T HV V", KCP_ACTV, c);
        fill_normal(t, k->seed, k->big && !j ? 1e4 : 1);
    }
    if (c->model != KCP_GLA)
        gates(tensor_add(b, "b", "T HV K", KCP_ACTV, c), k, c->K, center);
    if (c->model == KCP_GDN2)
        gates(tensor_add(b, "omega", "T HV V", KCP_ACTV, c), k, c->V, 0);
    if (c->model == KCP_DPLR) {
        struct tensor *a = tensor_add(b, "a", "T HV K", KCP_ACTV, c);
        struct tensor *e = tensor_find(b, "b");
        unit_rows(a, k, 1);
        for (int64_t i = 0; i < a->n; i++) {
            ((double *)e->p)[i] *= ((double *)a->p)[i];
            ((double *)a->p)[i] *= -1;
        }
    }
}
