// program.cu -- one rank's Spike-KDA: tiles, maps, repeated outputs, and backward.
// Book: chapter 15, "Code: kernels".
#include "core/paths.h"
#include "rank.cuh"

// Returns tile c (a chunk) of segment s, and launches the kernel of the tile's gates.
template <class X>
static struct tile tile_of(const struct scan *x, int s, int c)
{
    struct tile y = x->x;
    y.t0 = x->ctx->cu[s] + (int64_t)(c - x->ctx->cn[s]) * x->a.C;
    const int64_t left = x->ctx->cu[s + 1] - y.t0;
    y.n = left < x->a.C ? (int)left : x->a.C;
    gates<X><<<dim3(y.n, x->a.HV), 128, 0, x->a.stream>>>(y);
    return y;
}

static struct product product_of(const struct scan *x, const struct tile &y, float *z)
{
    return { UP, x->a.HV, x->a.K, x->a.V, y.n, 1, x->a.V, y.node, y.decay, z, x->tmp,
             NULL, x->decay };
}

static void copy_floats(const struct scan *x, float *to, const float *from, int64_t n)
{
    cudaMemcpyAsync(to, from, sizeof(float) * n, cudaMemcpyDeviceToDevice, x->a.stream);
}

// Computes the map of each token (a leaf of the tree), then composes maps up to the
// root.
template <class X>
static int build_tree(const struct scan *x, const struct tile &y, int back)
{
    const int threads = threads_for(x->a.V + x->a.K, 256);
    updates<X><<<dim3(y.n, x->a.HV), threads, 0, x->a.stream>>>(y, back);
    return tree_up(product_of(x, y, NULL), x->by.run, x->a.stream);
}

// Applies the map of a tile, the root of the tile's tree, to S. S is a map (W = V + K
// columns) or a state (W = V columns). Rows of S are `ld` numbers apart.
static int apply_root(const struct scan *x, const struct tile &y, int W, int ld,
                      float *S)
{
    struct product p = product_of(x, y, NULL);
    const int64_t map = state_size(x) + (int64_t)x->a.HV * x->a.K * x->a.K;
    p.what = W == x->a.V ? ROOT : UNDER;
    p.from = S;
    p.ld = ld;
    const int status = x->by.run(&p, x->a.stream);
    if (p.what == UNDER) {
        const int64_t D = (int64_t)x->a.HV * x->a.K;
        copy_floats(x, S, y.node + (y.n - 1) * map, map);
        copy_floats(x, x->decay, y.decay + (y.n - 1) * D, D);
    } else
        cudaMemcpy2DAsync(S, sizeof(float) * ld, x->tmp, sizeof(float) * W,
                          sizeof(float) * W, (size_t)x->a.HV * x->a.K,
                          cudaMemcpyDeviceToDevice, x->a.stream);
    return status;
}

template <class X>
static int advance_tile(const struct scan *x, int s, int c, int back, int W, int ld,
                        float *S)
{
    const struct tile y = tile_of<X>(x, s, c);
    if (scanned(x, s)) {
        const int status = build_tree<X>(x, y, back);
        return status ? status : apply_root(x, y, W, ld, S);
    }
    if (back) sequential_tile<X, 1, 0>(y, W, ld, S, NULL);
    else sequential_tile<X, 0, 0>(y, W, ld, S, NULL);
    return launched();
}

