/* mutants.c -- computes forward on several ranks with one deliberate error per flag.
 * Book: chapter 08.
 * The code is a second implementation of forward. It ignores the exchange form and
 * always gathers one map per rank. Inside a rank, it calls the references of chapters
 * 02, 03 and 04. Most errors are in its own code for the work across ranks. */
#include "wrong.h"
#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct kcp_variant m04_uncarried;

static double *zeros(struct fore *x, int64_t n)
{
    double *p = calloc(n > 0 ? (size_t)n : 1, sizeof *p);
    x->full |= !p;
    x->got[x->ngot++] = p;
    return p;
}

#define STAGE(type, name)                                                             \
    struct type name = { 0 };                                                         \
    memcpy(&name, x->a, sizeof(struct kcp_call));                                     \
    name.cu = x->a->cu; name.cn = x->a->cn; name.sc = x->a->sc

static int local(struct fore *x)
{
    const struct kcp_forward *a = x->a;
    const int64_t TH = a->T * a->H, TV = a->T * a->HV;
    const int64_t row = (int64_t)a->HV * a->KG, stride = (int64_t)a->H * a->KG;
    STAGE(kcp_gate, gate);
    gate.pass = KCP_FORWARD;
    gate.q_raw = a->q_raw; gate.k_raw = a->k_raw; gate.g_raw = a->g_raw;
    gate.beta_raw = a->beta_raw; gate.A_log = a->A_log; gate.dt_bias = a->dt_bias;
    gate.q = x->q = zeros(x, TH * a->K); gate.k = x->k = zeros(x, TH * a->K);
    gate.rstd_q = zeros(x, TH); gate.rstd_k = zeros(x, TH);
    gate.beta = x->beta = zeros(x, TV);
    gate.g = x->g = zeros(x, TV * a->KG); gate.G = x->G = zeros(x, TV * a->KG);
    if (x->f & GATE_STRIDE) {
        double *g = zeros(x, TV * a->KG);
        for (int64_t t = 0; t < a->T && !x->full; t++)
            memcpy(g + t * row, (const double *)a->g_raw + t * stride,
                   sizeof *g * (size_t)row);
        gate.g_raw = g;
    }

    STAGE(kcp_wy, wy);
    wy.q = x->q; wy.k = x->k; wy.v = a->v; wy.G = x->G; wy.beta = x->beta;
    wy.Aqk = x->Aqk = zeros(x, TV * a->C); wy.A = zeros(x, TV * a->C);
    wy.u = x->u = zeros(x, TV * a->V); wy.w = x->w = zeros(x, TV * a->K);
    wy.kg = x->kg = zeros(x, TV * a->K); wy.qg = x->qg = zeros(x, TV * a->K);
    if (a->model == KCP_GDN) wy.kg = wy.qg = NULL;
    if (x->f & OWN_SCALE) wy.scale = 1 / sqrt(a->K);
    if (x->full) return KCP_NO_MEMORY;
    const int status = ref_gate(&gate);
    return status ? status : ref_wy(&wy);
}

/* Computes ht, and the state before each segment of the rank. */
static void states(const struct fore *x, const double *all, double *h_in, double *row)
{
    const struct kcp_forward *a = x->a;
    const int K = a->K, V = a->V, f = x->f;
    for (int n = 0; n < a->HV; n++) {
        double *S = row + (int64_t)a->C * (V + K), *next = S + K * V;
        for (int s = 0; s < a->NS; s++) {
            const int on = s > 0 && x->seg[s].n == x->seg[s - 1].n;
            if (x->seg[s].first && !(f & NO_CU && s > 0))
                fore_state(x, 0, x->seg[s].n, n, S, V);
            else if (s == 0 && !on && !(f & DROPPED)) fore_fold(x, all, n, S, next);
            else if (s == 0 && !on) memset(S, 0, sizeof *S * (size_t)(K * V));
            memcpy(h_in + ((int64_t)s * a->HV + n) * K * V, S, sizeof(double) * K * V);
            if (f & HT_EARLY && x->seg[s].last) fore_state(x, 1, x->seg[s].n, n, S, V);
            fore_advance(x, n, s, 0, V, V, S, row, 0);
            if (!(f & HT_EARLY) && x->seg[s].last)
                fore_state(x, 1, x->seg[s].n, n, S, V);
        }
    }
}

static int program(struct fore *x)
{
    struct kcp_forward *a = x->a;
    const struct kcp_plan *p = a->plan;
    const int K = a->K, V = a->V, HV = a->HV;
    const int64_t map = (int64_t)HV * K * (V + K), KV = (int64_t)HV * K * V;
    double *all = zeros(x, a->R * map), *mine = zeros(x, map);
    double *h_in = zeros(x, a->NS * KV);
    double *row = zeros(x, (int64_t)a->C * (V + K) + 2 * K * V), *ht = a->ht;
    const double *h0 = a->h0;
    int status = local(x);
    if (status || x->full) return status ? status : KCP_NO_MEMORY;
    fore_describe(x, mine, row);
    status = a->comm->all_gather(a->comm, mine, all, 8 * (size_t)map, NULL);
    if (status) return status;
    states(x, all, h_in, row);

    STAGE(kcp_chunk, c);
    c.q = x->q; c.k = x->k; c.qg = x->qg; c.kg = x->kg; c.u = x->u; c.w = x->w;
    c.Aqk = x->Aqk; c.G = x->G; c.h_in = h_in; c.o = a->o;
    c.v_new = zeros(x, a->T * HV * V); c.h = zeros(x, a->NC * KV);
    c.h_out = zeros(x, a->NS * KV);
    if (x->f & OWN_SCALE) c.scale = 1 / sqrt(K);
    if (x->full) return KCP_NO_MEMORY;
    status = x->f & UNCARRIED ? m04_uncarried.run(&c) : ref_chunk(&c);
    for (int n = 0; n < p->N; n++)
        for (int64_t e = n * KV; e < (n + 1) * KV; e++)
            if (p->ht_rank[n] == a->r && p->cu_seqlens[n] == p->cu_seqlens[n + 1])
                ht[e] = h0 && !(x->f & EMPTY_HT) ? h0[e] : 0;
    return status;
}

static int mutate(void *args, int flags)
{
    struct kcp_forward *a = args;
    struct fore x = { .a = a, .ctx = &a->plan->ctx[a->r], .f = flags };
    struct kcp_forward rounded = *a;
    x.seg = a->plan->seg + x.ctx->seg0;
    if (flags & GATE_BF16) {
        double *g = zeros(&x, a->T * a->HV * a->KG);
        for (int64_t e = 0; e < a->T * a->HV * a->KG && !x.full; e++)
            g[e] = bf16_value(bf16_of(((const double *)a->g_raw)[e]));
        rounded.g_raw = g;
        x.a = &rounded;
    }
    if (a->plan->scattered)                    /* owners.c tests such plans */
        return KCP_NA;
    const int status = flags & NOTHING ? KCP_OK : program(&x);
    for (int j = 0; j < x.ngot; j++) free(x.got[j]);
    return status;
}

#define MUTANT_STAGE m08, "08_forward", "a rank with one range of tokens", mutate
MUTANTS(MUTANT)
MUTANT_TWIN
