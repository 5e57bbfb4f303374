/* cut.c -- recomputes forward's tensors and exchanges maps, with deliberate errors.
 * Book: chapter 13. */
#include "wrong.h"
#include "tests/judge/judge.h"

#include <math.h>

static void rows(const struct wrong_rank *x, int ends, const double *given, double *to)
{
    for (int s = 0; given && s < x->a->NS; s++)
        if (ends ? x->seg[s].last : x->seg[s].first)
            for (int64_t e = 0; e < size(x); e++)
                to[s * size(x) + e] = given[x->seg[s].n * size(x) + turn(x, e)];
}

int wrong_chunk(struct wrong_rank *x, const double *h_in)
{
    const struct kcp_backward *a = x->a;
    STAGE(kcp_chunk, c);
    c.q = x->q; c.k = x->k; c.qg = x->qg; c.kg = x->kg; c.u = x->u; c.w = x->w;
    c.Aqk = x->Aqk; c.G = x->G; c.h_in = h_in; c.v_new = x->v_new; c.h = x->h;
    c.o = zeros(x, (int64_t)a->T * a->HV * a->V);
    c.h_out = zeros(x, a->NS * size(x));
    return x->x.c04 ? x->x.c04->run(&c) : ref_chunk(&c);
}

int wrong_recompute(struct wrong_rank *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t T = a->T, TH = T * a->H, TV = T * a->HV;
    double *kept = kcp_saved_at(a->saved, "h_kept");

    STAGE(kcp_gate, g);
    g.pass = KCP_FORWARD; g.q_raw = a->q_raw; g.k_raw = a->k_raw; g.g_raw = a->g_raw;
    g.beta_raw = a->beta_raw; g.A_log = a->A_log; g.dt_bias = a->dt_bias;
    g.q = x->q = zeros(x, TH * a->K); g.k = x->k = zeros(x, TH * a->K);
    g.rstd_q = zeros(x, TH); g.rstd_k = zeros(x, TH); g.beta = x->beta = zeros(x, TV);
    g.g = zeros(x, TV * a->KG); g.G = x->G = zeros(x, TV * a->KG);
    STAGE(kcp_wy, y);
    y.q = x->q; y.k = x->k; y.v = a->v; y.G = x->G; y.beta = x->beta;
    y.Aqk = x->Aqk = zeros(x, TV * a->C); y.A = x->A = zeros(x, TV * a->C);
    y.u = x->u = zeros(x, TV * a->V); y.w = x->w = zeros(x, TV * a->K);
    if (a->model == KCP_KDA) {
        y.kg = x->kg = zeros(x, TV * a->K);
        y.qg = x->qg = zeros(x, TV * a->K);
    }
    double *h_in = zeros(x, a->NS * size(x));
    x->v_new = zeros(x, TV * a->V); x->h = zeros(x, a->NC * size(x));
    rows(x, 0, a->h0, h_in);
    const int held = kcp_saved_states((const struct kcp_call *)a);
    if (!(x->x.flags & NO_H0)) memcpy(h_in, kept, sizeof(double) * held * size(x));
    int status = ref_gate(&g);
    for (int64_t e = 0; x->x.flags & FLOOR && e < TV; e++)
        x->beta[e] = copysign(fmax(fabs(x->beta[e]), 0x1p-40), x->beta[e]);
    status = status ? status : ref_wy(&y);
    if (!status && x->x.flags & OF_BLOCK) status = wrong_factors(x, g, y);
    if (!status) status = wrong_chunk(x, h_in);
    if (!status && x->x.flags & OF_BLOCK) wrong_states(x);
    return status;
}

/* Returns 1 if the map of segment j is sent: if the segment is only part of a sequence,
 * or is its rank's last segment (mutant last_map reads the map of this segment). */
static int travels(const struct kcp_plan *p, int j)
{
    const struct kcp_segment *s = &p->seg[j];
    const struct kcp_context *c = &p->ctx[s->rank];
    return !(s->first && s->last) || j == c->seg0 + c->NS - 1;
}

