/* 14_conv.c -- causal depthwise convolution and token shift, across any cuts.
 * Book: chapter 14.
 * Each rank computes its shard and receives rows of other shards by a halo exchange. */
#include "08_rank.h"
#include "moves.h"
#include "sigmoid.h"
#include <stdlib.h>
#include <string.h>

//> rows
/* A tensor x of the shard, one row of D numbers per token, and the halo rows before and
 * after the segments. x0 (may be NULL) contains the rows before each sequence. */
struct rows {
    const double *before, *x, *after, *x0;
    int D;
};

/* Ranges of tokens around segment s of sequence n. Token numbers are local to the
 * shard, as if all of sequence n were in the shard. Sequence n has tokens `first` ..
 * `end`-1. Rows of x begin at `start`, which is Wc - 1 tokens before `first` if there
 * is an x0, otherwise `first`. Tokens `low` .. `high`-1 form the run of adjacent
 * segments that includes s. Row t, first <= t < low, is row low_at + t of the halo
 * `before`. Row t >= high is row high_at + t of the halo `after`. */
struct around { int64_t start, first, end, low, high, low_at, high_at, n; };
//< rows

static struct around around(const struct kcp_conv *a, int s)
{
    const struct kcp_plan *p = a->plan;
    const struct kcp_context *x = &p->ctx[a->r];
    const struct kcp_segment *seg = p->seg + x->seg0, *g = &seg[s];
    const struct kcp_halo before = { .plan = p, .reach = a->Wc - 1 };
    const struct kcp_halo after = { .plan = p, .reach = a->Wc - 1, .backward = 1 };
    const int64_t to_local = x->cu[s] - g->begin;
    int i = s, j = s;
    while (i > 0 && seg[i].prev == x->seg0 + i - 1) i--;
    while (j + 1 < x->NS && seg[j].next == x->seg0 + j + 1) j++;
    struct around z = { .low = x->cu[i], .high = x->cu[j + 1], .n = g->n };
    z.first = p->cu_seqlens[g->n] + to_local;
    z.end = p->cu_seqlens[g->n + 1] + to_local;
    z.start = z.first - (a->x0 ? a->Wc - 1 : 0);
    z.low_at = kcp_moves->halo_at(&before, a->r, i + 1) - z.low;
    z.high_at = kcp_moves->halo_at(&after, a->r, j) - z.high;
    return z;
}

static const double *row(const struct rows *a, const struct around *z, int64_t t)
{
    if (a->x0 && t < z->first)
        return a->x0 + (z->n * (z->first - z->start) + t - z->start) * a->D;
    if (t < z->low) return a->before + (z->low_at + t) * a->D;
    return t < z->high ? a->x + t * a->D : a->after + (z->high_at + t) * a->D;
}

/* pre_t = bias + sum_{j<Wc} weight_j x_{t+j-Wc+1}, with x = 0 before row z.start. */
static void window(const struct kcp_conv *a, const struct rows *x, int s,
                   const double *w, double *pre)
{
    const int *cu = a->cu, D = a->D, Wc = a->Wc;
    const double *bias = a->bias;
    const struct around z = around(a, s);
    for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
        double *y = pre + t * D;
        for (int d = 0; d < D; d++) y[d] = bias ? bias[d] : 0;
        //> conv-window
        for (int j = 0; j < Wc; j++) {
            if (t + j - Wc + 1 < z.start) continue;
            const double *xj = row(x, &z, t + j - Wc + 1);
            for (int d = 0; d < D; d++) y[d] += w[d * Wc + j] * xj[d];
        }
        //< conv-window
    }
}

/* Writes xt: the last Wc - 1 rows of each sequence that ends on this rank. If the
 * sequence has fewer than Wc - 1 tokens, the first rows come from x0 (NULL: 0). */
static void last_rows(const struct kcp_conv *a, const struct rows *x)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    const int D = a->D, reach = a->Wc - 1;
    double *xt = a->xt;
    rank_pass(a, 0, a->x0, (int64_t)reach * D, xt);
    for (int s = 0; s < a->NS; s++) {
        const struct around z = around(a, s);
        for (int k = 0; k < reach && seg[s].last; k++) {
            const int64_t t = z.end - reach + k;
            for (int d = 0; d < D; d++)
                xt[(z.n * reach + k) * D + d] = t < z.start ? 0 : row(x, &z, t)[d];
        }
    }
}

