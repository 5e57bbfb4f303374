/* alive.c -- how much of a state that enters a rank is left when it leaves.
 *
 * Book: chapters 05, 07.  Checked by: tests/cli/run_cli.sh.  Next: print.c.
 * Inputs that forget everything make every exchange look right; so say how much lives.
 */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Norms of M over all heads: sqrt(sum M^2 / (HV K)); 1 is nothing forgotten. */
static double norm_M(const struct kcp_call *c, const double *map)
{
    const int wide = c->V + c->K;
    double sum = 0;
    for (int64_t i = 0; i < (int64_t)c->HV * c->K; i++)
        for (int p = c->V; p < wide; p++)
            sum += map[i * wide + p] * map[i * wide + p];
    return sqrt(sum / ((double)c->HV * c->K));
}

/* Chapters 02, 03, 05 on the first local sequence as one stretch. *alive: -1 where the
 * rank is empty or its first sequence starts there. */
int rank_alive(const struct kcp_forward *f, double *alive)
{
    const struct kcp_context *ctx = &f->plan->ctx[f->r];
    *alive = -1;
    if (ctx->n_local == 0 || ctx->is_first_rank)
        return KCP_OK;
    const int64_t T = ctx->cu_seqlens[1], TH = T * f->H, TV = T * f->HV;
    const int NC = (int)((T - 1) / f->C + 1), want = KCP_WANT_M;
    const int cu[2] = { 0, (int)T }, cn[2] = { 0, NC };
    const int64_t need[13] = { TH * f->K, TH * f->K, TH, TH, TV * f->KG, TV * f->KG, TV,
                               TV * f->C, TV * f->C, TV * f->V, TV * f->K, TV * f->K,
                               TV * f->K };
    int64_t all = NC + (int64_t)f->HV * f->K * (f->V + f->K), at = 0;
    double *p[13];
    for (int i = 0; i < 13; i++)
        all += need[i];
    double *block = calloc((size_t)all, sizeof *block);
    if (!block)
        return KCP_NO_MEMORY;
    for (int i = 0; i < 13; at += need[i++])
        p[i] = block + at;
    double *map = block + at;
    int *sc = (int *)(map + (int64_t)f->HV * f->K * (f->V + f->K));

#define STAGE(type, name)                                                             \
    struct type name = { 0 };                                                         \
    memcpy(&name, f, sizeof(struct kcp_call));                                        \
    name.T = T;                                                                       \
    name.NS = 1;                                                                      \
    name.NC = NC;                                                                     \
    name.cu = cu;                                                                     \
    name.cn = cn;                                                                     \
    name.sc = sc
    STAGE(kcp_gate, g);
    g.pass = KCP_FORWARD;
    g.q_raw = f->q_raw;
    g.k_raw = f->k_raw;
    g.g_raw = f->g_raw;
    g.beta_raw = f->beta_raw;
    g.A_log = f->A_log;
    g.dt_bias = f->dt_bias;
    g.q = p[0];
    g.k = p[1];
    g.rstd_q = p[2];
    g.rstd_k = p[3];
    g.g = p[4];
    g.G = p[5];
    g.beta = p[6];
    STAGE(kcp_wy, wy);
    wy.q = p[0];
    wy.k = p[1];
    wy.v = f->v;
    wy.G = p[5];
    wy.beta = p[6];
    wy.Aqk = p[7];
    wy.A = p[8];
    wy.u = p[9];
    wy.w = p[10];
    if (f->model == KCP_KDA) {
        wy.kg = p[11];
        wy.qg = p[12];
    }
    STAGE(kcp_affine, m);
    m.want = &want;
    m.k = p[1];
    m.kg = p[11];
    m.w = p[10];
    m.u = p[9];
    m.G = p[5];
    m.map = map;
    int status = ref_gate(&g);
    status = status ? status : ref_wy(&wy);
    status = status ? status : ref_affine(&m);
    if (!status)
        *alive = norm_M((const struct kcp_call *)f, map);
    free(block);
    return status;
}