// Computes the maps of segments tile by tile, then runs chapter 07's exchange.
template <class X>
static int carry_maps(struct scan *x, int back, float *states)
{
    const struct kcp_scan *a = &x->a;
    const int *cn = x->ctx->cn, ld = a->V + a->K;
    const int64_t KV = state_size(x), map = (int64_t)a->HV * a->K * ld;
    int status = KCP_OK;
    states_in((const struct kcp_call *)a, back, back ? a->dht : a->h0, states);
    for (int s = 0; s < a->NS && !status; s++) {
        const int want = kcp_plan_want(a->plan, x->ctx->seg0 + s, back);
        const int W = want & KCP_WANT_M ? ld : a->V;
        if (!want && a->plan->R > 1)             // unused here, but maybe sent
            cudaMemsetAsync(x->maps + s * map, 0, sizeof(float) * map, a->stream);
        if (!want) continue;
        float *decay = scanned(x, s) ? x->decay : NULL;
        begin_map<<<a->HV, 256, 0, a->stream>>>(a->K, a->V, states + s * KV, decay,
                                                x->maps + s * map);
        for (int c = 0; c < cn[s + 1] - cn[s] && !status; c++)
            status = advance_tile<X>(x, s, back ? cn[s + 1] - 1 - c : cn[s] + c, back,
                                     W, ld, x->maps + s * map);
        end_map<<<a->HV, 256, 0, a->stream>>>(a->K, a->V, decay, back,
                                              x->maps + s * map);
    }
    x->e.backward = back;
    x->e.states = states;
    return status ? status : exchange(&x->e);
}

template <class X>
static int outputs(struct scan *x)
{
    const struct kcp_scan *a = &x->a;
    const int64_t KV = state_size(x);
    int status = KCP_OK;
    for (int s = 0; s < a->NS; s++)
        for (int c = x->ctx->cn[s]; c < x->ctx->cn[s + 1] && !status; c++) {
            const struct tile y = tile_of<X>(x, s, c);
            float *S = x->states + s * KV;
            if (!scanned(x, s)) {
                sequential_tile<X, 0, 1>(y, a->V, a->V, S, NULL);
                continue;
            }
            copy_floats(x, y.before, S, KV);
            status = build_tree<X>(x, y, 0);
            if (!status)
                status = tree_down(product_of(x, y, y.before), x->by.run, a->stream);
            emit<X><<<dim3(y.n, a->HV), threads_for(a->V, KMAX), 0, a->stream>>>(y, S);
        }
    return status ? status : launched();
}

// Fills `states` with the state before each token of a tile (backward: the gradient
// after each token). Backward then replaces S by the gradient before the tile.
template <class X>
static int fill_states(struct scan *x, int s, const struct tile &y, int back, float *S,
                       float *states)
{
    if (!scanned(x, s)) {
        if (back) sequential_tile<X, 1, 0>(y, x->a.V, x->a.V, S, states);
        else sequential_tile<X, 0, 0>(y, x->a.V, x->a.V, S, states);
        return launched();
    }
    copy_floats(x, states, S, state_size(x));
    int status = build_tree<X>(x, y, back);
    if (!status) status = tree_down(product_of(x, y, states), x->by.run, x->a.stream);
    return status || !back ? status : apply_root(x, y, x->a.V, x->a.V, S);
}

template <class X>
static int tile_gradients(struct scan *x)
{
    const struct kcp_scan *a = &x->a;
    const int64_t KV = state_size(x);
    int status = KCP_OK;
    for (int s = 0; s < a->NS; s++)
        for (int c = x->ctx->cn[s]; c < x->ctx->cn[s + 1] && !status; c++) {
            copy_floats(x, x->tile_h + c * KV, x->states + s * KV, KV);
            status = advance_tile<X>(x, s, c, 0, a->V, a->V, x->states + s * KV);
        }
    if (!status) status = carry_maps<X>(x, 1, x->ends);
    for (int s = 0; s < a->NS; s++)
        for (int c = x->ctx->cn[s + 1] - 1; c >= x->ctx->cn[s] && !status; c--) {
            const struct tile y = tile_of<X>(x, s, c);
            status = fill_states<X>(x, s, y, 0, x->tile_h + c * KV, y.before);
            if (!status) status = fill_states<X>(x, s, y, 1, x->ends + s * KV, y.after);
            gradients<X><<<dim3(y.n, a->HV), 256, 0, a->stream>>>(y, x->dq_part,
                                                                   x->dk_part);
            add_group<X><<<dim3(y.n, a->H), 128, 0, a->stream>>>(y, x->dq_part,
                                                                  x->dk_part);
        }
    return status ? status : launched();
}