/* y_t = act(pre_t) */
static int forward(const struct kcp_conv *a, const struct rows *x, const double *w)
{
    double *y = a->y;
    for (int s = 0; s < a->NS; s++) window(a, x, s, w, y);
    if (a->act == KCP_ACT_SILU)
        for (int64_t i = 0; i < a->T * a->D; i++) y[i] *= sigmoid(y[i]);
    if (a->xt) last_rows(a, x);
    return KCP_OK;
}

/* dpre_t = dy_t act'(pre_t); SiLU'(x) = sigma(x) (1 + x (1 - sigma(x))). */
static void through_act(const struct kcp_conv *a, const struct rows *x, const double *w,
                        double *dpre)
{
    const double *dy = a->dy;
    for (int s = 0; s < a->NS; s++) window(a, x, s, w, dpre);
    for (int64_t i = 0; i < a->T * a->D; i++) {
        const double p = dpre[i], sg = sigmoid(p);
        dpre[i] = a->act == KCP_ACT_SILU ? dy[i] * sg * (1 + p * (1 - sg)) : dy[i];
    }
}

/* dx_t = sum_{i<Wc} weight_{Wc-1-i} dpre_{t+i}, with dpre = 0 past the sequence's end,
 * plus dxt for the last Wc - 1 rows. If t is a row of x0, terms before the first token
 * are omitted, because rows of x0 have no dpre. The owner of x_t adds all terms in the
 * order of i. Terms of later ranks come from the halo. */
static void into_row(const struct kcp_conv *a, const struct rows *dpre,
                     const struct around *z, const double *w, int64_t t, double *dx)
{
    const int D = a->D, Wc = a->Wc;
    const int64_t k = t - (z->end - (Wc - 1));
    const double *dxt = a->dxt;
    for (int d = 0; d < D; d++)
        dx[d] = dxt && k >= 0 ? dxt[(z->n * (Wc - 1) + k) * D + d] : 0;
    const int from = t < z->first ? (int)(z->first - t) : 0;
    //> conv-adjoint
    for (int i = from; i < Wc && t + i < z->end; i++) {
        const double *dp = row(dpre, z, t + i);
        for (int d = 0; d < D; d++) dx[d] += w[d * Wc + Wc - 1 - i] * dp[d];
    }
    //< conv-adjoint
}

/* Computes dx of a segment, and dx0 if the sequence starts in the segment. */
static void into_x(const struct kcp_conv *a, const struct rows *dpre, int s,
                   const double *w)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    const int *cu = a->cu, D = a->D, reach = a->Wc - 1;
    const struct around z = around(a, s);
    for (int64_t t = cu[s]; t < cu[s + 1]; t++)
        into_row(a, dpre, &z, w, t, (double *)a->dx + t * D);
    for (int k = 0; k < reach && a->dx0 && seg[s].first; k++)
        into_row(a, dpre, &z, w, z.first - reach + k,
                 (double *)a->dx0 + (z.n * reach + k) * D);
}

/* dweight_j = sum_t dpre_t x_{t+j-Wc+1}; dbias = sum_t dpre_t. Computes one row of sums
 * per segment, then adds the rows of all ranks in token order. */
static int into_weight(const struct kcp_conv *a, const struct rows *x,
                       const double *dpre)
{
    const int *cu = a->cu, D = a->D, Wc = a->Wc;
    const int64_t n = (int64_t)D * (Wc + 1);
    double *part = calloc((a->NS + 1) * n, sizeof *part), *sum = part + a->NS * n;
    if (!part) return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++) {
        double *dw = part + s * n, *db = dw + (int64_t)D * Wc;
        const struct around z = around(a, s);
        for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
            const double *dp = dpre + t * D;
            for (int d = 0; d < D; d++) db[d] += dp[d];
            for (int j = 0; j < Wc; j++) {
                if (t + j - Wc + 1 < z.start) continue;
                const double *xj = row(x, &z, t + j - Wc + 1);
                for (int d = 0; d < D; d++) dw[d * Wc + j] += dp[d] * xj[d];
            }
        }
    }
    const int status = kcp_moves->parameter_sum((const struct kcp_call *)a, part, n,
                                                sum);
    if (!status && a->dweight) memcpy(a->dweight, sum, sizeof *sum * D * Wc);
    if (!status && a->dbias) memcpy(a->dbias, sum + (int64_t)D * Wc, sizeof *sum * D);
    free(part);
    return status;
}

