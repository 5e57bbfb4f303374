/* 15_rank.c -- Spike-KDA on several ranks: computes and exchanges maps of segments.
 * Book: chapter 15. */
#include "15_scan.h"
#include "moves.h"

#include <string.h>

/* Allocates `count` arrays of `numbers` elements each. Returns an array of pointers. */
static double **arrays(struct rank_arrays *x, int64_t count, int64_t numbers)
{
    double **p = rank_zeros(x, count), *all = rank_zeros(x, count * numbers);
    for (int64_t j = 0; j < count && !x->full; j++) p[j] = all + j * numbers;
    return p;
}

/* Allocates the arrays of one pass. The scan of a tile of up to C tokens needs C maps
 * and C states. In forward, arrays grow with the number of segments, but not with T. */
static int prepare(struct spike_rank *x)
{
    const struct kcp_scan *a = x->a;
    const int64_t KV = (int64_t)a->HV * a->K * a->V, row = (int64_t)a->HV * a->V + 1;
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    int rows = 1, longest = 1;
    for (int r = 0; r < x->plan->R; r++)
        rows = x->plan->ctx[r].NS > rows ? x->plan->ctx[r].NS : rows;
    for (int c = 0; c < a->NC; c++)
        longest = scan_tile(x, c).n > longest ? scan_tile(x, c).n : longest;
    const int back = a->pass == KCP_BACKWARD;
    struct rank_arrays *own = &x->own;
    x->alpha = rank_zeros(own, a->K); x->spare = rank_zeros(own, map);
    x->node = arrays(own, longest, map); x->before = arrays(own, longest, KV);
    x->maps = rank_zeros(own, a->NS * map); x->states = rank_zeros(own, a->NS * KV);
    x->rows = rank_zeros(own, (rows + 1) * row);
    x->all = rank_zeros(own, x->plan->R * rows * row);
    if (back) {
        x->after = arrays(own, longest, KV); x->ends = rank_zeros(own, a->NS * KV);
        x->dO = rank_zeros(own, a->T * a->HV * a->V);
        x->tile_h = rank_zeros(own, a->NC * KV);
        x->part = rank_zeros(own, (a->NS + 1) * a->HV * (a->K + 1) * a->D);
    }
    return x->own.full ? KCP_NO_MEMORY : KCP_OK;
}

/* Computes x->maps [s] = [h | M] of segment s, tile by tile. The map starts from
 * [states [s] | I]. states [s] is h0 if s starts its sequence (backward: dht if s ends
 * its sequence), otherwise 0. */
static int map_of(struct spike_rank *x, int s, int backward, const double *states)
{
    const struct kcp_scan *a = x->a;
    const int K = a->K, V = a->V, ld = V + K, *cn = a->cn;
    const int want = kcp_plan_want(x->plan, x->plan->ctx[a->r].seg0 + s, backward);
    double (*map)[K][ld] = (void *)(x->maps + (int64_t)s * a->HV * K * ld);
    int status = KCP_OK;
    for (int n = 0; n < a->HV && want; n++)
        for (int i = 0; i < K; i++)
            for (int v = 0; v < ld; v++)
                map[n][i][v] = v < V ? states[((s * a->HV + n) * K + i) * V + v]
                                     : v - V == i;
    for (int c = 0; c < cn[s + 1] - cn[s] && want && !status; c++)
        status = scan_advance(
            x, scan_tile(x, backward ? cn[s + 1] - 1 - c : cn[s] + c), backward,
            want & KCP_WANT_M ? ld : V, ld, &map[0][0][0]);
    return status;
}

/* Sets states [s] to the state at the start of segment s (backward: to the gradient of
 * the state at the end of s), by the exchange of chapter 07. */