// Computes dW_alpha and dw_beta as sums over chunks, then over the segments of all
// ranks in order. On a rank without tokens, dW_alpha and dw_beta may be NULL.
template <class X>
static int weights(struct scan *x)
{
    const struct kcp_scan *a = &x->a;
    const int64_t w = (int64_t)a->HV * a->D, W = w * a->K, n = W + w;
    const unsigned parts = (unsigned)((n + 255) / 256);
    const int *cn = x->ctx->cn;
    cudaMemsetAsync(x->mine, 0, sizeof(float) * padded_rows(a->plan) * n, a->stream);
    if (a->NC) into_weights<X><<<dim3(a->NC, parts), 256, 0, a->stream>>>(*a, x->part);
    for (int s = 0; s < a->NS; s++)
        add_rows<<<parts, 256, 0, a->stream>>>(n, cn[s + 1] - cn[s],
                                               x->part + cn[s] * n, x->mine + s * n);
    const int status = parameter_sum((const struct kcp_call *)a, x->mine, n, x->all,
                                     x->sum);
    if (a->dW_alpha) copy_floats(x, (float *)a->dW_alpha, x->sum, W);
    if (a->dw_beta) copy_floats(x, (float *)a->dw_beta, x->sum + W, w);
    return status;
}

// For each sequence without tokens that this rank owns, copies the sequence's row of
// `from` to `to`, or stores zeros if `from` is NULL.
static void rows_on(const struct scan *x, const int *owner, const void *from, void *to)
{
    const struct kcp_plan *p = x->a.plan;
    const size_t row = sizeof(float) * x->a.HV * x->a.V;
    for (int n = 0; n < p->N; n++) {
        if (owner[n] != x->a.r || p->cu_seqlens[n] != p->cu_seqlens[n + 1]) continue;
        if (from)
            cudaMemcpyAsync((char *)to + n * row, (const char *)from + n * row, row,
                            cudaMemcpyDeviceToDevice, x->a.stream);
        else cudaMemsetAsync((char *)to + n * row, 0, row, x->a.stream);
    }
}

template <class X>
int scan_run(void *args, const struct scan_kernel &by)
{
    const struct kcp_scan *a = (const struct kcp_scan *)args;
    const struct kcp_call *call = (const struct kcp_call *)a;
    struct scan x;
    if (!a->plan || a->D < 1) return KCP_BAD;
    const enum kcp_storage storage = sizeof(X) == 4 ? KCP_F32 : KCP_BF16;
    if (!kcp_path_of("15_scan", by.name[sizeof(X) == 4], storage, a)) return KCP_NA;
    int status = scan_layout(&x, a, by) <= a->work_bytes ? KCP_OK : KCP_BAD;
    if (!status) store_tables(&x);
    if (!status && a->pass == KCP_BACKWARD)
        status = spread_gradients<X>(&x.p, x.ctx);
    if (!status) status = carry_maps<X>(&x, 0, x.states);
    if (!status && a->pass == KCP_BACKWARD) {
        status = tile_gradients<X>(&x);
        if (!status) status = weights<X>(&x);
        states_out(call, 0, x.ends, a->dht, a->dh0);
        rows_on(&x, a->plan->h0_rank, a->dot, a->do0);
    } else if (!status) {
        status = outputs<X>(&x);
        if (!status) status = repeat_outputs<X>(&x.p, x.ctx);
        states_out(call, 1, x.states, a->h0, a->ht);
        rows_on(&x, a->plan->ht_rank, a->o0, a->ot);
    }
    if (!status) status = launched();
    if (status && status != KCP_COMM && a->comm)
        a->comm->fail(a->comm, status, "15_scan");
    return status;
}

template <class X>
size_t scan_work(const void *args, const struct scan_kernel &by)
{
    const struct kcp_scan *a = (const struct kcp_scan *)args;
    struct scan x;
    return a->plan ? scan_layout(&x, a, by) : 0;
}

template int scan_run<bf16>(void *args, const struct scan_kernel &by);
template int scan_run<float>(void *args, const struct scan_kernel &by);
template size_t scan_work<bf16>(const void *args, const struct scan_kernel &by);
template size_t scan_work<float>(const void *args, const struct scan_kernel &by);
