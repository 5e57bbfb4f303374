/* 13_backward_mutants.c -- the whole backward put together wrongly.
 *
 * Book: chapter 13.  Checked by: the judge, which must reject each, and pass the twin.
 * Next: 14_conv_mutants.c.
 * A copy of the program, not of the stages: those are called, right or (the mutants of
 * chapters 09 to 11) wrong. The exchange is its own: every map to every rank.
 */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOT_TURNED = 1, OUTWARD = 2, OWN_M = 4, LAST_MAP = 8, NO_DHT = 16, H_DECAYED = 32,
    NO_EXCHANGE = 64, NO_H0 = 128, OWN_SUM = 256, ALL_DH0 = 512, EMPTY_0 = 1024,
    AS_KV = 2048, NEIGHBOUR = 4096, TWICE = 8192, NOTHING = 1 << 14,
};

struct plot {                   /* flags of the program; a stage replaced, or NULL */
    int flags;
    const struct kcp_variant *c09, *wy10, *m11;
};
extern const struct kcp_variant m09_decay_first, m09_in_order, m10_beta_outside,
    m10_undecayed, m10_diagonal, m11_decay_first, m11_in_order, m11_no_end;

struct back {
    const struct kcp_backward *a;
    const struct kcp_segment *seg;
    struct plot x;
    int ngot;
    double *got[64];
    double *q, *k, *beta, *Aqk, *A, *G, *w, *u, *qg, *kg, *v_new, *h;
    double *dAqk, *dv_local, *dU, *dh, *dh_in, *states, *dmap;
    double *dq, *dk, *dbeta, *dg, *dA_part, *ddt_part;
};

static double *room(struct back *x, int64_t n)
{
    return x->got[x->ngot++] = calloc(n > 0 ? n : 1, sizeof(double));
}

#define CALL(type, name)                                                              \
    struct type name = { 0 };                                                         \
    memcpy(&name, x->a, sizeof(struct kcp_call))
#define STAGE(type, name)                                                             \
    CALL(type, name);                                                                 \
    name.cu = x->a->cu, name.cn = x->a->cn, name.sc = x->a->sc

static int64_t size(const struct back *x)
{
    return (int64_t)x->a->HV * x->a->K * x->a->V;
}

static int64_t turn(const struct back *x, int64_t e)       /* [K,V] to the caller's */
{
    const int64_t K = x->a->K, V = x->a->V, n = e / (K * V), i = e / V % K, v = e % V;
    return x->a->layout == KCP_VK && !(x->x.flags & AS_KV) ? (n * V + v) * K + i : e;
}

static void rows(const struct back *x, int ends, const double *given, double *to)
{
    for (int s = 0; given && s < x->a->NS; s++)
        if (ends ? x->seg[s].last : x->seg[s].first)
            for (int64_t e = 0; e < size(x); e++)
                to[s * size(x) + e] = given[x->seg[s].n * size(x) + turn(x, e)];
}

/* errata 7: h decayed first, then v_new = u - w h from it; KDA and GDN. */
static void scan_decayed(const struct back *x, const double *h_in)
{
    const struct kcp_backward *a = x->a;
    const int HV = a->HV, K = a->K, V = a->V, kda = a->model == KCP_KDA, *cu = a->cu;
    const int *cn = a->cn, *sc = a->sc;
    const double (*G)[HV][a->KG] = (void *)x->G, (*u)[HV][V] = (void *)x->u;
    const double (*w)[HV][K] = (void *)x->w, (*kg)[HV][K] = (void *)x->kg;
    const double (*k)[a->H][K] = (void *)x->k;
    double (*h)[HV][K][V] = (void *)x->h, (*v_new)[HV][V] = (void *)x->v_new;

    for (int c = 0; c < a->NC; c++)
        for (int n = 0; n < HV; n++) {
            const int s = sc[c], first = c == cn[s], m = n / (HV / a->H);
            const int64_t t0 = cu[s] + (int64_t)(c - cn[s]) * a->C;
            const int64_t t1 = t0 + a->C < cu[s + 1] ? t0 + a->C : cu[s + 1];
            double S[K][V];
            if (first)
                memcpy(h[c][n], h_in + s * size(x) + (int64_t)n * K * V, sizeof S);
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++)
                    S[i][v] = exp2(G[t1 - 1][n][kda ? i : 0]) * h[c][n][i][v];
            for (int64_t t = t0; t < t1; t++)
                for (int v = 0; v < V; v++) {
                    v_new[t][n][v] = u[t][n][v];
                    for (int i = 0; i < K; i++)
                        v_new[t][n][v] -= w[t][n][i] * S[i][v];
                }
            for (int64_t t = t0; t < t1 && c + 1 < cn[s + 1]; t++)
                for (int i = 0; i < K; i++)
                    for (int v = 0; v < V; v++)
                        S[i][v] += v_new[t][n][v] * (kda ? kg[t][n][i] : k[t][m][i]
                                   * exp2(G[t1 - 1][n][0] - G[t][n][0]));
            if (c + 1 < cn[s + 1])
                memcpy(h[c + 1][n], S, sizeof S);
        }
}

