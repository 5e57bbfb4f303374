/* mutants.c -- computes backward with one deliberate error in the use of stages.
 * Book: chapter 13.
 * The code is a copy of ref_backward. The code calls the stages' references, or
 * mutants of chapters 04 and 09 to 11. The exchange sends each map to all ranks. */
#include "wrong.h"
#include "base/bf16.h"

extern const struct kcp_variant m04_decay_first, m09_decay_first, m09_in_order,
    m09_uncarried, m10_beta_outside, m10_undecayed, m10_diagonal, m10_divided,
    m10_shorter, m10_shorter_not_turned, m10_shorter_last_row, m10_shorter_unrounded,
    m11_decay_first, m11_in_order, m11_no_end, m11_head_0, m11_last_chunk;

static int chunks(struct wrong_rank *x, int part)
{
    STAGE(kcp_chunk_backward, c);
    c.part = part;
    c.q = x->q; c.k = x->k; c.qg = x->qg; c.kg = x->kg; c.w = x->w; c.Aqk = x->Aqk;
    c.v_new = x->v_new; c.G = x->G; c.do_ = x->a->do_; c.dh_out = x->states;
    c.dAqk = x->dAqk; c.dv_local = x->dv_local; c.dU = x->dU; c.dh = x->dh;
    c.dh_in = x->dh_in;
    return x->x.c09 ? x->x.c09->run(&c) : ref_chunk_backward(&c);
}

static int down(struct wrong_rank *x)
{
    const struct kcp_backward *a = x->a;
    STAGE(kcp_wy_backward, y);
    y.q = x->q; y.k = x->k; y.v = a->v; y.G = x->G; y.beta = x->beta; y.A = x->A;
    y.v_new = x->v_new; y.h = x->h; y.do_ = a->do_; y.dAqk = x->dAqk; y.dU = x->dU;
    y.dh = x->dh; y.dq = x->dq; y.dk = x->dk; y.dv = a->dv; y.dbeta = x->dbeta;
    y.dg = x->dg;
    STAGE(kcp_gate, g);
    g.pass = KCP_BACKWARD; g.q_raw = a->q_raw; g.k_raw = a->k_raw; g.g_raw = a->g_raw;
    g.beta_raw = a->beta_raw; g.A_log = a->A_log; g.dt_bias = a->dt_bias;
    g.dq = x->dq; g.dk = x->dk; g.dbeta = x->dbeta; g.dg = x->dg; g.dq_raw = a->dq_raw;
    g.dk_raw = a->dk_raw; g.dg_raw = a->dg_raw; g.dbeta_raw = a->dbeta_raw;
    g.dA_part = x->dA_part; g.ddt_part = x->ddt_part;
    const int status = x->x.wy10 ? x->x.wy10->run(&y) : ref_wy_backward(&y);
    return status ? status : ref_gate(&g);
}

static int parameters(struct wrong_rank *x, const double *part, int64_t n, double *sum)
{
    if (sum && x->x.flags & OWN_SUM) {
        memset(sum, 0, sizeof(double) * n);
        for (int64_t e = 0; e < x->a->NS * n; e++) sum[e % n] += part[e];
        return KCP_OK;
    }
    return sum ? kcp_segment_sum(x->a->plan, x->a->comm, part, n, sum) : KCP_OK;
}

static void initial(struct wrong_rank *x)
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

