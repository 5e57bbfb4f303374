/* 14_conv.c -- causal depthwise convolution and token shift, across any cuts.
 *
 * Book: chapter 14.  Checked by: tests/14_conv/checks.c.  Next: ref/15_scan.c.
 * One rank's program: its shard, its plan, and the rows that lie across its cuts.
 */
#include "checked.h"
#include "ref.h"
#include "sigmoid.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A token tensor around the shard: before[], x[], after[]. t is local: below 0 and from
 * T on it is a row of a halo. */
struct rows {
    const double *before, *x, *after;
    int64_t nb, T;
    int D;
};

static const double *row(const struct rows *a, int64_t t)
{
    if (t < 0)
        return a->before + (a->nb + t) * a->D;
    return t < a->T ? a->x + t * a->D : a->after + (t - a->T) * a->D;
}

/* Where stretch s's sequence starts and ends, in local tokens: start may be < 0. */
static void sequence(const struct kcp_conv *a, int s, int64_t *start, int64_t *end)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    const int n = a->plan->seg[x->seg0 + s].n;
    *start = a->plan->cu_seqlens[n] - x->begin;
    *end = a->plan->cu_seqlens[n + 1] - x->begin;
}

/* pre_t = bias + sum_{j<Wc} weight_j x_{t+j-Wc+1}; taps before the sequence are 0. */
static void window(const struct kcp_conv *a, const struct rows *x, int s,
                   const double *w, double *pre)
{
    const int *cu = a->cu, D = a->D, Wc = a->Wc;
    const double *bias = a->bias;
    int64_t start, end;
    sequence(a, s, &start, &end);
    for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
        double *y = pre + t * D;
        for (int d = 0; d < D; d++)
            y[d] = bias ? bias[d] : 0;
        //> conv-window
        for (int j = 0; j < Wc; j++) {
            if (t + j - Wc + 1 < start)
                continue;
            const double *xj = row(x, t + j - Wc + 1);
            for (int d = 0; d < D; d++)
                y[d] += w[d * Wc + j] * xj[d];
        }
        //< conv-window
    }
}

/* y_t = act(pre_t) */
static int forward(const struct kcp_conv *a, const struct rows *x, const double *w)
{
    double *y = a->y;
    for (int s = 0; s < a->NS; s++)
        window(a, x, s, w, y);
    if (a->act == KCP_ACT_SILU)
        for (int64_t i = 0; i < a->T * a->D; i++)
            y[i] *= sigmoid(y[i]);
    return KCP_OK;
}

/* dpre_t = dy_t act'(pre_t); SiLU'(x) = sigma(x) (1 + x (1 - sigma(x))). */
static void through_act(const struct kcp_conv *a, const struct rows *x, const double *w,
                        double *dpre)
{
    const double *dy = a->dy;
    for (int s = 0; s < a->NS; s++)
        window(a, x, s, w, dpre);
    for (int64_t i = 0; i < a->T * a->D; i++) {
        const double p = dpre[i], sg = sigmoid(p);
        dpre[i] = a->act == KCP_ACT_SILU ? dy[i] * sg * (1 + p * (1 - sg)) : dy[i];
    }
}

/* dx_t = sum_{i<Wc} weight_{Wc-1-i} dpre_{t+i}, rows past the sequence's end 0. The
 * adjoint of a halo taken from earlier ranks is a halo taken from later ones: each term
 * is added by the owner of x_t, in the order of i, whoever made dpre_{t+i}. */
static void into_x(const struct kcp_conv *a, const struct rows *dpre, int s,
                   const double *w)
{
    const int *cu = a->cu, D = a->D, Wc = a->Wc;
    int64_t start, end;
    sequence(a, s, &start, &end);
    for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
        double *dx = (double *)a->dx + t * D;
        for (int d = 0; d < D; d++)
            dx[d] = 0;
        //> conv-adjoint
        for (int i = 0; i < Wc && t + i < end; i++) {
            const double *dp = row(dpre, t + i);
            for (int d = 0; d < D; d++)
                dx[d] += w[d * Wc + Wc - 1 - i] * dp[d];
        }
        //< conv-adjoint
    }
}

