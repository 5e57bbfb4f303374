/* mutants.h -- gathers the whole batch on each rank, for mutants of Spike-KDA.
 * Book: chapter 15. */
#ifndef KCP_15_SCAN_MUTANTS_H
#define KCP_15_SCAN_MUTANTS_H

#include "tests/gather.h"
#include "tests/judge/judge.h"
#include <math.h>

enum { UNDECAYED = 1, SCALED = 2, NO_SPIKES = 4, SPIKES_TURNED = 8, ONE_BETA = 16,
       WRONG_GROUP = 32, DROP_DECAYS = 64, DROP_EMITS = 128, DROP_ZERO = 256,
       REPEAT_LOCAL = 512, RUNS_ON = 1 << 10, SILENT_MUTE = 1 << 11, TALKS = 1 << 12,
       NOT_OWED = 1 << 13, OWED_LOCAL = 1 << 14, NO_SIGMA = 1 << 15,
       LOCAL_SUM = 1 << 16, NO_BETA_SPIKE = 1 << 17, LAST_IS_LAST = 1 << 18 };

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

#endif
