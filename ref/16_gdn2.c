/* 16_gdn2.c -- GDN-2: the delta rule with an erase gate b [K] and a write gate omega
 * [V].
 * Book: chapter 16. */
#include "16_family.h"

#include <math.h>

/* S <- diag(exp g) S;   S <- S + k (omega v - S^T (b k))^T */
static void step(const struct family_token *x, void *S_)
{
    double (*S)[x->V] = S_, e[x->V];
    //> gdn2-step
    for (int v = 0; v < x->V; v++) e[v] = x->omega[v] * x->v[v];
    for (int i = 0; i < x->K; i++) {
        const double decay = exp(x->g[i]);
        for (int v = 0; v < x->V; v++) {
            S[i][v] *= decay;
            e[v] -= S[i][v] * x->b[i] * x->k[i];
        }
    }
    for (int i = 0; i < x->K; i++)
        for (int v = 0; v < x->V; v++) S[i][v] += x->k[i] * e[v];
    //< gdn2-step
}

/* With S' = diag(exp g) S and e = omega v - S'^T (b k):
 *   de = dS^T k                  d(omega v) = de          d(bk) = -S' de
 *   dk = dS e + b d(bk)          db = k d(bk)
 *   dS' = dS - (b k) de^T        dg = sum_v dS' S'        dS <- diag(exp g) dS' */
static void adjoint(const struct family_token *x, const void *S_, void *dS_)
{
    const double (*S)[x->V] = S_;
    double (*dS)[x->V] = dS_, e[x->V], de[x->V];
    for (int v = 0; v < x->V; v++) {
        e[v] = x->omega[v] * x->v[v];
        de[v] = 0;
    }
    for (int i = 0; i < x->K; i++) {
        const double decay = exp(x->g[i]);
        for (int v = 0; v < x->V; v++) {
            e[v] -= decay * S[i][v] * x->b[i] * x->k[i];
            de[v] += dS[i][v] * x->k[i];
        }
    }
    for (int v = 0; v < x->V; v++) {
        x->dv[v] += x->omega[v] * de[v];
        x->domega[v] += x->v[v] * de[v];
    }
    for (int i = 0; i < x->K; i++) {
        const double decay = exp(x->g[i]);
        double dbk = 0;
        for (int v = 0; v < x->V; v++) {
            x->dk[i] += dS[i][v] * e[v];
            dbk -= decay * S[i][v] * de[v];
            dS[i][v] = decay * (dS[i][v] - x->b[i] * x->k[i] * de[v]);
            x->dg[i] += dS[i][v] * S[i][v];
        }
        x->dk[i] += x->b[i] * dbk;
        x->db[i] += x->k[i] * dbk;
    }
}

/* Computes bk, the product of b and k, and L_ij = sum_p (bk)_i k_j exp2(G_i - G_j) for
 * i > j. */
static void system_of(const struct family_chunk *x)
{
    double (*L)[x->c] = x->L, (*bk)[x->K] = (void *)x->bk.x;
    for (int i = 0; i < x->c; i++) {
        for (int p = 0; p < x->K; p++)
            bk[i][p] = row(x->b, i)[p] * row(x->k, i)[p];
        for (int j = 0; j < i; j++)
            L[i][j] = family_score(x, x->bk, i, i, x->k, j);
    }
}

/* (I + L) u = omega v        (I + L) w = exp2(G) b k        chunk's M = Λ - kg^T w */
static void form(const struct family_chunk *x)
{
    const double (*L)[x->c] = x->L;
    system_of(x);
    //> gdn2-form
    for (int i = 0; i < x->c; i++) {
        double *u = drow(x->u, i), *w = drow(x->w, i);
        for (int v = 0; v < x->V; v++)
            u[v] = row(x->omega, i)[v] * row(x->v, i)[v];
        family_gated(x, x->bk, i, i, w);
        for (int j = 0; j < i; j++) {
            for (int v = 0; v < x->V; v++) u[v] -= L[i][j] * drow(x->u, j)[v];
            for (int p = 0; p < x->K; p++) w[p] -= L[i][j] * drow(x->w, j)[p];
        }
    }
    family_write(x, x->k, 0);
    family_read(x);
    //< gdn2-form
}

/* v_new solves (I + L) v_new = omega v - exp2(G) b k S. With z = (I + L)^-T dU:
 *   d(omega v) = z        d(exp2(G) b k) = -z h^T        dL_ij = -z_i v_new_j */
static void form_back(const struct family_chunk *x)
{
    const double (*L)[x->c] = x->L, (*h)[x->V] = (void *)x->h;
    double (*z)[x->V] = x->z, d[x->K];
    system_of(x);
    //> gdn2-back
    for (int i = 0; i < x->c; i++)
        for (int v = 0; v < x->V; v++) z[i][v] = row(x->dU, i)[v];
    for (int i = x->c - 1; i >= 0; i--)
        for (int j = 0; j < i; j++)
            for (int v = 0; v < x->V; v++) z[j][v] -= L[i][j] * z[i][v];
    for (int i = 0; i < x->c; i++) {
        for (int p = 0; p < x->K; p++) {
            d[p] = 0;
            for (int v = 0; v < x->V; v++) d[p] -= z[i][v] * h[p][v];
        }
        family_gated_back(x, d, x->bk, i, i);
        for (int j = 0; j < i; j++) {
            double dL = 0;
            for (int v = 0; v < x->V; v++) dL -= z[i][v] * row(x->v_new, j)[v];
            family_score_back(x, dL, x->bk, i, i, x->k, j);
        }
    }
    //< gdn2-back
    for (int i = 0; i < x->c; i++) {
        for (int v = 0; v < x->V; v++) {
            drow(x->v, i)[v] += row(x->omega, i)[v] * z[i][v];
            drow(x->omega, i)[v] += row(x->v, i)[v] * z[i][v];
        }
        for (int p = 0; p < x->K; p++) {
            drow(x->b, i)[p] += row(x->k, i)[p] * drow(x->bk, i)[p];
            drow(x->k, i)[p] += row(x->b, i)[p] * drow(x->bk, i)[p];
        }
    }
    family_write_back(x, x->k, 0);
    family_read_back(x);
}

const struct family_model ref_gdn2 = { "gdn2", 1, step, adjoint, form, form_back };

int ref_gdn2_run(const struct kcp_family *a)
{
    return a->model == KCP_GDN2 ? kcp_family_run(&ref_gdn2, a) : KCP_NA;
}