static int again(struct back *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t T = a->T, TH = T * a->H, TV = T * a->HV;
    double *kept = kcp_saved_at(a->saved, "h_kept");

    STAGE(kcp_gate, g);
    g.pass = KCP_FORWARD, g.q_raw = a->q_raw, g.k_raw = a->k_raw, g.g_raw = a->g_raw;
    g.beta_raw = a->beta_raw, g.A_log = a->A_log, g.dt_bias = a->dt_bias;
    g.q = x->q = room(x, TH * a->K), g.k = x->k = room(x, TH * a->K);
    g.rstd_q = room(x, TH), g.rstd_k = room(x, TH), g.beta = x->beta = room(x, TV);
    g.g = room(x, TV * a->KG), g.G = x->G = room(x, TV * a->KG);
    STAGE(kcp_wy, y);
    y.q = x->q, y.k = x->k, y.v = a->v, y.G = x->G, y.beta = x->beta;
    y.Aqk = x->Aqk = room(x, TV * a->C), y.A = x->A = room(x, TV * a->C);
    y.u = x->u = room(x, TV * a->V), y.w = x->w = room(x, TV * a->K);
    if (a->model == KCP_KDA)
        y.kg = x->kg = room(x, TV * a->K), y.qg = x->qg = room(x, TV * a->K);
    STAGE(kcp_chunk, c);
    double *h_in = room(x, a->NS * size(x));
    c.q = x->q, c.k = x->k, c.qg = x->qg, c.kg = x->kg, c.u = x->u, c.w = x->w;
    c.Aqk = x->Aqk, c.G = x->G, c.h_in = h_in, c.o = room(x, TV * a->V);
    c.v_new = x->v_new = room(x, TV * a->V), c.h = x->h = room(x, a->NC * size(x));
    c.h_out = room(x, a->NS * size(x));
    rows(x, 0, a->h0, h_in);
    const int held = kcp_saved_states((const struct kcp_call *)a);
    if (!(x->x.flags & NO_H0))
        memcpy(h_in, kept, sizeof(double) * held * size(x));
    int status = ref_gate(&g);
    status = status ? status : ref_wy(&y);
    status = status ? status : ref_chunk(&c);
    if (x->x.flags & H_DECAYED)
        scan_decayed(x, h_in);
    return status;
}

/* Every rank's maps to every rank, by global segment; the caller frees all. */
static int gather(struct back *x, const struct kcp_plan *p, double **all)
{
    const int64_t map = size(x) + (int64_t)x->a->HV * x->a->K * x->a->K;
    int most = 1, status = KCP_OK;
    for (int r = 0; r < p->R; r++)
        most = p->ctx[r].NS > most ? p->ctx[r].NS : most;
    double *mine = room(x, most * map), *wire = room(x, p->R * most * map);
    *all = room(x, p->S * map);
    memcpy(mine, x->dmap, sizeof(double) * x->a->NS * map);
    if (p->R > 1)
        status = x->a->comm->all_gather(x->a->comm, mine, wire,
                                        sizeof(double) * most * map, NULL);
    else
        memcpy(wire, mine, sizeof(double) * most * map);
    for (int r = 0; r < p->R; r++)
        memcpy(*all + p->ctx[r].seg0 * map, wire + r * most * map,
               sizeof(double) * p->ctx[r].NS * map);
    return status;
}

/* dS <- op(M) dS + dh_ext of one map, for all heads; first: dS <- dh_ext. */
static void apply(const struct back *x, const double *map_, const double *M_, int first,
                  double *S_)
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

/* The fold of every segment of this rank, over the later ones of its sequence. */
static int exchange(struct back *x)
{
    const struct kcp_plan *p = x->a->plan;
    const int64_t map = size(x) + (int64_t)x->a->HV * x->a->K * x->a->K;
    const int f = x->x.flags, seg0 = p->ctx[x->a->r].seg0;
    double *all;
    int status = gather(x, p, &all);

    for (int s = 0; s < x->a->NS && !status && !(f & NO_EXCHANGE); s++) {
        const int j0 = seg0 + s + 1;
        int j1 = j0;
        while (j1 < p->S && p->seg[j1].n == p->seg[j0 - 1].n)
            j1++;
        for (int step = 0; step < j1 - j0; step++) {
            const int j = f & OUTWARD ? j0 + step : j1 - 1 - step;
            const struct kcp_context *c = &p->ctx[p->seg[j].rank];
            const int says = f & LAST_MAP && j == c->seg0 ? c->seg0 + c->NS - 1 : j;
            if (f & NEIGHBOUR && j > j0)
                continue;
            apply(x, all + says * map, all + (f & OWN_M ? j - 1 : says) * map,
                  step == 0 || f & NEIGHBOUR, x->states + s * size(x));
            if (f & TWICE && step == 0 && j1 - j0 > 1)
                apply(x, all + j * map, all + j * map, 0, x->states + s * size(x));
        }
    }
    return status;
}

