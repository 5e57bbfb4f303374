/* 16_form.c -- functions, and their adjoints, that several models' forms share.
 * Book: chapter 16.
 *
 * The exponent of a pair of tokens is <= 0, because no gate is positive. Gradients of
 * G that cancel exactly are omitted, as in chapter 10. */
#include "16_family.h"

#include <math.h>
#include <string.h>

/* Returns token i's last row of the form, in which the query reads the state. */
static int last_row(const struct family_chunk *x, int i)
{
    return (i + 1) * x->rows - 1;
}

double family_score(const struct family_chunk *x, struct family_rows y, int i, int e,
                    struct family_rows z, int j)
{
    const double *yi = row(y, i), *zj = row(z, j);
    const double *Ge = row(x->G, e), *Gj = row(x->G, j);
    double s = 0;
    for (int p = 0; p < x->K; p++)
        s += yi[p] * zj[p] * (e == j ? 1 : exp2(Ge[p] - Gj[p]));
    return s;
}

void family_score_back(const struct family_chunk *x, double dA, struct family_rows y,
                       int i, int e, struct family_rows z, int j)
{
    const double *yi = row(y, i), *zj = row(z, j);
    const double *Ge = row(x->G, e), *Gj = row(x->G, j);
    for (int p = 0; p < x->K; p++) {
        const double D = dA * (e == j ? 1 : exp2(Ge[p] - Gj[p]));
        drow(y, i)[p] += D * zj[p];
        drow(z, j)[p] += D * yi[p];
        if (e != j) {
            drow(x->G, e)[p] += D * yi[p] * zj[p];
            drow(x->G, j)[p] -= D * yi[p] * zj[p];
        }
    }
}

/* If e = -1, G_e is 0, the value before the chunk's first token. */
void family_gated(const struct family_chunk *x, struct family_rows y, int i, int e,
                  double *gated)
{
    for (int p = 0; p < x->K; p++)
        gated[p] = (e < 0 ? 1 : exp2(row(x->G, e)[p])) * row(y, i)[p];
}

void family_gated_back(const struct family_chunk *x, const double *d,
                       struct family_rows y, int i, int e)
{
    for (int p = 0; p < x->K; p++) {
        const double s = (e < 0 ? 1 : exp2(row(x->G, e)[p])) * d[p];
        drow(y, i)[p] += s;
        if (e >= 0) drow(x->G, e)[p] += s * row(y, i)[p];
    }
}

/* kg = exp2(G_last - G) k       Aqk_ij = scale sum_p q_i k_j exp2(G_i - G_j), i >= j */
void family_write(const struct family_chunk *x, struct family_rows k, int r)
{
    const double *G_last = row(x->G, x->c - 1);
    //> write
    for (int j = 0; j < x->c; j++) {
        const int e = j * x->rows + r;
        for (int p = 0; p < x->K; p++)
            drow(x->kg, e)[p] = exp2(G_last[p] - row(x->G, j)[p]) * row(k, j)[p];
        for (int i = j; i < x->c; i++)
            drow(x->Aqk, last_row(x, i))[e] =
                x->scale * family_score(x, x->q, i, i, k, j);
    }
    //< write
}

/* dkg = v_new dS^T. dAqk from stage 09 includes the factor `scale`, so dAqk is the
 * gradient of the unscaled score. */
void family_write_back(const struct family_chunk *x, struct family_rows k, int r)
{
    const double *G_last = row(x->G, x->c - 1);
    double *dG_last = drow(x->G, x->c - 1);
    for (int j = 0; j < x->c; j++) {
        const int e = j * x->rows + r, last = j == x->c - 1;
        for (int p = 0; p < x->K; p++) {
            double s = 0;
            for (int v = 0; v < x->V; v++)
                s += row(x->v_new, e)[v] * x->dh[p * x->V + v];
            s *= exp2(G_last[p] - row(x->G, j)[p]);
            drow(k, j)[p] += s;
            drow(x->G, j)[p] -= last ? 0 : s * row(k, j)[p];
            dG_last[p] += last ? 0 : s * row(k, j)[p];
        }
        for (int i = j; i < x->c; i++)
            family_score_back(x, row(x->dAqk, last_row(x, i))[e], x->q, i, i, k, j);
    }
}

/* qg = exp2(G) q        dq = scale exp2(G) (dO h^T) */
void family_read(const struct family_chunk *x)
{
    for (int i = 0; i < x->c; i++)
        family_gated(x, x->q, i, i, drow(x->qg, last_row(x, i)));
}

void family_read_back(const struct family_chunk *x)
{
    double dqg[x->K];
    for (int i = 0; i < x->c; i++) {
        for (int p = 0; p < x->K; p++) {
            dqg[p] = 0;
            for (int v = 0; v < x->V; v++)
                dqg[p] += x->scale * row(x->dO, i)[v] * x->h[p * x->V + v];
        }
        family_gated_back(x, dqg, x->q, i, i);
    }
}
