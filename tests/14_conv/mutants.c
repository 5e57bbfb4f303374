/* mutants.c -- computes the convolution over ranks with one deliberate error per flag.
 * Book: chapter 14.  Variant `twin` has no flag and must pass. Each rank gathers all
 * rows, so that all errors are in index arithmetic and none in messages. */
#include "tests/judge/judge.h"
#include "ref.h"
#include "sigmoid.h"
#include "tests/gather.h"
#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(short_halo, SHORT_HALO, "the halo is one row too short")                   \
    MUTANT(past_start, PAST_START,                                                    \
           "reads halo rows from before the sequence's start")                        \
    MUTANT(broadcast, BROADCAST,                                                      \
           "repeats one row if a shard is shorter than the halo")                     \
    MUTANT(nearest_only, NEAREST_ONLY, "takes the halo from the nearest rank only")   \
    MUTANT(grad_dropped, GRAD_DROPPED, "does not send the halo's gradient")           \
    MUTANT(grad_nearest, GRAD_NEAREST, "sends the gradient to the nearest rank only") \
    MUTANT(past_end, PAST_END, "the gradient crosses the sequence's end")             \
    MUTANT(reversed, REVERSED, "reads the weights in reverse order")                  \
    MUTANT(silu_at_y, SILU_AT_Y,                                                      \
           "computes SiLU' at y, not at the sum 'pre' before SiLU")                   \
    MUTANT(shift_sign, SHIFT_SIGN, "the token shift is x_t - x_{t-1}")                \
    MUTANT(local_sum, LOCAL_SUM, "does not sum dweight and dbias over ranks")         \
    MUTANT(not_causal, NOT_CAUSAL, "y of token t also reads x of token t + 1")        \
    MUTANT(no_bias, NO_BIAS, "ignores the bias")                                      \
    MUTANT(shard_before, SHARD_BEFORE,                                                \
           "takes the halo in shard order, not token order")                          \
    MUTANT(rank_before, RANK_BEFORE,                                                  \
           "each range's halo is the previous rank's last rows")                      \
    MUTANT(shard_after, SHARD_AFTER,                                                  \
           "takes the halo of gradients in shard order, not token order")             \
    MUTANT(no_x0, NO_X0, "uses zeros instead of x0")                                  \
    MUTANT(x0_next, X0_NEXT, "reads x0 of the next sequence")                         \
    MUTANT(x0_late, X0_LATE, "reads row k - 1 of x0, not row k")                      \
    MUTANT(x0_first_rank, X0_FIRST_RANK, "only the sequence's first rank reads x0")   \
    MUTANT(dx0_here, DX0_HERE, "dx0 omits the terms of later ranks")                  \
    MUTANT(dxt_dropped, DXT_DROPPED,                                                  \
           "omits dxt, the gradient of a sequence's last rows")                       \
    MUTANT(dxt_past_start, DXT_PAST_START,                                            \
           "if a sequence is shorter than xt, dx0 omits dxt")                         \
    MUTANT(dw_no_x0, DW_NO_X0, "dweight omits the rows of x0")                        \
    MUTANT(xt_zeros, XT_ZEROS, "if a sequence is shorter than xt, xt has 0, not x0")  \
    MUTANT(xt_late, XT_LATE, "xt ends one row too early")                             \
    MUTANT(empty_forgets, EMPTY_FORGETS,                                              \
           "xt and dx0 of a sequence without tokens are 0")                           \
    MUTANT(writes_nothing, NOTHING, "returns at once")
#include "tests/mutants.h"

/* Returns x0's row for token `from` (before sequence n's start), or NULL. */
static const double *before_start(const struct kcp_conv *a, int n, int64_t from,
                                  int flags)
{
    const int reach = a->Wc - 1;
    int64_t k = from - a->plan->cu_seqlens[n] + reach;
    if (!a->x0 || (flags & NO_X0) || k < 0) return NULL;
    if ((flags & X0_FIRST_RANK) && a->plan->h0_rank[n] != a->r) return NULL;
    if (flags & X0_NEXT) n = (n + 1) % a->N;
    if ((flags & X0_LATE) && k > 0) k--;
    return (const double *)a->x0 + (n * reach + k) * a->D;
}