static int carry(struct spike_rank *x, int backward, double *states)
{
    const struct kcp_scan *a = x->a;
    struct kcp_exchange e = {
        .form = a->form, .backward = backward, .blocks = a->blocks, .HV = a->HV,
        .K = a->K, .V = a->V, .plan = x->plan, .comm = a->comm, .ops = x->ops,
        .maps = x->maps, .states = states };
    int status = KCP_OK;
    e.work = rank_zeros(&x->own, kcp_moves->exchange_work(&e) / sizeof(double) + 1);
    if (x->own.full) return KCP_NO_MEMORY;
    rank_enter(a, backward, backward ? a->dht : a->h0, states);
    for (int s = 0; s < a->NS && !status; s++)
        status = map_of(x, s, backward, states);
    return status ? status : kcp_moves->exchange_run(&e);
}

/* Computes, for backward, the state at the start of every tile, in token order. */
static int tile_states(struct spike_rank *x)
{
    const struct kcp_scan *a = x->a;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    int status = KCP_OK;
    for (int c = 0; c < a->NC && !status; c++) {
        const struct tile y = scan_tile(x, c);
        memcpy(x->tile_h + c * KV, x->states + y.s * KV, sizeof(double) * KV);
        status = scan_advance(x, y, 0, a->V, a->V, x->states + y.s * KV);
    }
    return status;
}

/* Writes ht (backward: dh0) of the sequences that end (backward: start) on this rank,
 * and ot (do0) of empty sequences. 15_repeat.c writes the rest of ot (do0). */
static void leave(const struct spike_rank *x, int back)
{
    const struct kcp_scan *a = x->a;
    rank_leave(a, back, back ? x->ends : x->states, back ? a->dht : a->h0,
               back ? a->dh0 : a->ht);
    rank_pass(a, back, back ? a->dot : a->o0, (int64_t)a->HV * a->V,
              back ? a->do0 : a->ot);
}

/* Computes dW_alpha and dw_beta as sums over the segments of all ranks. */
static int into_weights(struct spike_rank *x)
{
    const struct kcp_scan *a = x->a;
    const int64_t W = (int64_t)a->HV * a->K * a->D, w = (int64_t)a->HV * a->D;
    double *sum = x->part + a->NS * (W + w);
    const int status = kcp_moves->parameter_sum((const struct kcp_call *)a, x->part,
                                                W + w, sum);
    if (a->dW_alpha) memcpy(a->dW_alpha, sum, sizeof *sum * W);
    if (a->dw_beta) memcpy(a->dw_beta, sum + W, sizeof *sum * w);
    return status;
}

static int outputs(struct spike_rank *x)
{
    return scan_outputs(x) ? KCP_NO_MEMORY : scan_repeat(x);
}

static int gradients(struct spike_rank *x)
{
    int status = tile_states(x);
    if (!status) status = carry(x, 1, x->ends);
    if (!status) status = scan_gradients(x);
    return status ? status : into_weights(x);
}

static int program(struct spike_rank *x)
{
    const struct kcp_scan *a = x->a;
    const int back = a->pass == KCP_BACKWARD;
    int status;
    x->seg = x->plan->seg + x->plan->ctx[a->r].seg0;
    //> program
    status = prepare(x);
    if (!status && back) status = scan_spread(x);
    if (!status) status = carry(x, 0, x->states);
    if (!status) status = back ? gradients(x) : outputs(x);
    if (!status) leave(x, back);
    //< program
    return status;
}

/* Computes o, ht and ot (backward: all gradients) of this rank's shard. Returns
 * KCP_BAD if the plan is missing or does not match the call. If a rank fails, all
 * ranks return an error. */
int ref_scan(struct kcp_scan *a)
{
    const int refused = kcp_begin("15_scan", KCP_HOST, a, NULL);
    if (refused) return refused;
    struct spike_rank x = { .a = a, .plan = a->plan,
                            .ops = a->ops ? a->ops : &ref_mapops };
    kcp_checked_enter();
    return rank_end(a, &x.own, program(&x), "15_scan");
}
