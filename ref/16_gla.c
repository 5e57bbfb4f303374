/* 16_gla.c -- GLA, gated linear attention: a token adds k v^T to the decayed state.
 * Book: chapter 16. */
#include "16_family.h"

#include <math.h>

/* S <- diag(exp g) S + k v^T */
static void step(const struct family_token *x, void *S_)
{
    double (*S)[x->V] = S_;
    for (int i = 0; i < x->K; i++) {
        const double decay = exp(x->g[i]);
        for (int v = 0; v < x->V; v++)
            S[i][v] = decay * S[i][v] + x->k[i] * x->v[v];
    }
}

/* dk = dS v      dv = dS^T k      dg = exp(g) sum_v dS S      dS <- diag(exp g) dS */
static void adjoint(const struct family_token *x, const void *S_, void *dS_)
{
    const double (*S)[x->V] = S_;
    double (*dS)[x->V] = dS_;
    for (int i = 0; i < x->K; i++) {
        const double decay = exp(x->g[i]);
        for (int v = 0; v < x->V; v++) {
            x->dk[i] += dS[i][v] * x->v[v];
            x->dv[v] += dS[i][v] * x->k[i];
            dS[i][v] *= decay;
            x->dg[i] += dS[i][v] * S[i][v];
        }
    }
}

/* u = v and w = 0, so the chunk's map has h = kg^T v and the diagonal matrix M = Λ. */
static void form(const struct family_chunk *x)
{
    for (int i = 0; i < x->c; i++)
        for (int v = 0; v < x->V; v++) drow(x->u, i)[v] = row(x->v, i)[v];
    family_write(x, x->k, 0);
    family_read(x);
}

static void form_back(const struct family_chunk *x)
{
    for (int i = 0; i < x->c; i++)
        for (int v = 0; v < x->V; v++) drow(x->v, i)[v] += row(x->dU, i)[v];
    family_write_back(x, x->k, 0);
    family_read_back(x);
}

const struct family_model ref_gla = { "gla", 1, step, adjoint, form, form_back };