/* dweight_j = sum_t dpre_t x_{t+j-Wc+1}; dbias = sum_t dpre_t: one row a stretch, then
 * over all ranks in the order of the segments. */
static int into_weight(const struct kcp_conv *a, const struct rows *x,
                       const double *dpre)
{
    const int *cu = a->cu, D = a->D, Wc = a->Wc;
    const int64_t n = (int64_t)D * (Wc + 1);
    double *part = calloc((a->NS + 1) * n, sizeof *part), *sum = part + a->NS * n;
    if (!part)
        return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS; s++) {
        double *dw = part + s * n, *db = dw + (int64_t)D * Wc;
        int64_t start, end;
        sequence(a, s, &start, &end);
        for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
            const double *dp = dpre + t * D;
            for (int d = 0; d < D; d++)
                db[d] += dp[d];
            for (int j = 0; j < Wc; j++) {
                if (t + j - Wc + 1 < start)
                    continue;
                const double *xj = row(x, t + j - Wc + 1);
                for (int d = 0; d < D; d++)
                    dw[d * Wc + j] += dp[d] * xj[d];
            }
        }
    }
    const int status = kcp_parameter_sum((const struct kcp_call *)a, part, n, sum);
    if (!status && a->dweight)
        memcpy(a->dweight, sum, sizeof *sum * D * Wc);
    if (!status && a->dbias)
        memcpy(a->dbias, sum + (int64_t)D * Wc, sizeof *sum * D);
    free(part);
    return status;
}

/* The gradient's halo: dpre of later ranks' first rows. */
static int backward(const struct kcp_conv *a, const struct rows *x, const double *w)
{
    struct kcp_halo h = { a->plan, a->comm, a->Wc - 1, 1, sizeof(double) * a->D, NULL };
    const int64_t na = kcp_halo_rows(&h, a->r);
    double *dpre = malloc(sizeof *dpre * ((a->T + na) * a->D + 1));
    if (!dpre)
        return KCP_NO_MEMORY;
    const struct rows dp = { NULL, dpre, dpre + a->T * a->D, 0, a->T, a->D };

    through_act(a, x, w, dpre);
    int status = kcp_halo_run(&h, dpre, dpre + a->T * a->D);
    for (int s = 0; !status && s < a->NS; s++)
        into_x(a, &dp, s, w);
    if (!status && (a->dweight || a->dbias))
        status = into_weight(a, x, dpre);
    free(dpre);
    return status;
}

/* spec 10.  The token shift is the window of two with the weights 1 and -1: x_{t-1} -
 * x_t, no bias and no act. KCP_BAD without a plan, or without weights. */
int ref_conv(struct kcp_conv *a)
{
    const int refused = kcp_begin("14_conv", KCP_HOST, a, NULL);
    if (refused) return refused;
    struct kcp_conv b = *a;
    if (a->shift) {
        b.Wc = 2; b.act = KCP_ACT_NONE;
        b.bias = NULL; b.dweight = NULL; b.dbias = NULL;
    }

    /* The halo of x: rows of earlier ranks, for both walks. */
    struct kcp_halo h = { b.plan, b.comm, b.Wc - 1, 0, sizeof(double) * b.D, NULL };
    const int64_t nb = kcp_halo_rows(&h, b.r);
    double *before = malloc(sizeof *before * (nb * b.D + 1));
    double *w = malloc(sizeof *w * b.D * b.Wc);
    int status = before && w ? KCP_OK : KCP_NO_MEMORY;
    for (int64_t i = 0; !status && i < (int64_t)b.D * b.Wc; i++)
        w[i] = b.shift ? 1 - 2 * (i % 2) : ((const double *)b.weight)[i];
    if (!status)
        status = kcp_halo_run(&h, b.x, before);
    const struct rows x = { before, b.x, NULL, nb, b.T, b.D };
    if (!status)
        status = b.pass == KCP_FORWARD ? forward(&b, &x, w) : backward(&b, &x, w);
    free(before);
    free(w);
    return status;
}
