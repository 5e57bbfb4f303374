/* gdn2_mutants.c -- computes GDN-2 with one error per flag, and correctly without flag.
 * Book: chapter 16. */
#include "mutants.h"

enum {
    NO_OMEGA = SHARED, NO_B = 2 * SHARED, B_WRITES = 4 * SHARED, NO_SYSTEM = 8 * SHARED,
    W_UNDECAYED = 16 * SHARED, OMEGA_OF_DELTA = 32 * SHARED, NO_SOLVE = 64 * SHARED,
    B_OUTSIDE = 128 * SHARED, DB_DIRECT = 256 * SHARED, ONE_SIGN = 512 * SHARED
};

static void system_of(const struct family_chunk *x)
{
    double (*L)[x->c] = (void *)x->L, (*bk)[x->K] = (void *)x->bk.x;
    for (int i = 0; i < x->c; i++) {
        for (int p = 0; p < x->K; p++)
            bk[i][p] = (flags & NO_B ? 1 : row(x->b, i)[p]) * row(x->k, i)[p];
        for (int j = 0; j < i; j++)
            L[i][j] = flags & NO_SYSTEM ? 0 : family_score(x, x->bk, i, i, x->k, j);
    }
}

static void form(const struct family_chunk *x)
{
    const double (*L)[x->c] = (void *)x->L;
    system_of(x);
    for (int i = 0; i < x->c; i++) {
        double *u = drow(x->u, i), *w = drow(x->w, i);
        for (int v = 0; v < x->V; v++)
            u[v] = (flags & NO_OMEGA ? 1 : row(x->omega, i)[v]) * row(x->v, i)[v];
        family_gated(x, x->bk, i, flags & W_UNDECAYED ? -1 : i, w);
        for (int j = 0; j < i; j++) {
            for (int v = 0; v < x->V; v++) u[v] -= L[i][j] * drow(x->u, j)[v];
            for (int p = 0; p < x->K; p++) w[p] -= L[i][j] * drow(x->w, j)[p];
        }
        for (int v = 0; v < x->V && flags & OMEGA_OF_DELTA; v++)
            u[v] *= row(x->omega, i)[v];
    }
    write_(x, flags & B_WRITES ? x->bk : x->k, 0);
    read_(x);
}

static void through_system(const struct family_chunk *x, double (*z)[x->V])
{
    const double (*L)[x->c] = (void *)x->L, (*h)[x->V] = (void *)x->h;
    double d[x->K];
    for (int i = 0; i < x->c; i++)
        for (int v = 0; v < x->V; v++) z[i][v] = row(x->dU, i)[v];
    for (int i = x->c - 1; i >= 0 && !(flags & NO_SOLVE); i--)
        for (int j = 0; j < i; j++)
            for (int v = 0; v < x->V; v++) z[j][v] -= L[i][j] * z[i][v];
    for (int i = 0; i < x->c; i++) {
        for (int p = 0; p < x->K; p++) {
            d[p] = 0;
            for (int v = 0; v < x->V; v++)
                d[p] += (flags & ONE_SIGN ? 1 : -1) * z[i][v] * h[p][v];
        }
        family_gated_back(x, d, x->bk, i, i);
        for (int j = 0; j < i && !(flags & DB_DIRECT); j++) {
            double dL = 0;
            for (int v = 0; v < x->V; v++) dL -= z[i][v] * row(x->v_new, j)[v];
            family_score_back(x, dL, x->bk, i, i, x->k, j);
        }
    }
}

static void form_back(const struct family_chunk *x)
{
    double (*z)[x->V] = (void *)x->z;
    system_of(x);
    through_system(x, z);
    for (int i = 0; i < x->c; i++) {
        for (int v = 0; v < x->V; v++) {
            drow(x->v, i)[v] += row(x->omega, i)[v] * z[i][v];
            drow(x->omega, i)[v] += row(x->v, i)[v] * z[i][v];
        }
        for (int p = 0; p < x->K; p++) {
            drow(x->b, i)[p] += row(x->k, i)[p] * drow(x->bk, i)[p];
            drow(x->k, i)[p] += (flags & B_OUTSIDE ? 1 : row(x->b, i)[p]) *
                                drow(x->bk, i)[p];
        }
    }
    write_back(x, x->k, 0);
    family_read_back(x);
}

static const struct family_model model = { "gdn2", 1, NULL, NULL, form, form_back };

#define GDN2(ident, flag, why) WRONG(KCP_GDN2, model, ident, flag, why)
GDN2(twin_gdn2, 0, "correct: runs GDN-2")
GDN2(mutant_gdn2_no_omega, NO_OMEGA, "writes v, not omega v")
GDN2(mutant_gdn2_no_b, NO_B, "erases along k, not b k")
GDN2(mutant_gdn2_b_writes, B_WRITES, "writes along b k")
GDN2(mutant_gdn2_no_system, NO_SYSTEM, "takes L as 0, so earlier tokens are ignored")
GDN2(mutant_gdn2_undecayed, W_UNDECAYED,
     "errata 1: the delta rule uses the undecayed state")
GDN2(mutant_gdn2_omega_late, OMEGA_OF_DELTA, "omega scales v - S^T k, not v only")
GDN2(mutant_gdn2_no_solve, NO_SOLVE, "backward omits the transposed solve")
GDN2(mutant_gdn2_b_outside, B_OUTSIDE, "the gradient of b k gives dk without factor b")
GDN2(mutant_gdn2_db_direct, DB_DIRECT, "omits the gradient of L")
GDN2(mutant_gdn2_sign, ONE_SIGN, "the gradient of w has the wrong sign")