/* Sets [*begin, *end) to the range of the plan that contains token t. */
static void range_of(const struct kcp_plan *p, int64_t t, int64_t *begin, int64_t *end)
{
    int b = 0;
    while (b + 1 < p->B && p->bound[b + 1] <= t) b++;
    *begin = p->bound[b];
    *end = p->bound[b + 1];
}

/* Returns the global token of row i in shard order (rank 0's rows first). */
static int64_t shard_token(const struct kcp_plan *p, int64_t i)
{
    if (i < 0) return 0;
    return kcp_plan_token(p, i < p->T ? i : p->T - 1);
}

/* Copies row t of `all` to `buf` for the rank that owns token `at`. An error's flag
 * selects another row, or 0 if with this error the rank would not receive the row. */
static const double *row_for(const struct kcp_conv *a, const double *all, int64_t at,
                             int64_t t, int flags, double *buf)
{
    const struct kcp_plan *p = a->plan;
    const struct kcp_context *x = &p->ctx[a->r];
    const int64_t reach = a->Wc - 1;
    int64_t from = t, begin, end, near, far, row = x->begin;
    int none = 0;
    range_of(p, at, &begin, &end);
    for (int s = 0; s < x->NS && p->seg[x->seg0 + s].begin != begin; s++)
        row = x->begin + x->cu[s + 1];           /* the range's first row */
    if (t < begin) {
        range_of(p, begin - 1, &near, &far);
        none |= (flags & SHORT_HALO) && t == begin - reach;
        none |= (flags & NEAREST_ONLY) && t < near;
        if ((flags & BROADCAST) && begin - near < reach) from = begin - 1;
        if (flags & SHARD_BEFORE) from = shard_token(p, row - (begin - t));
        if (flags & RANK_BEFORE) from = shard_token(p, x->begin - (begin - t));
    }
    if (t >= end) {
        range_of(p, end, &near, &far);
        none |= (flags & GRAD_DROPPED) != 0;
        none |= (flags & GRAD_NEAREST) && t >= far;
        if (flags & SHARD_AFTER) from = shard_token(p, row + (t - begin));
    }
    for (int d = 0; d < a->D; d++) buf[d] = none ? 0 : all[from * a->D + d];
    return buf;
}

/* Computes `pre`, the value before the activation, of global token t of sequence n. */
static void window(const struct kcp_conv *a, const double *x, const double *w, int n,
                   int64_t t, int flags, double *pre, double *buf)
{
    const int D = a->D, Wc = a->Wc;
    const double *bias = flags & NO_BIAS ? NULL : a->bias;
    const int64_t start = flags & PAST_START ? 0 : a->plan->cu_seqlens[n];
    for (int d = 0; d < D; d++) pre[d] = bias ? bias[d] : 0;
    for (int j = 0; j < Wc; j++) {
        int64_t from = t + j - Wc + 1 + !!(flags & NOT_CAUSAL);
        const double *row = NULL;
        if (from < start) row = before_start(a, n, from, flags);
        else if (from < a->plan->cu_seqlens[n + 1])
            row = row_for(a, x, t, from, flags, buf);
        for (int d = 0; row && d < D; d++) pre[d] += w[d * Wc + j] * row[d];
    }
}

static void adjoint(const struct kcp_conv *a, const double *dpre, const double *w,
                    int n, int64_t t, int flags, double *dx, double *buf)
{
    const int D = a->D, Wc = a->Wc;
    const int64_t end = flags & PAST_END ? a->plan->T : a->plan->cu_seqlens[n + 1];
    const int64_t start = a->plan->cu_seqlens[n], here = t < start ? start : t;
    const int64_t k = t - (a->plan->cu_seqlens[n + 1] - (Wc - 1));
    const double *dxt = a->dxt;
    if (k < 0 || (flags & DXT_DROPPED) || (t < start && (flags & DXT_PAST_START)))
        dxt = NULL;
    if (start == a->plan->cu_seqlens[n + 1] && (flags & EMPTY_FORGETS)) dxt = NULL;
    for (int d = 0; d < D; d++)
        dx[d] = dxt ? dxt[(n * (Wc - 1) + k) * D + d] : 0;
    for (int i = 0; i < Wc && t + i < end; i++) {
        int64_t begin, after;
        if (t + i < start) continue;
        range_of(a->plan, here, &begin, &after);
        if (t < start && (flags & DX0_HERE) && t + i >= after) break;
        row_for(a, dpre, here, t + i, flags, buf);
        for (int d = 0; d < D; d++) dx[d] += w[d * Wc + Wc - 1 - i] * buf[d];
    }
}

