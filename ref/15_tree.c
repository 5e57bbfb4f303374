/* 15_tree.c -- Blelloch's scan over the maps of a tile: updates, up pass, down pass.
 * Book: chapter 15.
 *
 * A tile's tokens are the leaves of a tree. If the number of tokens is not a power of
 * two, a level's last block (subtree) may be shorter. A block's map is stored at the
 * block's last leaf. Blelloch's down pass computes prefix maps. Here a tile has only
 * one initial state, so the down pass computes states, which cost less than maps. */
#include "15_scan.h"

/* Computes the map [B | A] of a token, with B = beta k v^T and
 * A = diag(alpha) - beta k (alpha k)^T. For backward, computes [A^T q dO^T | A]:
 * backward maps contain A but are applied with A^T. */
static void map_of(const struct spike_token *x, int backward, double *map_)
{
    const int K = x->K, V = x->V;
    double (*map)[V + K] = (void *)map_, qk = 0;
    for (int p = 0; p < K && backward; p++) qk += x->q[p] * x->k[p];
    //> updates
    for (int i = 0; i < K; i++) {
        const double b = x->beta * x->k[i];
        const double Aq = x->emits ? x->alpha[i] * (x->q[i] - b * qk) : 0;
        const double h = backward ? Aq : b;
        for (int v = 0; v < V; v++)
            map[i][v] = h * (backward ? x->dO[v] : x->v[v]);
        for (int p = 0; p < K; p++)
            map[i][V + p] = (i == p ? x->alpha[i] : 0) - b * x->alpha[p] * x->k[p];
    }
    //< updates
}

/* Pass 1. Sets node[e] to the map of token e of the tile (backward: of token n-1-e). */
void scan_updates(struct spike_rank *x, struct tile y, int backward)
{
    const int HV = x->a->HV, K = x->a->K, V = x->a->V;
    for (int e = 0; e < y.n; e++)
        for (int n = 0; n < HV; n++) {
            const struct spike_token t = spike_token(
                x->a, backward ? y.t0 + y.n - 1 - e : y.t0 + e, n, x->dO, NULL, NULL,
                x->alpha);
            map_of(&t, backward, x->node[e] + (int64_t)n * K * (V + K));
        }
}

//> tree
/* Pass 2, up. For blocks of 2, 4, 8 ... leaves, replaces the map of the right half by
 * the map of the block. Maps of left halves do not change. On return node[n-1] is the
 * tile's map. */
int scan_up(struct spike_rank *x, int n, int backward)
{
    const struct kcp_scan *a = x->a;
    int status = KCP_OK;
    //> up
    for (int d = 1; d < n; d *= 2)
        for (int i = 0; i + d < n && !status; i += 2 * d) {
            const int left = i + d - 1, right = (i + 2 * d < n ? i + 2 * d : n) - 1;
            status = x->ops->compose(a->HV, a->K, a->V, x->node[right], x->node[left],
                                     backward, 0, x->spare, a->stream);
            double *const old = x->node[right];
            x->node[right] = x->spare; x->spare = old;
        }
    //< up
    return status;
}

/* Pass 2, down. On entry state[0] is the state before the tile. For each block, applies
 * the left half's map to the state before the block's first leaf. The result is the
 * state before the right half. On return state[e] is the state before leaf e. */
int scan_down(struct spike_rank *x, int n, int backward, double **state)
{
    const struct kcp_scan *a = x->a;
    int top = 1, status = KCP_OK;
    while (2 * top < n) top *= 2;
    //> down
    for (int d = top; d >= 1; d /= 2)
        for (int i = 0; i + d < n && !status; i += 2 * d) {
            const double *left = x->node[i + d - 1];
            status = x->ops->apply(a->HV, a->K, a->V, left, backward, 0, 0, a->V,
                                   state[i], a->V, state[i + d], a->V, a->stream);
        }
    //< down
    return status;
}
//< tree