static int mutate(const struct kcp_backward *a, struct mistake m)
{
    const int64_t TH = a->T * a->H, TV = a->T * a->HV;
    struct wrong_rank y = { .a = a, .x = m }, *x = &y;
    y.seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    if (a->plan->scattered)                    /* several ranges: 08 owners.c */
        return KCP_NA;
    struct kcp_backward rounded = *a;
    if (m.flags & GATE_BF16) {
        double *g = zeros(x, TV * a->KG);
        for (int64_t e = 0; e < TV * a->KG; e++)
            g[e] = bf16_value(bf16_of(((const double *)a->g_raw)[e]));
        rounded.g_raw = g;
        x->a = &rounded;
    }
    int status = m.flags & NOTHING ? KCP_OK : wrong_recompute(x);

    if (m.flags & NOTHING) return status;
    if (!status && m.flags & STRIPS) status = wrong_strips(x);
    if (!status) a = x->a;
    x->dAqk = zeros(x, TV * a->C); x->dv_local = zeros(x, TV * a->V);
    x->dU = zeros(x, TV * a->V);
    x->dh = zeros(x, a->NC * size(x));
    x->dh_in = zeros(x, a->NS * size(x));
    x->states = zeros(x, a->NS * size(x));
    x->dq = zeros(x, TH * a->K); x->dk = zeros(x, TH * a->K);
    x->dbeta = zeros(x, TV); x->dg = zeros(x, TV * a->KG);
    x->dA_part = zeros(x, (int64_t)a->NS * a->HV);
    x->ddt_part = zeros(x, (int64_t)a->NS * a->HV * a->KG);
    status = status ? status : chunks(x, KCP_LOCAL);
    status = status ? status : wrong_carry(x);
    status = status ? status : chunks(x, KCP_REVERSE);
    status = status ? status : down(x);
    if (!status) initial(x);
    status = status ? status : parameters(x, x->dA_part, a->HV, a->dA_log);
    status = status ? status : parameters(x, x->ddt_part, (int64_t)a->HV * a->KG,
                                          a->ddt_bias);
    for (int j = 0; j < x->ngot; j++) free(x->got[j]);
    kcp_plan_free(x->strips);
    return status;
}