static void weights(const struct kcp_conv *a, const double *x, const double *dpre,
                    int s, int flags, double *dw, double *buf)
{
    const struct kcp_plan *p = a->plan;
    const int n = p->seg[p->ctx[a->r].seg0 + s].n, D = a->D, Wc = a->Wc, *cu = a->cu;
    const int64_t begin = p->seg[p->ctx[a->r].seg0 + s].begin - cu[s];
    const int64_t start = flags & PAST_START ? 0 : p->cu_seqlens[n];
    for (int64_t t = cu[s]; t < cu[s + 1]; t++)
        for (int j = 0; j <= Wc; j++) {
            const int64_t from = j < Wc ? begin + t + j - Wc + 1 : begin + t;
            const double *row = NULL;
            if (from >= start) row = row_for(a, x, begin + t, from, flags, buf);
            else if (!(flags & DW_NO_X0)) row = before_start(a, n, from, flags);
            for (int d = 0; row && d < D; d++)
                if (j < Wc) dw[d * Wc + j] += dpre[t * D + d] * row[d];
                else dw[D * Wc + d] += dpre[t * D + d];
        }
}

static int backward(const struct kcp_conv *a, const double *x, const double *w,
                    int flags, double *dpre, double *alldp, double *part, double *buf)
{
    const struct kcp_plan *p = a->plan;
    const int *cu = a->cu, D = a->D;
    const int64_t n = (int64_t)D * (a->Wc + 1);
    const double *dy = a->dy;
    for (int64_t i = 0; i < a->T * D; i++) {
        const double pre = dpre[i], sg = sigmoid(pre), y = pre * sg;
        const double at = flags & SILU_AT_Y ? y : pre, s = sigmoid(at);
        dpre[i] = a->act == KCP_ACT_SILU ? dy[i] * s * (1 + at * (1 - s)) : dy[i];
    }
    int status = gather_rows((const struct kcp_call *)a, D, dpre, alldp);
    for (int s = 0; !status && s < a->NS; s++) {
        const struct kcp_segment *g = &p->seg[p->ctx[a->r].seg0 + s];
        for (int64_t t = cu[s]; t < cu[s + 1]; t++)
            adjoint(a, alldp, w, g->n, g->begin - cu[s] + t, flags,
                    (double *)a->dx + t * D, buf);
        weights(a, x, dpre, s, flags, part + s * n, buf);
    }
    const int reach = a->Wc - 1;
    for (int i = 0; !status && a->dx0 && i < a->N * reach; i++) {
        const int of = i / reach;
        if (p->h0_rank[of] == a->r)
            adjoint(a, alldp, w, of, p->cu_seqlens[of] - reach + i % reach, flags,
                    (double *)a->dx0 + (int64_t)i * D, buf);
    }
    double *sum = part + a->NS * n;
    if (!status && (a->dweight || a->dbias))
        status = kcp_segment_sum(p, a->comm, part, n, sum);
    if (flags & LOCAL_SUM) {
        memset(sum, 0, sizeof *sum * n);
        for (int64_t i = 0; i < a->NS * n; i++) sum[i % n] += part[i];
    }
    if (!status && a->dweight) memcpy(a->dweight, sum, sizeof *sum * D * a->Wc);
    if (!status && a->dbias) memcpy(a->dbias, sum + D * a->Wc, sizeof *sum * D);
    return status;
}

