/* 16_dplr.c -- DPLR: M is diagonal plus low rank. RWKV-7 is the case a = -κ, b = η κ.
 * Book: chapter 16. */
#include "16_family.h"

#include <math.h>

/* x = S^T a, with S before the decay;   S <- diag(exp g) S + b x^T + k v^T */
static void step(const struct family_token *x, void *S_)
{
    double (*S)[x->V] = S_, found[x->V];
    //> dplr-step
    for (int v = 0; v < x->V; v++) found[v] = 0;
    for (int i = 0; i < x->K; i++)
        for (int v = 0; v < x->V; v++) found[v] += S[i][v] * x->a[i];
    for (int i = 0; i < x->K; i++) {
        const double decay = exp(x->g[i]);
        for (int v = 0; v < x->V; v++)
            S[i][v] = decay * S[i][v] + x->b[i] * found[v] + x->k[i] * x->v[v];
    }
    //< dplr-step
}

/* With x = S^T a, which the token reads from the state:
 *   dx = dS^T b      db = dS x      dk = dS v      dv = dS^T k      da = S dx
 *   dg = exp(g) sum_v dS S          dS <- diag(exp g) dS + a dx^T */
static void adjoint(const struct family_token *x, const void *S_, void *dS_)
{
    const double (*S)[x->V] = S_;
    double (*dS)[x->V] = dS_, found[x->V], dfound[x->V];
    for (int v = 0; v < x->V; v++) found[v] = dfound[v] = 0;
    for (int i = 0; i < x->K; i++)
        for (int v = 0; v < x->V; v++) {
            found[v] += S[i][v] * x->a[i];
            dfound[v] += dS[i][v] * x->b[i];
        }
    for (int i = 0; i < x->K; i++) {
        const double decay = exp(x->g[i]);
        for (int v = 0; v < x->V; v++) {
            x->db[i] += dS[i][v] * found[v];
            x->dk[i] += dS[i][v] * x->v[v];
            x->dv[v] += dS[i][v] * x->k[i];
            x->da[i] += S[i][v] * dfound[v];
            dS[i][v] *= decay;
            x->dg[i] += dS[i][v] * S[i][v];
            dS[i][v] += x->a[i] * dfound[v];
        }
    }
}

/* Token i has two rows of the form (16_family.h). Row 2i adds b_i x_i^T to the state,
 * where x_i is S^T a_i. Row 2i+1 adds k_i v_i^T. The exponents of x_i contain G_{i-1}
 * instead of G_i, because a_i reads the state before token i's decay:
 *   Aab_ij = sum_p a_i b_j exp2(G_{i-1} - G_j), i > j;  Aak_ij has k_j instead of b_j
 *   x = (I - Aab)^-1 (exp2(G_{i-1}) a S + Aak v) = u - w S */
static void form(const struct family_chunk *x)
{
    //> dplr-form
    for (int i = 0; i < x->c; i++) {
        double *u = drow(x->u, 2 * i), *w = drow(x->w, 2 * i);
        family_gated(x, x->a, i, i - 1, w);
        for (int p = 0; p < x->K; p++)
            w[p] = -w[p];                              /* the form is u - w S */
        for (int j = 0; j < i; j++) {
            const double Aab = family_score(x, x->a, i, i - 1, x->b, j);
            const double Aak = family_score(x, x->a, i, i - 1, x->k, j);
            for (int v = 0; v < x->V; v++)
                u[v] += Aab * drow(x->u, 2 * j)[v] + Aak * row(x->v, j)[v];
            for (int p = 0; p < x->K; p++) w[p] += Aab * drow(x->w, 2 * j)[p];
        }
        for (int v = 0; v < x->V; v++)
            drow(x->u, 2 * i + 1)[v] = row(x->v, i)[v];
    }
    family_write(x, x->b, 0);
    family_write(x, x->k, 1);
    family_read(x);
    //< dplr-form
}

static double dot(int V, const double *x, const double *y)
{
    double s = 0;
    for (int v = 0; v < V; v++) s += x[v] * y[v];
    return s;
}

/* With z = (I - Aab)^-T dx, dx = even rows of dU, x = even rows of v_new:
 *   d(exp2(G_{i-1}) a) = z h^T     dAab_ij = z_i x_j     dAak_ij = z_i v_j
 *   dv_j = dU_{2j+1} + sum_{i>j} Aak_ij z_i */
static void form_back(const struct family_chunk *x)
{
    const double (*h)[x->V] = (void *)x->h;
    double (*z)[x->V] = x->z, d[x->K];
    //> dplr-back
    for (int i = 0; i < x->c; i++)
        for (int v = 0; v < x->V; v++) {
            z[i][v] = row(x->dU, 2 * i)[v];
            drow(x->v, i)[v] += row(x->dU, 2 * i + 1)[v];
        }
    for (int i = x->c - 1; i >= 0; i--)
        for (int j = 0; j < i; j++) {
            const double Aab = family_score(x, x->a, i, i - 1, x->b, j);
            const double Aak = family_score(x, x->a, i, i - 1, x->k, j);
            for (int v = 0; v < x->V; v++) {
                z[j][v] += Aab * z[i][v];
                drow(x->v, j)[v] += Aak * z[i][v];
            }
        }
    for (int i = 0; i < x->c; i++) {
        for (int p = 0; p < x->K; p++) d[p] = dot(x->V, z[i], h[p]);
        family_gated_back(x, d, x->a, i, i - 1);
        for (int j = 0; j < i; j++) {
            family_score_back(x, dot(x->V, z[i], row(x->v_new, 2 * j)), x->a, i, i - 1,
                              x->b, j);
            family_score_back(x, dot(x->V, z[i], row(x->v, j)), x->a, i, i - 1, x->k,
                              j);
        }
    }
    //< dplr-back
    family_write_back(x, x->b, 0);
    family_write_back(x, x->k, 1);
    family_read_back(x);
}

const struct family_model ref_dplr = { "dplr", 2, step, adjoint, form, form_back };