#define RECORD(ident, name, why, ...)                                                 \
    static int run_##ident(void *args)                                                \
    {                                                                                 \
        return mutate(args, (struct mistake){ __VA_ARGS__ });                         \
    }                                                                                 \
    KCP_VARIANT(m13_##ident) = { "13_backward", name, why, KCP_F64, KCP_HOST,          \
                                 "a rank with one range of tokens", run_##ident, NULL }
#define MUTANT(ident, why, ...) RECORD(ident, "mutant_" #ident, why, __VA_ARGS__)

RECORD(twin, "twin", "correct: runs the mutants' code without a mistake", .flags = 0);
MUTANT(undecayed, "errata 1: applies the delta rule to the undecayed state",
       .wy10 = &m10_undecayed);
MUTANT(last_map, "errata 6: sends the map of a rank's last segment, not its first",
       .flags = LAST_MAP);
MUTANT(h_decayed, "errata 7: computes v_new from the decayed h",
       .c04 = &m04_decay_first);
MUTANT(dS_decayed, "errata 8: the map computes dU = kg dS from the decayed dS",
       .m11 = &m11_decay_first);
MUTANT(dS_decayed_too, "errata 8: the scan computes dU = kg dS from the decayed dS",
       .c09 = &m09_decay_first);
MUTANT(in_order, "errata 17: the map's scan visits chunks first to last, not reversed",
       .m11 = &m11_in_order);
MUTANT(own_M, "errata 18: dS_r = M_r dS_{r+1} + dH_{r+1}", .flags = OWN_M);
MUTANT(not_turned, "applies M instead of M^T", .flags = NOT_TURNED);
MUTANT(outward, "errata 19: applies the nearest later rank's map first, not last",
       .flags = OUTWARD);
MUTANT(beta_outside, "errata 34: dk_j uses beta_j, not beta_i",
       .wy10 = &m10_beta_outside);
MUTANT(diagonal, "errata 38: dG has terms i = j that do not cancel in bf16",
       .wy10 = &m10_diagonal);
MUTANT(divided, "multiplies dbeta by beta / (beta + 1e-10), which is 0 at beta = 0",
       .wy10 = &m10_divided);
MUTANT(no_dht, "ignores dht", .flags = NO_DHT);
MUTANT(no_dht_map, "dh_ext starts from 0 instead of dht", .m11 = &m11_no_end);
MUTANT(head_0, "FLA #1115: each head's dh_ext decays by head 0's gates, so all ranks "
       "but the last get wrong gradients", .m11 = &m11_head_0);
MUTANT(uncarried, "the reverse scan starts each chunk from dS = 0",
       .c09 = &m09_uncarried);
MUTANT(last_chunk, "sends only the map of the last chunk", .m11 = &m11_last_chunk);
MUTANT(no_exchange, "FLA #1004: sets dS to 0 at all cuts", .flags = NO_EXCHANGE);
MUTANT(neighbour, "dS is only dh_ext of the next segment", .flags = NEIGHBOUR);
MUTANT(twice, "applies the farthest map twice", .flags = TWICE);
MUTANT(no_state, "after a cut, recomputes h from 0, not from the saved state",
       .flags = NO_H0);
MUTANT(own_sum, "does not sum dA_log and ddt_bias over ranks", .flags = OWN_SUM);
MUTANT(all_dh0, "writes dh0 on ranks without the sequence's start", .flags = ALL_DH0);
MUTANT(empty_0, "sets dh0 of a sequence without tokens to 0", .flags = EMPTY_0);
MUTANT(as_kv, "in layout [V,K], uses h0, dht and dh0 as [K,V]", .flags = AS_KV);
MUTANT(gate_bf16, "rounds gates of a wider type to bf16", .flags = GATE_BF16);
MUTANT(writes_nothing, "returns at once", .flags = NOTHING);

/* The next variants differentiate (I + L)^-1 by the shorter formula of chapter 18. */
RECORD(twin_shorter, "twin_shorter", "correct: uses chapter 18's shorter formula",
       .flags = FLOOR, .wy10 = &m10_shorter);
MUTANT(no_floor, "divides by beta even if it is 0", .wy10 = &m10_shorter);
MUTANT(triangle, "dv = A beta x, without transposing A",
       .flags = FLOOR, .wy10 = &m10_shorter_not_turned);
MUTANT(tail_row, "adds dG_last to a chunk's last row but one", .flags = FLOOR,
       .wy10 = &m10_shorter_last_row);
MUTANT(unrounded, "multiplies sums of rounded operands by unrounded operands",
       .flags = FLOOR, .wy10 = &m10_shorter_unrounded);

/* The next variants cut sequences into parts called strips (chapter 18). */
RECORD(twin_strips, "twin_strips", "correct: cuts into strips", .flags = STRIPS);
MUTANT(strips_outward, "applies the nearest later part's map first, not last",
       .flags = STRIPS | OUTWARD);
MUTANT(strips_not_turned, "applies M of a strip (a part) instead of M^T",
       .flags = STRIPS | NOT_TURNED);
MUTANT(strips_neighbour, "dS of a part (strip) is only dh_ext of the next part",
       .flags = STRIPS | NEIGHBOUR);
MUTANT(strips_next_start, "a part (strip) starts from the next part's state",
       .flags = STRIPS | NEXT_START);
MUTANT(strips_no_dht, "the last part (strip) ignores dht", .flags = STRIPS | NO_DHT);

/* The next variants read the saved block (chapter 12). */
RECORD(twin_modes, "twin_modes", "correct: reads the saved block", .flags = OF_BLOCK);
MUTANT(stale_triangle, "reads Aqk and A of the previous chunk",
       .flags = OF_BLOCK | STALE);
MUTANT(next_h, "in mode save-all, reads the state of the next chunk",
       .flags = OF_BLOCK | NEXT_H);
MUTANT(other_v_new, "in mode save-all, reads v_new of the next value head",
       .flags = OF_BLOCK | OTHER_HEAD);
MUTANT(recompute_gate, "in mode recompute, recomputes factors without dt_bias",
       .flags = OF_BLOCK | WRONG_GATE);