/* Computes the backward pass. The halo receives dpre of the rows after each segment. */
static int backward(const struct kcp_conv *a, const struct rows *x, const double *w)
{
    const struct kcp_halo h = { .plan = a->plan, .comm = a->comm, .reach = a->Wc - 1,
                                .backward = 1, .row_bytes = sizeof(double) * a->D };
    const int64_t na = kcp_moves->halo_rows(&h, a->r);
    double *dpre = malloc(sizeof *dpre * ((a->T + na) * a->D + 1));
    if (!dpre) return KCP_NO_MEMORY;
    const struct rows dp = { NULL, dpre, dpre + a->T * a->D, NULL, a->D };

    through_act(a, x, w, dpre);
    int status = kcp_moves->halo_run(&h, dpre, dpre + a->T * a->D);
    for (int s = 0; !status && s < a->NS; s++) into_x(a, &dp, s, w);
    if (!status && a->dx0) rank_pass(a, 1, a->dxt, h.reach * a->D, a->dx0);
    if (!status && (a->dweight || a->dbias)) status = into_weight(a, x, dpre);
    free(dpre);
    return status;
}

/* Copies `own`, which is x0 (backward: dxt), to a new array *all. Then receives from
 * other ranks those rows of *all that this rank's convolution reads. The caller frees
 * *all, which is NULL if `own` is NULL or empty. */
static int bring(const struct kcp_conv *a, const void *own, int backward, double **all)
{
    const struct kcp_halo h = { .plan = a->plan, .comm = a->comm, .reach = a->Wc - 1,
                                .backward = backward,
                                .row_bytes = sizeof(double) * a->D };
    const size_t bytes = (size_t)a->N * (size_t)h.reach * h.row_bytes;
    *all = NULL;
    if (!own || !bytes) return KCP_OK;
    *all = malloc(bytes);
    if (!*all) return KCP_NO_MEMORY;
    memcpy(*all, own, bytes);
    return kcp_moves->halo_states(&h, *all);
}

/* Runs the pass a->pass. Both passes receive rows of earlier ranks in `before`. */
static int walk(struct kcp_conv *a, const double *w, double *before)
{
    const struct kcp_halo h = { .plan = a->plan, .comm = a->comm, .reach = a->Wc - 1,
                                .row_bytes = sizeof(double) * a->D };
    double *x0 = NULL, *dxt = NULL;
    int status = bring(a, a->x0, 0, &x0);
    if (!status && a->pass == KCP_BACKWARD) status = bring(a, a->dxt, 1, &dxt);
    if (!status) status = kcp_moves->halo_run(&h, a->x, before);
    a->x0 = x0;
    a->dxt = dxt;
    const struct rows x = { before, a->x, NULL, x0, a->D };
    if (!status)
        status = a->pass == KCP_FORWARD ? forward(a, &x, w) : backward(a, &x, w);
    free(x0);
    free(dxt);
    return status;
}

/* The token shift x_{t-1} - x_t is a convolution of width 2 with weights 1 and -1,
 * without bias or activation. */
int ref_conv(struct kcp_conv *a)
{
    const int refused = kcp_begin("14_conv", KCP_HOST, a, NULL);
    if (refused) return refused;
    struct kcp_conv b = *a;
    if (a->shift) {
        b.Wc = 2; b.act = KCP_ACT_NONE;
        b.bias = NULL; b.dweight = NULL; b.dbias = NULL;
    }
    const struct kcp_halo h = { .plan = b.plan, .reach = b.Wc - 1 };
    double *before = malloc(sizeof *before * (kcp_moves->halo_rows(&h, b.r) * b.D + 1));
    double *w = malloc(sizeof *w * b.D * b.Wc);
    int status = before && w ? KCP_OK : KCP_NO_MEMORY;
    for (int64_t i = 0; !status && b.T && i < (int64_t)b.D * b.Wc; i++)
        w[i] = b.shift ? 1 - 2 * (i % 2) : ((const double *)b.weight)[i];
    if (!status) status = walk(&b, w, before);
    free(before);
    free(w);
    return status;
}