/* Writes xt, the last Wc - 1 rows, for the sequences that end on this rank. */
static void last_rows(const struct kcp_conv *a, const double *x, int flags)
{
    const struct kcp_plan *p = a->plan;
    const int reach = a->Wc - 1, D = a->D;
    for (int i = 0; i < a->N * reach; i++) {
        const int n = i / reach, late = (flags & XT_LATE) != 0;
        const int64_t t = p->cu_seqlens[n + 1] - reach + i % reach - late;
        const double *row = x + t * D;
        if (t < p->cu_seqlens[n])
            row = flags & XT_ZEROS ? NULL : before_start(a, n, t, flags);
        if (p->cu_seqlens[n] == p->cu_seqlens[n + 1] && (flags & EMPTY_FORGETS))
            row = NULL;
        for (int d = 0; p->ht_rank[n] == a->r && d < D; d++)
            ((double *)a->xt)[(int64_t)i * D + d] = row ? row[d] : 0;
    }
}

static int conv_with(struct kcp_conv *a, int flags)
{
    const int D = a->D, Wc = a->Wc, *cu = a->cu;
    const int64_t all = a->plan->T * D, n = (int64_t)D * (Wc + 1);
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    double *x = calloc(2 * all + a->T * D + (a->NS + 2) * n + D, sizeof *x);
    if (!x) return KCP_NO_MEMORY;
    double *alldp = x + all, *pre = alldp + all, *part = pre + a->T * D;
    double *w = part + (a->NS + 1) * n, *buf = w + n;
    for (int64_t i = 0; i < (int64_t)D * Wc; i++) {
        const int64_t j = flags & REVERSED ? i / Wc * Wc + Wc - 1 - i % Wc : i;
        w[i] = a->shift ? 1 - 2 * (i % 2) : ((const double *)a->weight)[j];
        if (a->shift && (flags & SHIFT_SIGN)) w[i] = -w[i];
    }
    int status = gather_rows((const struct kcp_call *)a, D, a->x, x);
    for (int s = 0; !status && s < a->NS; s++)
        for (int64_t t = cu[s]; t < cu[s + 1]; t++)
            window(a, x, w, seg[s].n, seg[s].begin - cu[s] + t, flags, pre + t * D,
                   buf);
    if (!status && a->pass == KCP_BACKWARD)
        status = backward(a, x, w, flags, pre, alldp, part, buf);
    const int silu = a->act == KCP_ACT_SILU;
    for (int64_t i = 0; !status && a->pass == KCP_FORWARD && i < a->T * D; i++)
        ((double *)a->y)[i] = pre[i] * (silu ? sigmoid(pre[i]) : 1);
    if (!status && a->pass == KCP_FORWARD && a->xt) last_rows(a, x, flags);
    free(x);
    return status;
}

static int conv(void *args, int flags)
{
    struct kcp_conv a = *(const struct kcp_conv *)args;
    if (flags & NOTHING) return KCP_OK;
    if (a.shift) {
        a.Wc = 2;
        a.act = KCP_ACT_NONE;
        a.bias = a.dweight = a.dbias = NULL;
    }
    const int64_t row = (a.Wc - 1) * (int64_t)a.D;
    const size_t n = (size_t)(a.N * row) + 1;
    const struct kcp_call *c = (const struct kcp_call *)&a;
    double *x0 = calloc(n, sizeof *x0), *dxt = calloc(n, sizeof *dxt);
    int status = x0 && dxt ? KCP_OK : KCP_NO_MEMORY;
    if (!status) status = gather_states(c, a.plan->h0_rank, row, a.x0, x0);
    if (!status && a.pass == KCP_BACKWARD)
        status = gather_states(c, a.plan->ht_rank, row, a.dxt, dxt);
    a.x0 = a.x0 ? x0 : NULL;
    a.dxt = a.dxt ? dxt : NULL;
    if (!status) status = conv_with(&a, flags);
    free(x0);
    free(dxt);
    return status;
}

#define MUTANT_STAGE conv, "14_conv", "any shape", conv
MUTANTS(MUTANT)
MUTANT_TWIN