/* Gathers the sent maps of all ranks in *all, indexed by global segment. */
static int gather(struct wrong_rank *x, const struct kcp_plan *p, double **all)
{
    const int64_t map = size(x) + (int64_t)x->a->HV * x->a->K * x->a->K;
    const size_t bytes = sizeof(double) * map;
    int most = 1, status = KCP_OK, count[CASE_RANKS] = { 0 };
    for (int j = 0; j < p->S; j++) {
        const int n = count[p->seg[j].rank] += travels(p, j);
        most = n > most ? n : most;
    }
    double *mine = zeros(x, most * map), *wire = zeros(x, p->R * most * map);
    *all = zeros(x, p->S * map);
    const int seg0 = p->ctx[x->a->r].seg0;
    for (int s = 0, n = 0; s < x->a->NS; s++)
        if (travels(p, seg0 + s)) memcpy(mine + n++ * map, x->dmap + s * map, bytes);
    if (p->R > 1)
        status = x->a->comm->all_gather(x->a->comm, mine, wire, most * bytes, NULL);
    else memcpy(wire, mine, most * bytes);
    memset(count, 0, sizeof count);
    for (int j = 0; j < p->S; j++) {
        const int r = p->seg[j].rank;
        if (travels(p, j))
            memcpy(*all + j * map, wire + (r * most + count[r]++) * map, bytes);
    }
    return status;
}

/* Computes dS <- M^T dS + dh_ext for all heads, or dS <- dh_ext if `first` is 1. */
static void apply(const struct wrong_rank *x, const double *map_, const double *M_,
                  int first, double *S_)
{
    const int HV = x->a->HV, K = x->a->K, V = x->a->V, f = x->x.flags;
    const double (*map)[K][V + K] = (void *)map_, (*M)[K][V + K] = (void *)M_;
    double (*S)[K][V] = (void *)S_, next[K][V];
    for (int n = 0; n < HV; n++) {
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                next[i][v] = map[n][i][v];
                for (int p = 0; p < K && !first; p++)
                    next[i][v] += S[n][p][v] * (f & (NOT_TURNED | OWN_M)
                                                    ? M[n][i][V + p] : M[n][p][V + i]);
            }
        memcpy(S[n], next, sizeof next);
    }
}

/* From later segments' maps, computes dS at the end of each segment of this rank. */
static int exchange(struct wrong_rank *x)
{
    const struct kcp_plan *p = x->a->plan;
    const int64_t map = size(x) + (int64_t)x->a->HV * x->a->K * x->a->K;
    const int f = x->x.flags, seg0 = p->ctx[x->a->r].seg0;
    double *all;
    int status = gather(x, p, &all);

    for (int s = 0; s < x->a->NS && !status && !(f & NO_EXCHANGE); s++) {
        const int j0 = seg0 + s + 1;
        int j1 = j0;
        while (j1 < p->S && p->seg[j1].n == p->seg[j0 - 1].n) j1++;
        for (int step = 0; step < j1 - j0; step++) {
            const int j = f & OUTWARD ? j0 + step : j1 - 1 - step;
            const struct kcp_context *c = &p->ctx[p->seg[j].rank];
            const int from_map = f & LAST_MAP && j == c->seg0 ? c->seg0 + c->NS - 1 : j;
            if (f & NEIGHBOUR && j > j0) continue;
            apply(x, all + from_map * map, all + (f & OWN_M ? j - 1 : from_map) * map,
                  step == 0 || f & NEIGHBOUR, x->states + s * size(x));
            if (f & TWICE && step == 0 && j1 - j0 > 1)
                apply(x, all + j * map, all + j * map, 0, x->states + s * size(x));
        }
    }
    return status;
}

int wrong_carry(struct wrong_rank *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t map = size(x) + (int64_t)a->HV * a->K * a->K;
    int *want = (int *)zeros(x, a->NS);
    STAGE(kcp_merge_backward, m);
    m.want = want; m.q = x->q; m.k = x->k; m.qg = x->qg; m.kg = x->kg; m.w = x->w;
    m.G = x->G; m.do_ = a->do_; m.dv_local = x->dv_local; m.dh_end = x->states;
    m.dmap = x->dmap = zeros(x, a->NS * map);
    m.reuse_M = 0;
    for (int s = 0; s < a->NS; s++) want[s] = KCP_WANT_H | KCP_WANT_M;
    rows(x, 1, x->x.flags & NO_DHT ? NULL : a->dht, x->states);
    int status = x->x.m11 ? x->x.m11->run(&m) : ref_merge_backward(&m);
    return status ? status : exchange(x);
}
