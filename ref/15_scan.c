/* 15_scan.c -- computes Spike-KDA tile by tile, in three passes: updates, scan and
 * emit.
 * Book: chapter 15.
 *
 * A tile has C tokens. Besides arrays per segment, forward needs memory for C maps and
 * C states, for any T. Backward needs memory for C maps, 2 C states, one state per tile
 * and one row per token. */
#include "15_scan.h"

#include <string.h>

static int64_t state_size(const struct spike_rank *x)
{
    return (int64_t)x->a->HV * x->a->K * x->a->V;
}

struct tile scan_tile(const struct spike_rank *x, int c)
{
    const struct kcp_scan *a = x->a;
    const int s = a->sc[c], left = a->cu[s + 1];
    const int64_t t = a->cu[s] + (int64_t)(c - a->cn[s]) * a->C;
    return (struct tile){ s, left - t < a->C ? left - t : a->C, t };
}

static struct spike_token token(const struct spike_rank *x, int64_t t, int n)
{
    const int64_t W = (int64_t)x->a->HV * x->a->K * x->a->D;
    return spike_token(x->a, t, n, x->dO, x->part, x->part ? x->part + W : NULL,
                       x->alpha);
}

/* Sets state[e] to the state before token e of the tile. S is the state before the
 * tile. In backward, sets state[e] to the gradient of the state after token n-1-e of
 * the tile's n tokens. S is the gradient of the state after the tile. */
static int fill(struct spike_rank *x, struct tile y, int backward, const double *S,
                double **state)
{
    memcpy(state[0], S, sizeof *S * state_size(x));
    scan_updates(x, y, backward);
    const int status = scan_up(x, y.n, backward);
    return status ? status : scan_down(x, y.n, backward, state);
}

/* Pass 3. Applies each token to the state before the token and computes the token's
 * output. Sets S to the state after the tile. */
static void emit(struct spike_rank *x, struct tile y, double *S)
{
    const struct kcp_scan *a = x->a;
    const int64_t KV = (int64_t)a->K * a->V;
    for (int e = 0; e < y.n; e++)
        for (int n = 0; n < a->HV; n++) {
            const struct spike_token t = token(x, y.t0 + e, n);
            spike_step(&t, x->before[e] + n * KV);
            if (t.emits)
                spike_read(&t, x->before[e] + n * KV,
                           (double *)a->o + ((y.t0 + e) * a->HV + n) * a->V);
        }
    memcpy(S, x->before[y.n - 1], sizeof *S * a->HV * KV);
}

/* Applies a tile's map to W columns of S [HV,K,ld]: the V columns of a state or of a
 * map's h, or all V + K columns of a map. */
int scan_advance(struct spike_rank *x, struct tile y, int backward, int W, int ld,
                 double *S)
{
    const int HV = x->a->HV, K = x->a->K, V = x->a->V;
    scan_updates(x, y, backward);
    int status = scan_up(x, y.n, backward);
    const double *map = x->node[y.n - 1];
    if (status) return status;
    if (W == V)
        return x->ops->apply(HV, K, V, map, backward, 0, 0, V, S, ld, S, ld,
                             x->a->stream);
    status = x->ops->compose(HV, K, V, map, S, backward, 0, x->spare, x->a->stream);
    memcpy(S, x->spare, sizeof *S * HV * K * (V + K));
    return status;
}

/* Computes o of every token that is not dropped. Sets states [s] to the state at the
 * end of segment s. */
int scan_outputs(struct spike_rank *x)
{
    int status = KCP_OK;
    for (int c = 0; c < x->a->NC && !status; c++) {
        const struct tile y = scan_tile(x, c);
        double *S = x->states + y.s * state_size(x);
        status = fill(x, y, 0, S, x->before);
        if (!status) emit(x, y, S);
    }
    return status;
}

/* Computes all gradients, from the last tile to the first. Sets ends [s] to the
 * gradient of the state at the start of segment s. In the loop, x->part points to
 * the sums of dW_alpha and dw_beta over the tile's segment. */
int scan_gradients(struct spike_rank *x)
{
    const struct kcp_scan *a = x->a;
    const int64_t KV = state_size(x), one = (int64_t)a->HV * (a->K + 1) * a->D;
    double *const part = x->part;
    int status = KCP_OK;
    spike_clear(a);
    for (int c = a->NC - 1; c >= 0 && !status; c--) {
        const struct tile y = scan_tile(x, c);
        double *dS = x->ends + y.s * KV;
        x->part = part + y.s * one;
        status = fill(x, y, 0, x->tile_h + c * KV, x->before);
        if (!status) status = fill(x, y, 1, dS, x->after);
        if (status) break;
        for (int64_t j = (int64_t)y.n * a->HV - 1; j >= 0; j--) {
            const int e = j / a->HV, n = j % a->HV;
            const int64_t at = (int64_t)n * a->K * a->V;
            const struct spike_token t = token(x, y.t0 + e, n);
            double *after = x->after[y.n - 1 - e] + at;
            spike_gradients(&t, x->before[e] + at, after);
            if (e == 0)    /* `after` <- gradient of the state before the tile */
                spike_back(&t, after);
        }
        memcpy(dS, x->after[y.n - 1], sizeof *dS * KV);
    }
    x->part = part;
    return status;
}
