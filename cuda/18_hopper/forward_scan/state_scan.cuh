// state_scan.cuh -- scans without o: of maps (forward), and of states (backward).
// Book: chapters 18b and 18c.
//
// A scan of maps starts from S = I with v = 0, or from a state with the rows v
// (maps_sm90.cu). A scan of states also stores h and v_new (states.cuh).
#pragma once

#include "staged_stores.cuh"

// Warp 0 loads rows of k (pipeline K), warp 1 loads the other factors (pipeline A), and
// with `of_v` warps 2 and 3 copy v.
template <int blocks, int K, int WGS, scan_kind kind, int kda>
static __device__ __forceinline__ void state_producer_warpgroup(
    const struct forward_params &x, int z, int n, int v0, int of_v,
    struct scan_storage<K, WGS, kind, kda> &smem)
{
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (warp == 0) scan_producer_warp<PIPE_K, 1, 0, blocks>(x, z, n, v0, smem);
    if (warp == 1) scan_producer_warp<PIPE_A, 1, 0, blocks>(x, z, n, v0, smem);
    if (warp >= 2 && of_v)
        scan_producer_warp<PIPE_K, 0, MAP_V_LANES, blocks>(x, z, n, v0, smem);
}

// Starts a step: waits for the rows of k. With `of_v`, also sets `y` to the chunk's v.
template <int K, int WGS, scan_kind kind>
static __device__ __forceinline__ void begin_step(
    float (*y)[4], int chunk, int of_v, struct scan_storage<K, WGS, kind, 1> &smem)
{
    const bf16 *v = smem.v[chunk % smem.K_STAGES][0] + threadIdx.x / 32 * 16;
    consumer_wait(smem, PIPE_K, chunk);
    if (of_v) from_rows(y, v, 64 * WGS + PAD);
}

// Computes S <- Lambda S + kg^T A beta (v - k~ S) for each chunk of token range z, with
// the factors of kda_consumer (scan_sm90.cu). S is rounded to bf16 only as an operand.
template <int blocks, int K, int WGS, scan_kind kind, class Keep>
static __device__ __forceinline__ void kda_state_scan(
    int count, int of_v, Keep keep, struct scan_storage<K, WGS, kind, 1> &smem,
    float (*S)[4])
{
    float y[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4];

    if (count) begin_step<K, WGS>(y, 0, of_v, smem);
    for (int chunk = 0; chunk < count; chunk++) {
        const int at = chunk % smem.A_STAGES;
        pack_accumulator<K / 8>(a, S);
        wgmma_fence();
        wgmma_times_tiles<K / 16>(y, a, smem.k[chunk % smem.K_STAGES].tile[0], of_v);
        wgmma_commit();                                        // v - k~ S
        keep.stage_h(a);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        consumer_release<blocks>(smem, PIPE_K, chunk);
        pack_accumulator<CHUNK / 8>(b, y);
        consumer_wait(smem, PIPE_A, chunk);
        wgmma_fence();
        wgmma_times_triangle(y, b, smem.a[at].Ab, 0);          // v_new
        wgmma_commit();
        keep.send_h();
        scale_columns<K / 8>(S, smem.decay[at]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_add_tiles<K>(S, b, smem.a[at].kg[0]);
        wgmma_commit();
        keep.send_v_new(b);
        if (chunk + 1 < count) begin_step<K, WGS>(y, chunk + 1, of_v, smem);
        wgmma_wait<0>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(smem, PIPE_A, chunk);
    }
}

// GDN: row factors scale accumulators, not operands.
template <int blocks, int K, int WGS, scan_kind kind, class Keep>
static __device__ __forceinline__ void gdn_state_scan(
    const struct forward_params &x, int z, int c0, int count, int of_v, Keep keep,
    struct scan_storage<K, WGS, kind, 0> &smem, float (*S)[4])
{
    float y[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4];

    for (int chunk = 0; chunk < count; chunk++) {
        const auto &f = smem.head[chunk % smem.A_STAGES];
        const int at = chunk % smem.K_STAGES;
        int len = CHUNK;
        if (kind == MAP_SCAN) len = of_v ? chunk_tokens(x.a, z, c0 + chunk).len : 0;
        uint32_t v[4][4] = {};
        pack_accumulator<K / 8>(a, S);
        consumer_wait(smem, PIPE_K, chunk);
        if (of_v) ldmatrix_v(v, smem.v[at][0], 64 * WGS + PAD);
        wgmma_fence();
        wgmma_times_tiles<K / 16>(y, a, smem.k[at].tile[0], 0);
        wgmma_commit();                                        // k S
        keep.stage_h(a);
        consumer_wait(smem, PIPE_A, chunk);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        v_minus_scaled(y, v, f.F, len);
        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_times_triangle(y, b, smem.a[chunk % smem.A_STAGES].Ab, 0);
        wgmma_commit();                                        // v_new
        keep.send_h();
        scale_state(S, K / 8, f.decay[0]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        if (kind == MAP_SCAN) {          // v_new is not needed later
            scale_columns<CHUNK / 8>(y, f.B);
            pack_accumulator<CHUNK / 8>(b, y);
        } else pack_accumulator_times<CHUNK / 8>(b, y, f.B);
        wgmma_fence();
        wgmma_add_tiles<K>(S, b, smem.k[at].tile[0]);
        wgmma_commit();
        pack_accumulator<CHUNK / 8>(a, y);
        keep.send_v_new(a);
        wgmma_wait<0>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(smem, PIPE_A, chunk);
        consumer_release<blocks>(smem, PIPE_K, chunk);
    }
}
