// wide_forward.cuh -- scans of columns of a state, or of M, with 256 rows.
// Book: chapter 18, "Keys of 256 channels".
#pragma once

#include "wide_scan.cuh"

// A block scans 64 columns. Tile 2 i of the ring is w of chunk i, and tile 2 i + 1 is
// kg. u and the factors of chunk i arrive with w. They have three stages, because slot
// 2 i % SLOTS is empty when chunk i - 3 has been computed.
enum { FORWARD_STAGES = 3 };

struct forward_storage {
    wide_tile tile[SLOTS], old;
    bf16 u[FORWARD_STAGES][SWIZZLE128_TILE];
    struct wide_gate g[FORWARD_STAGES];
    struct wide_ring ring;
};

// Loads all chunks of token range s, with columns v to v + 63 of u if `of_h` is set.
template <int of_h, class Args>
static __device__ __forceinline__ void load_forward(const Args &a, int s, int n, int v,
                                                    struct forward_storage *m)
{
    const struct token_range all = stretch_of(a, s);
    const int count = chunks_of(all), id = threadIdx.x;
    const int64_t HV = a.HV;
    float2 g = {};
    if (count) g = wide_gate_read(a, chunk_of(all, 0), n, id);
    for (int i = 0; i < count; i++) {
        const struct token_range z = chunk_of(all, i);
        const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
        ring_wait_empty(&m->ring, 2 * i);
        wide_gate_write(&m->g[i % FORWARD_STAGES], g, a.KG == 1, a.scale, id);
        if constexpr (of_h)
            cp_async_tiles<1>(m->u[i % FORWARD_STAGES],
                              in<bf16>(a.u, z.t, HV, n, a.V) + v, HV * a.V, z.len, id);
        cp_async_tiles<K_TILES>(m->tile[2 * i % SLOTS],
                                in<bf16>(a.w, z.t, HV, n, ROWS_K), HV * ROWS_K, z.len,
                                id);
        ring_issued(&m->ring, 2 * i);
        if (i + 1 < count) g = wide_gate_read(a, chunk_of(all, i + 1), n, id);
        ring_wait_empty(&m->ring, 2 * i + 1);
        cp_async_tiles<K_TILES>(m->tile[(2 * i + 1) % SLOTS], k.x, k.ld, z.len, id);
        ring_issued(&m->ring, 2 * i + 1);
    }
    ring_finish(&m->ring, 2 * count - 1);
}

// Computes v_new = u - w S, then S <- Lambda S + kg^T v_new. If `stores` is set, v_new
// replaces u, and while the tensor core computes S, the copy engine stores the old S,
// and the threads store v_new. The first barrier separates the engine's reads of the
// previous chunk from writes to `old`. The second barrier, in wide_store, separates
// writes to `old` and u from the stores.
template <int stores, class Args>
static __device__ __forceinline__ void forward_step(const Args &a, struct token_range z,
                                                    int n, int v, int c, int i,
                                                    const CUtensorMap *h,
                                                    struct forward_storage *m,
                                                    float (*S)[4])
{
    const int gdn = a.KG == 1, w = 2 * i, k = 2 * i + 1;
    const struct wide_gate &g = m->g[i % FORWARD_STAGES];
    bf16 *u = m->u[i % FORWARD_STAGES];
    uint32_t x_[4][1][4];
    float x[8][4], y[8][4];

    //> kernel-wide
    if (stores) wide_store_done();
    if (stores) warpgroup_sync();
    ring_wait_full(&m->ring, w);
    wide_times_rows<1, stores>(y, S, m->tile[w % SLOTS], m->old, &g, gdn);
    ldmatrix_swizzled(x, u);
    wgmma_wait<0>();
    fence_operand<8>(y);
    ring_release(&m->ring, w);
    #pragma unroll
    for (int j = 0; j < 32; j++) x[j / 4][j % 4] -= y[j / 4][j % 4];
    if (stores) stmatrix_swizzled<8>(u, x);
    if (gdn) scale_columns<8>(x, g.ek);
    pack_accumulator<8>((uint32_t(*)[4])x_, x);
    if (stores) wide_store(*h, m->old, v, (c * a.HV + n) * ROWS_K);
    ring_wait_full(&m->ring, k);
    wgmma_fence();
    wide_add_rows(S, x_, m->tile[k % SLOTS]);
    wgmma_commit();
    if constexpr (stores)
        copy_swizzled_rows<CHUNK>(out<bf16>(a.v_new, z.t, a.HV, n, a.V) + v,
                                  (int64_t)a.HV * a.V, z.len, u);
    wgmma_wait<0>();
    keep_operand(x_);
    fence_operand<32>(S);
    ring_release(&m->ring, k);
    //< kernel-wide
}

// Computes M <- Lambda M - kg^T (w M). M and w M are split into two bf16 pieces, as in
// stage 05's v3_group_sm90.
static __device__ __forceinline__ void M_step(int i, int gdn, struct forward_storage *m,
                                              float (*M)[4])
{
    const int w = 2 * i, k = 2 * i + 1;
    const struct wide_gate &g = m->g[i % FORWARD_STAGES];
    float y[8][4];

    //> kernel-wide-map
    ring_wait_full(&m->ring, w);
    wide_times_rows<2, 0>(y, M, m->tile[w % SLOTS], NULL, NULL, gdn);
    wgmma_wait<0>();
    fence_operand<8>(y);
    ring_release(&m->ring, w);
    if (gdn) scale_columns<8>(y, g.ek);
    ring_wait_full(&m->ring, k);
    wide_decay_minus(M, y, m->tile[k % SLOTS], g, gdn);
    ring_release(&m->ring, k);
    //< kernel-wide-map
}

// Scans columns v to v + 63 of the states of token range s and head n, from h_in
// (NULL: 0) to h_out, which has row stride ld. Both point to the head's first column.
// If `stores` is set, h is the map of the tensor h.
template <int stores, class Args>
static __device__ __forceinline__ void forward_block(const Args &a, int s, int n, int v,
                                                     const float *h_in, float *h_out,
                                                     int ld, const CUtensorMap *h,
                                                     struct forward_storage *m)
{
    const struct token_range all = stretch_of(a, s);
    const int c0 = ((const int *)a.cn)[s], count = chunks_of(all);

    ring_init(&m->ring);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == 0) {
        load_forward<1>(a, s, n, v, m);
        return;
    }
    const int col = v + threadIdx.x / 32 % 4 * 16;
    float S[ROWS_K / 8][4];
    load_state<ROWS_K>(S, h_in ? h_in + col : NULL, 1, a.V);
    for (int i = 0; i < count; i++)
        forward_step<stores>(a, chunk_of(all, i), n, v, c0 + i, i, h, m, S);
    if (stores) wide_store_done();
    store_state<ROWS_K>(h_out + col, 1, ld, S);
}

// Computes columns v to v + 63 of M of token range s and head n.
template <class Args>
static __device__ __forceinline__ void M_block(const Args &a, int s, int n, int v,
                                               float *to, int ld,
                                               struct forward_storage *m)
{
    const int count = chunks_of(stretch_of(a, s));

    ring_init(&m->ring);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == 0) {
        load_forward<0>(a, s, n, 0, m);
        return;
    }
    const int col = v + threadIdx.x / 32 % 4 * 16;
    float M[ROWS_K / 8][4];
    set_identity<ROWS_K>(M, col);
    for (int i = 0; i < count; i++) M_step(i, a.KG == 1, m, M);
    store_state<ROWS_K>(to + col, 1, ld, M);
}
