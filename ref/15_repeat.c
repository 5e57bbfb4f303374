/* 15_repeat.c -- copies an earlier output to each dropped token, and adds the gradient
 * of each copy to the gradient of the earlier output.
 * Book: chapter 15.
 *
 * Every rank gathers one row per segment. In forward this row is the segment's last
 * output, which later segments may repeat. In backward the row is the sum of the
 * gradients of the dropped tokens at the segment's start. This sum is part of the
 * gradient of an earlier segment's output. Backward adds rows in a fixed order, so the
 * sums do not depend on which rank holds a segment. */
#include "15_scan.h"

#include <string.h>

/* Returns the length of a row to gather: HV * V numbers and a flag. The flag is 1 if a
 * search over segments stops at this row. */
static int64_t width(const struct spike_rank *x)
{
    return (int64_t)x->a->HV * x->a->V + 1;
}

static int64_t rows_per_rank(const struct spike_rank *x)
{
    int rows = 1;
    for (int r = 0; r < x->plan->R; r++)
        rows = x->plan->ctx[r].NS > rows ? x->plan->ctx[r].NS : rows;
    return rows;
}

/* Gathers the rows of all ranks. Sends nothing if `drop` is NULL or no sequence crosses
 * a cut, because then no output is repeated on another rank. */
static int gather(struct spike_rank *x)
{
    const size_t bytes = sizeof(double) * rows_per_rank(x) * width(x);
    if (x->a->drop && x->plan->crossing && x->plan->R > 1)
        return x->a->comm->all_gather(x->a->comm, x->rows, x->all, bytes, x->a->stream);
    memcpy(x->all + x->a->r * (int64_t)(bytes / sizeof(double)), x->rows, bytes);
    return KCP_OK;
}

/* Returns segment j's row in x->all, the rows gathered from all ranks. */
static const double *row_of(const struct spike_rank *x, int64_t j)
{
    const int rank = x->plan->seg[j].rank;
    const int64_t s = j - x->plan->ctx[rank].seg0;
    return x->all + (rank * rows_per_rank(x) + s) * width(x);
}

static void add(const double *x, int64_t n, double *y)
{
    for (int64_t e = 0; e < n && x; e++) y[e] += x[e];
}

static const double *sequence(const void *rows, int n, int64_t numbers)
{
    return rows ? (const double *)rows + n * numbers : NULL;
}

/* Sets the row of segment s to the last output of s, with flag 1. If all tokens of s
 * are dropped, sets the row to o0 with flag 1 for a segment that starts its sequence,
 * and to 0 with flag 0 for any other segment. */
static void last_of(struct spike_rank *x, int s)
{
    const struct kcp_scan *a = x->a;
    const int64_t row = width(x) - 1;
    double *mine = x->rows + s * (row + 1);
    int64_t t = a->cu[s + 1] - 1;
    while (t >= a->cu[s] && spike_dropped(a, t)) t--;
    const int any = t >= a->cu[s];
    memset(mine, 0, sizeof *mine * row);
    if (any) add((const double *)a->o + t * row, row, mine);
    else if (x->seg[s].first) add(sequence(a->o0, x->seg[s].n, row), row, mine);
    mine[row] = any || x->seg[s].first;
}

/* In forward, sets o_t of every dropped token t to the output of the last token before
 * t that is not dropped, or to o0 if there is none. Writes ot. */
int scan_repeat(struct spike_rank *x)
{
    const struct kcp_scan *a = x->a;
    const int64_t row = width(x) - 1;
    const int *cu = a->cu;
    for (int s = 0; s < a->NS; s++) last_of(x, s);
    const int status = gather(x);
    for (int s = 0; s < a->NS && !status; s++) {
        int j = x->seg[s].prev;
        while (a->drop && !x->seg[s].first && !row_of(x, j)[row])
            j = x->plan->seg[j].prev;
        const double *o0 = sequence(a->o0, x->seg[s].n, row);
        const double *last = x->seg[s].first ? o0 : row_of(x, j);
        for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
            double *o = (double *)a->o + t * row;
            if (spike_dropped(a, t)) {
                memset(o, 0, sizeof *o * row);
                add(last, row, o);
            }
            last = o;
        }
        if (x->seg[s].last)
            memcpy((double *)a->ot + x->seg[s].n * row, last, sizeof *last * row);
    }
    return status;
}

/* Adds do_ of tokens t1-1 .. t0, in this order, to `sum`. At each token that is not
 * dropped, copies `sum` to the token's row of `to` [T,HV,V] and sets `sum` to 0. `to`
 * may be NULL if all these tokens are dropped. */
static int64_t collect(const struct spike_rank *x, int64_t t0, int64_t t1, double *sum,
                       double *to)
{
    const struct kcp_scan *a = x->a;
    const int64_t row = width(x) - 1;
    for (int64_t t = t1 - 1; t >= t0; t--) {
        add((const double *)a->do_ + t * row, row, sum);
        if (spike_dropped(a, t)) continue;
        memcpy(to + t * row, sum, sizeof *sum * row);
        memset(sum, 0, sizeof *sum * row);
    }
    return t0;
}

/* Sets the row of segment s to the sum of do_ over the dropped tokens at its start,
 * and of dot if the sequence ends with these tokens. The flag is 1 if a token of s is
 * not dropped or the sequence ends in s: tokens after s repeat no output before s. */
static void first_of(struct spike_rank *x, int s)
{
    const struct kcp_scan *a = x->a;
    const int64_t row = width(x) - 1, t0 = a->cu[s];
    int64_t t = t0;
    double *mine = x->rows + s * (row + 1);
    while (t < a->cu[s + 1] && spike_dropped(a, t)) t++;
    const int all = t == a->cu[s + 1];
    memset(mine, 0, sizeof *mine * row);
    if (all && x->seg[s].last) add(sequence(a->dot, x->seg[s].n, row), row, mine);
    collect(x, t0, t, mine, NULL);
    mine[row] = !all || x->seg[s].last;
}

/* In backward, sets each token's row of x->dO to the sum of do_ over the token and its
 * repeats, plus dot for the last output. Rows of dropped tokens stay 0. Writes do0. */
int scan_spread(struct spike_rank *x)
{
    const struct kcp_scan *a = x->a;
    const int64_t row = width(x) - 1;
    const int *cu = a->cu;
    double *sum = x->rows + rows_per_rank(x) * width(x);
    for (int s = 0; s < a->NS; s++) first_of(x, s);
    const int status = gather(x);
    for (int s = 0; s < a->NS && !status; s++) {
        const int mine = x->plan->ctx[a->r].seg0 + s;
        int j = x->seg[s].next;
        while (a->drop && !x->seg[s].last && !row_of(x, j)[row])
            j = x->plan->seg[j].next;
        memset(sum, 0, sizeof *sum * row);
        if (x->seg[s].last) add(sequence(a->dot, x->seg[s].n, row), row, sum);
        for (; !x->seg[s].last && j != mine; j = x->plan->seg[j].prev)
            add(row_of(x, j), row, sum);
        collect(x, cu[s], cu[s + 1], sum, x->dO);
        if (x->seg[s].first)
            memcpy((double *)a->do0 + x->seg[s].n * row, sum, sizeof *sum * row);
    }
    return status;
}