static int carry(struct back *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t map = size(x) + (int64_t)a->HV * a->K * a->K;
    int *want = (int *)room(x, a->NS);
    STAGE(kcp_merge_backward, m);
    m.want = want, m.q = x->q, m.k = x->k, m.qg = x->qg, m.kg = x->kg, m.w = x->w;
    m.G = x->G, m.do_ = a->do_, m.dv_local = x->dv_local, m.dh_end = x->states;
    m.dmap = x->dmap = room(x, a->NS * map);
    m.reuse_M = 0;
    for (int s = 0; s < a->NS; s++)
        want[s] = KCP_WANT_H | KCP_WANT_M;
    rows(x, 1, x->x.flags & NO_DHT ? NULL : a->dht, x->states);
    int status = x->x.m11 ? x->x.m11->run(&m) : ref_merge_backward(&m);
    return status ? status : exchange(x);
}

static int chunks(struct back *x, int part)
{
    STAGE(kcp_chunk_backward, c);
    c.part = part;
    c.q = x->q, c.k = x->k, c.qg = x->qg, c.kg = x->kg, c.w = x->w, c.Aqk = x->Aqk;
    c.v_new = x->v_new, c.G = x->G, c.do_ = x->a->do_, c.dh_out = x->states;
    c.dAqk = x->dAqk, c.dv_local = x->dv_local, c.dU = x->dU, c.dh = x->dh;
    c.dh_in = x->dh_in;
    return x->x.c09 ? x->x.c09->run(&c) : ref_chunk_backward(&c);
}

static int down(struct back *x)
{
    const struct kcp_backward *a = x->a;
    STAGE(kcp_wy_backward, y);
    y.q = x->q, y.k = x->k, y.v = a->v, y.G = x->G, y.beta = x->beta, y.A = x->A;
    y.v_new = x->v_new, y.h = x->h, y.do_ = a->do_, y.dAqk = x->dAqk, y.dU = x->dU;
    y.dh = x->dh, y.dq = x->dq, y.dk = x->dk, y.dv = a->dv, y.dbeta = x->dbeta;
    y.dg = x->dg;
    STAGE(kcp_gate, g);
    g.pass = KCP_BACKWARD, g.q_raw = a->q_raw, g.k_raw = a->k_raw, g.g_raw = a->g_raw;
    g.beta_raw = a->beta_raw, g.A_log = a->A_log, g.dt_bias = a->dt_bias;
    g.dq = x->dq, g.dk = x->dk, g.dbeta = x->dbeta, g.dg = x->dg, g.dq_raw = a->dq_raw;
    g.dk_raw = a->dk_raw, g.dg_raw = a->dg_raw, g.dbeta_raw = a->dbeta_raw;
    g.dA_part = x->dA_part, g.ddt_part = x->ddt_part;
    const int status = x->x.wy10 ? x->x.wy10->run(&y) : ref_wy_backward(&y);
    return status ? status : ref_gate(&g);
}

static int parameters(struct back *x, const double *part, int64_t n, double *sum)
{
    if (sum && x->x.flags & OWN_SUM) {
        memset(sum, 0, sizeof(double) * n);
        for (int64_t e = 0; e < x->a->NS * n; e++)
            sum[e % n] += part[e];
        return KCP_OK;
    }
    return sum ? kcp_segment_sum(x->a->plan, x->a->comm, part, n, sum) : KCP_OK;
}

static void initial(struct back *x)
{
    const struct kcp_plan *p = x->a->plan;
    const double *dht = x->a->dht;
    double *dh0 = x->a->dh0;
    for (int s = 0; s < x->a->NS; s++)
        for (int64_t e = 0; e < size(x); e++)
            if (x->seg[s].first || x->x.flags & ALL_DH0)
                dh0[x->seg[s].n * size(x) + turn(x, e)] = x->dh_in[s * size(x) + e];
    for (int n = 0; n < p->N; n++)
        for (int64_t e = 0; e < size(x); e++)
            if (p->h0_rank[n] == x->a->r && p->cu_seqlens[n] == p->cu_seqlens[n + 1])
                dh0[n * size(x) + e] = dht && !(x->x.flags & EMPTY_0)
                                           ? dht[n * size(x) + e] : 0;
}

