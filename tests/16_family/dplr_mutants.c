/* dplr_mutants.c -- computes DPLR with one error per flag, and correctly without flag.
 * Book: chapter 16. */
#include "mutants.h"

enum {
    AFTER_DECAY = SHARED, NO_AAK = 2 * SHARED, NO_AAB = 4 * SHARED, W_SIGN = 8 * SHARED,
    ONE_WRITE = 16 * SHARED, NO_DV = 32 * SHARED, NO_SOLVE = 64 * SHARED,
    DA_AFTER = 128 * SHARED, DA_LOCAL = 256 * SHARED, SWAPPED = 512 * SHARED
};

/* Vector a of token i multiplies the state after token i - 1. Returns the row of G that
 * decays this state: i - 1 (-1: no decay), or i if flag `wrong` is set and i > 0. */
static int at(int i, int wrong)
{
    return flags & wrong && i ? i : i - 1;
}

static void form(const struct family_chunk *x)
{
    const struct family_rows a = flags & SWAPPED ? x->b : x->a;
    for (int i = 0; i < x->c; i++) {
        double *u = drow(x->u, 2 * i), *w = drow(x->w, 2 * i);
        family_gated(x, a, i, at(i, AFTER_DECAY), w);
        for (int p = 0; p < x->K; p++) w[p] = flags & W_SIGN ? w[p] : -w[p];
        for (int j = 0; j < i; j++) {
            const int e = at(i, AFTER_DECAY);
            const double Aab = flags & NO_AAB ? 0 : family_score(x, a, i, e, x->b, j);
            const double Aak = flags & NO_AAK ? 0 : family_score(x, a, i, e, x->k, j);
            for (int v = 0; v < x->V; v++)
                u[v] += Aab * drow(x->u, 2 * j)[v] + Aak * row(x->v, j)[v];
            for (int p = 0; p < x->K; p++) w[p] += Aab * drow(x->w, 2 * j)[p];
        }
        for (int v = 0; v < x->V; v++)
            drow(x->u, 2 * i + 1)[v] = row(x->v, i)[v];
    }
    if (!(flags & ONE_WRITE)) write_(x, flags & SWAPPED ? x->a : x->b, 0);
    write_(x, x->k, 1);
    read_(x);
}

static double dot(int V, const double *x, const double *y)
{
    double s = 0;
    for (int v = 0; v < V; v++) s += x[v] * y[v];
    return s;
}

static void through_system(const struct family_chunk *x, double (*z)[x->V])
{
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
                z[j][v] += flags & NO_SOLVE ? 0 : Aab * z[i][v];
                drow(x->v, j)[v] += flags & NO_DV ? 0 : Aak * z[i][v];
            }
        }
}

static void form_back(const struct family_chunk *x)
{
    const double (*h)[x->V] = (void *)x->h;
    double (*z)[x->V] = (void *)x->z, d[x->K];
    through_system(x, z);
    for (int i = 0; i < x->c; i++) {
        for (int p = 0; p < x->K; p++) d[p] = dot(x->V, z[i], h[p]);
        family_gated_back(x, d, x->a, i, at(i, DA_AFTER));
        for (int j = 0; j < i && !(flags & DA_LOCAL); j++) {
            family_score_back(x, dot(x->V, z[i], row(x->v_new, 2 * j)), x->a, i, i - 1,
                              x->b, j);
            family_score_back(x, dot(x->V, z[i], row(x->v, j)), x->a, i, i - 1, x->k,
                              j);
        }
    }
    write_back(x, x->b, 0);
    write_back(x, x->k, 1);
    family_read_back(x);
}

static const struct family_model model = { "dplr", 2, NULL, NULL, form, form_back };

#define DPLR(ident, flag, why) WRONG(KCP_DPLR, model, ident, flag, why)
DPLR(twin_dplr, 0, "correct: runs DPLR")
DPLR(mutant_dplr_after_decay, AFTER_DECAY, "a^T S reads S after decay, not before")
DPLR(mutant_dplr_no_Aak, NO_AAK, "a^T S omits k v of earlier tokens of the chunk")
DPLR(mutant_dplr_no_Aab, NO_AAB, "a^T S omits b u of earlier tokens of the chunk")
DPLR(mutant_dplr_w_sign, W_SIGN, "uses a wrong sign of w")
DPLR(mutant_dplr_one_write, ONE_WRITE, "does not write b u")
DPLR(mutant_dplr_swapped, SWAPPED, "swaps a and b")
DPLR(mutant_dplr_undecayed, WRITE_UNDECAYED, "adds k, b to the state, not kg, bg")
DPLR(mutant_dplr_strict, READ_STRICT, "the output of a token omits its own k v and b u")
DPLR(mutant_dplr_no_dv, NO_DV, "dv omits later tokens' terms with vector a")
DPLR(mutant_dplr_no_solve, NO_SOLVE, "backward omits the transposed solve")
DPLR(mutant_dplr_da_after, DA_AFTER, "da uses G_i, not G_{i-1}")
DPLR(mutant_dplr_da_local, DA_LOCAL, "da uses only the state at the chunk's start")
