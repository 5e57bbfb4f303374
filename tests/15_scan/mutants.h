/* mutants.h -- gathers the whole batch on each rank, for mutants of Spike-KDA.
 * Book: chapter 15. */
#pragma once

#include "tests/gather.h"
#include "tests/judge/judge.h"
#include <math.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(undecayed, UNDECAYED, "errata 1: the delta rule uses the undecayed state") \
    MUTANT(scaled, SCALED, "errata 26: scales q, as KDA does")                        \
    MUTANT(no_spikes, NO_SPIKES, "gates ignore the spikes")                           \
    MUTANT(spikes_turned, SPIKES_TURNED,                                              \
           "W_alpha multiplies the spikes in reverse order")                          \
    MUTANT(one_beta, ONE_BETA, "all heads use w_beta of head 0")                      \
    MUTANT(wrong_group, WRONG_GROUP, "value head n reads query head n % H")           \
    MUTANT(drop_decays, DROP_DECAYS, "a dropped token decays the state")              \
    MUTANT(drop_emits, DROP_EMITS,                                                    \
           "a dropped token computes o instead of repeating it")                      \
    MUTANT(drop_zero, DROP_ZERO, "a dropped token's o is 0 instead of a repeated o")  \
    MUTANT(repeat_once, LAST_IS_LAST,                                                 \
           "the second of two dropped tokens has output 0")                           \
    MUTANT(repeat_local, REPEAT_LOCAL,                                                \
           "a repeated output does not reach the next rank")                          \
    MUTANT(runs_on, RUNS_ON, "a repeated output is passed to the next sequence")      \
    MUTANT(silent_mute, SILENT_MUTE, "a silent head repeats its last output")         \
    MUTANT(silent_talks, TALKS, "ignores the mask 'active'")                          \
    MUTANT(not_owed, NOT_OWED, "omits gradients of repeated outputs")                 \
    MUTANT(owed_local, OWED_LOCAL,                                                    \
           "gradients of repeated outputs are not passed to other ranks")             \
    MUTANT(no_sigma, NO_SIGMA,                                                        \
           "dalpha_base, dbeta_base omit the sigmoid's derivative")                   \
    MUTANT(local_sum, LOCAL_SUM, "does not sum dW_alpha and dw_beta over ranks")      \
    MUTANT(no_beta_spike, NO_BETA_SPIKE, "dspike omits beta's term")
#include "tests/mutants.h"

enum { Q, KEY, VAL, SPIKE, ABASE, BBASE, DROP, ACTIVE, DO, TOKENS };
struct whole {
    struct kcp_scan a;
    int flags;
    double *x[TOKENS];                 /* [T, .] of the whole batch */
    double *h0, *o0, *dht, *dot;       /* [N, .], every row */
    double *o, *S, *dS, *alpha, *last, *dO;
};

/* Gathers the rows of all ranks, `width` numbers per row, as double. */
static int gather(const struct whole *w, const void *from, int is_int, int64_t width,
                  double *to)
{
    double *mine = malloc(8 * (w->a.T * width + 1));
    if (!mine) return KCP_NO_MEMORY;
    for (int64_t e = 0; e < w->a.T * width; e++)
        mine[e] = is_int ? ((const int *)from)[e] : ((const double *)from)[e];
    const int status = gather_rows((const struct kcp_call *)&w->a, width, mine, to);
    free(mine);
    return status;
}

static int is_cut(const struct whole *w, int64_t t)
{
    for (int r = 1; r < w->a.plan->R; r++)
        if (w->a.plan->cuts[r] == t) return 1;
    return 0;
}

static int collect(struct whole *w, double *to)
{
    const struct kcp_scan *a = &w->a;
    const struct kcp_call *c = (const struct kcp_call *)a;
    const struct kcp_plan *p = a->plan;
    const int64_t KV = (int64_t)a->HV * a->K * a->V, row = (int64_t)a->HV * a->V;
    const int64_t T = p->T;
    const struct { const void *from; int is_int; int64_t width; } x[TOKENS] = {
        { a->q, 0, a->H * a->K }, { a->k, 0, a->H * a->K }, { a->v, 0, row },
        { a->spike, 0, a->HV * a->D }, { a->alpha_base, 0, a->HV * a->K },
        { a->beta_base, 0, a->HV }, { a->drop, 1, 1 }, { a->active, 1, a->HV },
        { a->pass ? a->do_ : NULL, 0, row } };
    int status = KCP_OK;
    for (int j = 0; j < TOKENS && !status; j++) {
        w->x[j] = to;
        to += T * x[j].width;
        if (x[j].from) status = gather(w, x[j].from, x[j].is_int, x[j].width, w->x[j]);
    }
    w->h0 = to;
    to += a->N * KV;
    w->dht = to;
    to += a->N * KV;
    w->o0 = to;
    to += a->N * row;
    w->dot = to;
    to += a->N * row;
    if (!status) status = gather_states(c, p->h0_rank, KV, a->h0, w->h0);
    if (!status) status = gather_states(c, p->h0_rank, row, a->o0, w->o0);
    if (!status && a->pass) status = gather_states(c, p->ht_rank, KV, a->dht, w->dht);
    if (!status && a->pass) status = gather_states(c, p->ht_rank, row, a->dot, w->dot);
    w->o = to;
    to += T * row;
    w->S = to;
    to += (T + 1) * a->K * a->V;
    w->dS = to;
    w->last = w->dS + a->K * a->V;
    w->dO = w->last + a->V;
    w->alpha = w->dO + a->V;
    return status;
}