static int mutate(const struct kcp_backward *a, struct plot plot)
{
    const int64_t TH = a->T * a->H, TV = a->T * a->HV;
    struct back y = { .a = a, .x = plot }, *x = &y;
    y.seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    int status = plot.flags & NOTHING ? KCP_OK : again(x);

    if (plot.flags & NOTHING)
        return status;
    x->dAqk = room(x, TV * a->C), x->dv_local = room(x, TV * a->V);
    x->dU = room(x, TV * a->V), x->dh = room(x, a->NC * size(x));
    x->dh_in = room(x, a->NS * size(x)), x->states = room(x, a->NS * size(x));
    x->dq = room(x, TH * a->K), x->dk = room(x, TH * a->K);
    x->dbeta = room(x, TV), x->dg = room(x, TV * a->KG);
    x->dA_part = room(x, (int64_t)a->NS * a->HV);
    x->ddt_part = room(x, (int64_t)a->NS * a->HV * a->KG);
    status = status ? status : chunks(x, KCP_LOCAL);
    status = status ? status : carry(x);
    status = status ? status : chunks(x, KCP_REVERSE);
    status = status ? status : down(x);
    if (!status)
        initial(x);
    status = status ? status : parameters(x, x->dA_part, a->HV, a->dA_log);
    status = status ? status : parameters(x, x->ddt_part, (int64_t)a->HV * a->KG,
                                          a->ddt_bias);
    for (int j = 0; j < x->ngot; j++)
        free(x->got[j]);
    return status;
}

#define RECORD(ident, name, why, ...)                                                 \
    static int run_##ident(void *args)                                                \
    {                                                                                 \
        return mutate(args, (struct plot){ __VA_ARGS__ });                            \
    }                                                                                 \
    KCP_VARIANT(m13_##ident) = { "13_backward", name, why, KCP_F64, KCP_HOST,          \
                                 "any shape", run_##ident, NULL }
#define MUTANT(ident, why, ...) RECORD(ident, "mutant_" #ident, why, __VA_ARGS__)

RECORD(twin, "twin", "the same code, every flag off", .flags = 0);
MUTANT(undecayed, "errata 1: the delta's key meets the undecayed state",
       .wy10 = &m10_undecayed);
MUTANT(last_map, "errata 6: a rank describes its LAST sequence to earlier ranks",
       .flags = LAST_MAP);
MUTANT(h_decayed, "errata 7: recomputes with h decayed before v_new",
       .flags = H_DECAYED);
MUTANT(dS_decayed, "errata 8: pre-process decays dS, then dU = kg dS",
       .m11 = &m11_decay_first);
MUTANT(dS_decayed_too, "errata 8: the reverse scan decays dS, then dU = kg dS",
       .c09 = &m09_decay_first);
MUTANT(in_order, "errata 17: pre-process walks the chunks first to last",
       .m11 = &m11_in_order);
MUTANT(own_M, "errata 18: dS_r = M_r dS_{r+1} + dH_{r+1}", .flags = OWN_M);
MUTANT(not_turned, "applies M where M^T belongs", .flags = NOT_TURNED);
MUTANT(outward, "errata 19: folds from the nearest later rank outward",
       .flags = OUTWARD);
MUTANT(beta_outside, "errata 34: beta outside the sum", .wy10 = &m10_beta_outside);
MUTANT(diagonal, "errata 38: what cancels let into dG", .wy10 = &m10_diagonal);
MUTANT(no_dht, "drops dht", .flags = NO_DHT);
MUTANT(no_dht_map, "drops dht where it enters the map", .m11 = &m11_no_end);
MUTANT(no_exchange, "dS = 0 at every cut", .flags = NO_EXCHANGE);
MUTANT(neighbour, "dS from the next segment alone", .flags = NEIGHBOUR);
MUTANT(twice, "the farthest map applied twice", .flags = TWICE);
MUTANT(no_state, "recomputes from 0: forward's merged state forgotten", .flags = NO_H0);
MUTANT(own_sum, "dA_log, ddt_bias of this rank's tokens alone", .flags = OWN_SUM);
MUTANT(all_dh0, "dh0 from ranks where the sequence does not start", .flags = ALL_DH0);
MUTANT(empty_0, "dh0 = 0 for a sequence without tokens", .flags = EMPTY_0);
MUTANT(as_kv, "reads dht and writes dh0 as [K,V] whatever is asked", .flags = AS_KV);
MUTANT(writes_nothing, "returns at once", .flags = NOTHING);
