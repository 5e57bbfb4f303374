/* find.c -- compares two runs, and computes how much of a state remains after decay.
 * Book: chapter 05. */
#include "text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tensors with one row per token, which are compared per rank and head. */
static const struct { enum activation t; int heads; } token[] = {
    { Q_, HEADS }, { K_, HEADS }, { V_, VALUE_HEADS }, { O, VALUE_HEADS },
    { DQ, HEADS }, { DK, HEADS }, { DV, VALUE_HEADS }, { DG, VALUE_HEADS },
    { DB, VALUE_HEADS }, { DX, 1 },
};
enum { TOKENS = 10 };                  /* CHECKED = TOKENS + PARAMS + 2 */
const char *const checked_name[CHECKED] = {
    "q", "k", "v", "o", "dq", "dk", "dv", "dg", "dbeta", "dx", "d embedding", "d Wq",
    "d Wk", "d Wv", "d Wg", "d Wb", "d Wo", "d U", "d conv q", "d conv k", "d conv v",
    "d A_log", "d dt_bias", "d b", "ht", "loss",
};

/* Adds (got - want)^2 to *diff and want^2 to *size over rows t0..t1, columns c0..c1. */
static void sum_squares(const double *got, const double *want, int row, int64_t t0,
                        int64_t t1, int c0, int c1, double *diff, double *size)
{
    for (int64_t t = t0; t < t1; t++)
        for (int c = c0; c < c1; c++) {
            const double w = want[t * row + c], d = got[t * row + c] - w;
            *diff += d * d;
            *size += w * w;
        }
}

static double ratio(double diff, double size)
{
    const double e = diff == 0 ? 0 : sqrt(diff / size);
    return isfinite(e) ? e : INFINITY;
}

/* Returns the largest relative error over ranks and heads. On a rank with fewer than 64
 * tokens, the error is relative to the RMS of the head over all tokens. */
static double token_error(const struct run *got, const struct run *want, int i)
{
    const struct kcp_plan *p = got->plan;
    const int row = tensor_row[token[i].t], heads = token[i].heads;
    const double *x = got->tensor[token[i].t], *y = want->tensor[token[i].t];
    double worst = 0;
    for (int n = 0; n < heads; n++) {
        const int c0 = n * (row / heads), c1 = c0 + row / heads;
        double diff = 0, all = 0;
        sum_squares(x, y, row, 0, p->T, c0, c1, &diff, &all);
        for (int r = 0; r < p->R; r++) {
            const int64_t t0 = p->cuts[r], t1 = p->cuts[r + 1];
            double d = 0, size = 0;
            sum_squares(x, y, row, t0, t1, c0, c1, &d, &size);
            if (t1 - t0 < 64) size = all * (double)(t1 - t0) / (double)p->T;
            worst = fmax(worst, ratio(d, size));
        }
    }
    return worst;
}

static double flat_error(const double *got, const double *want, int64_t n)
{
    double diff = 0, size = 0;
    sum_squares(got, want, (int)n, 0, 1, 0, (int)n, &diff, &size);
    return ratio(diff, size);
}

double compare_runs(const struct run *got, const struct run *want, double *err)
{
    double worst = 0, e;
    const int64_t states = (int64_t)got->text->N * VALUE_HEADS * KEY * VALUE;
    for (int i = 0; i < CHECKED; i++) {
        const int p = i - TOKENS;
        if (i < TOKENS) e = token_error(got, want, i);
        else if (p < PARAMS)
            e = flat_error(got->grad + param_at(p), want->grad + param_at(p),
                           param_at(p + 1) - param_at(p));
        else if (p == PARAMS) e = flat_error(got->ht, want->ht, states);
        else e = flat_error(&got->loss, &want->loss, 1);
        worst = fmax(worst, e);
        if (err) err[i] = e;
    }
    return worst;
}

/* ---- the fraction of a state that a map M keeps: |M|_F / sqrt(K) */

static double norm(const double *M)
{
    double s = 0;
    for (int i = 0; i < KEY * KEY; i++) s += M[i] * M[i];
    return sqrt(s / KEY);
}

/* P <- M P */
static void compose(const double *M, double *P)
{
    double next[KEY * KEY] = { 0 };
    for (int i = 0; i < KEY; i++)
        for (int p = 0; p < KEY; p++)
            for (int j = 0; j < KEY; j++)
                next[i * KEY + j] += M[i * KEY + p] * P[p * KEY + j];
    memcpy(P, next, sizeof next);
}

/* Returns the fraction of the state after segment `first` that remains after segment
 * `last`, as RMS over heads. Composes the maps of segments first + 1 to last. */
static double share(const struct run *run, int first, int last)
{
    double s = 0;
    for (int n = 0; n < VALUE_HEADS; n++) {
        double P[KEY * KEY] = { 0 };
        for (int i = 0; i < KEY; i++) P[i * KEY + i] = 1;
        for (int j = first + 1; j <= last; j++)
            compose(run->M + ((int64_t)j * VALUE_HEADS + n) * KEY * KEY, P);
        s += norm(P) * norm(P) / VALUE_HEADS;
    }
    return sqrt(s);
}

/* Computes f->alive per segment, and f->far for the sequence with the most segments. */
int measure_alive(struct finding *f)
{
    const struct kcp_plan *p = f->many->plan;
    int most = 1;
    f->far_seq = f->far_rank = -1;
    f->alive = malloc(sizeof *f->alive * (p->S + 1));
    if (!f->alive) return KCP_NO_MEMORY;
    for (int j = 0, first = 0; j < p->S; j++) {
        const double *M = f->many->M + (int64_t)j * VALUE_HEADS * KEY * KEY;
        for (int n = 0; n < VALUE_HEADS; n++)
            f->alive[j][n] = norm(M + n * KEY * KEY);
        first = p->seg[j].first ? j : first;
        if (p->seg[j].last && j - first + 1 > most) {
            most = j - first + 1;
            f->far_seq = p->seg[j].n;
            f->far_rank = p->seg[j].rank;
            f->far = share(f->many, first, j);
        }
    }
    return KCP_OK;
}
