// wide_reverse.cuh -- the reverse scan of columns of dS with 256 rows.
// Book: chapter 18, "Keys of 256 channels".
#pragma once

#include "wide_scan.cuh"

// A block scans 64 columns. Tiles 3 i, 3 i + 1 and 3 i + 2 of the ring are kg, q and w
// of step i, which is chunk count - 1 - i. dv_local arrives with kg, dO with q. They
// have two stages, because slot 3 i % SLOTS is empty when the consumers have released q
// of step i - 2, after their last read of both.
enum { REVERSE_STAGES = 2 };

struct reverse_storage {
    wide_tile tile[SLOTS], old;
    bf16 dv[REVERSE_STAGES][SWIZZLE128_TILE], dO[REVERSE_STAGES][SWIZZLE128_TILE];
    struct wide_gate g[REVERSE_STAGES];
    struct wide_ring ring;
};

// Loads all chunks of a token range, the last chunk first.
template <class Args>
static __device__ __forceinline__ void load_reverse(const Args &a, int s, int n, int v,
                                                    struct reverse_storage *m)
{
    const struct token_range all = stretch_of(a, s);
    const int count = chunks_of(all), id = threadIdx.x;
    const int64_t HV = a.HV, ldv = HV * a.V;
    float2 g = {};
    if (count) g = wide_gate_read(a, chunk_of(all, count - 1), n, id);
    for (int i = 0; i < count; i++) {
        const struct token_range z = chunk_of(all, count - 1 - i);
        const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
        const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
        const int j = 3 * i;
        ring_wait_empty(&m->ring, j);
        wide_gate_write(&m->g[i % REVERSE_STAGES], g, a.KG == 1, a.scale, id);
        cp_async_tiles<1>(m->dv[i % REVERSE_STAGES],
                          in<bf16>(a.dv_local, z.t, HV, n, a.V) + v, ldv, z.len, id);
        cp_async_tiles<K_TILES>(m->tile[j % SLOTS], k.x, k.ld, z.len, id);
        ring_issued(&m->ring, j);
        if (i + 1 < count) g = wide_gate_read(a, chunk_of(all, count - 2 - i), n, id);
        ring_wait_empty(&m->ring, j + 1);
        cp_async_tiles<1>(m->dO[i % REVERSE_STAGES],
                          in<bf16>(a.do_, z.t, HV, n, a.V) + v, ldv, z.len, id);
        cp_async_tiles<K_TILES>(m->tile[(j + 1) % SLOTS], q.x, q.ld, z.len, id);
        ring_issued(&m->ring, j + 1);
        ring_wait_empty(&m->ring, j + 2);
        cp_async_tiles<K_TILES>(m->tile[(j + 2) % SLOTS],
                                in<bf16>(a.w, z.t, HV, n, ROWS_K), HV * ROWS_K, z.len,
                                id);
        ring_issued(&m->ring, j + 2);
    }
    ring_finish(&m->ring, 3 * count - 1);
}

// Multiplies columns by the rows' factors (GDN) or by `scale` (KDA).
static __device__ __forceinline__ void scale_rows(float (*d)[4], const float *eq,
                                                  int gdn, float scale)
{
    if (gdn) return scale_columns<8>(d, eq);
    #pragma unroll
    for (int j = 0; j < 32; j++) d[j / 4][j % 4] *= scale;
}

// Computes dU = kg dS + dv_local, then dS <- Lambda dS + scale qg^T dO - w^T dU. While
// the tensor core sums qg^T dO, the threads compute dU. If `stores` is set, dU replaces
// dv_local, and while the tensor core computes dS, the copy engine stores the old dS,
// and the threads store dU. Barriers are those of forward_step.
template <int stores, class Args>
static __device__ __forceinline__ void reverse_step(const Args &a, struct token_range z,
                                                    int n, int v, int c, int i,
                                                    const CUtensorMap *dh,
                                                    struct reverse_storage *m,
                                                    float (*dS)[4])
{
    const int gdn = a.KG == 1, k = 3 * i, q = k + 1, w = k + 2;
    const struct wide_gate &g = m->g[i % REVERSE_STAGES];
    bf16 *dv = m->dv[i % REVERSE_STAGES];
    uint32_t x_[4][1][4], d_[4][1][4];
    float x[8][4], d[8][4];

    //> kernel-wide
    if (stores) wide_store_done();
    if (stores) warpgroup_sync();
    ring_wait_full(&m->ring, k);
    wide_times_rows<1, stores>(x, dS, m->tile[k % SLOTS], m->old, &g, gdn);
    ring_wait_full(&m->ring, q);
    ldmatrix_swizzled(d, m->dO[i % REVERSE_STAGES]);
    scale_rows(d, g.eq, gdn, a.scale);
    pack_accumulator<8>((uint32_t(*)[4])d_, d);
    wgmma_fence();
    wide_add_rows(dS, d_, m->tile[q % SLOTS]);
    wgmma_commit();
    ldmatrix_swizzled(d, dv);
    wgmma_wait<1>();
    fence_operand<8>(x);
    ring_release(&m->ring, k);
    if (gdn) scale_columns<8>(x, g.ek);
    #pragma unroll
    for (int j = 0; j < 32; j++) x[j / 4][j % 4] += d[j / 4][j % 4];
    if (stores) stmatrix_swizzled<8>(dv, x);
    #pragma unroll
    for (int j = 0; j < 32; j++) x[j / 4][j % 4] = -x[j / 4][j % 4];
    pack_accumulator<8>((uint32_t(*)[4])x_, x);
    if (stores) wide_store(*dh, m->old, v, (c * a.HV + n) * ROWS_K);
    ring_wait_full(&m->ring, w);
    wgmma_fence();
    wide_add_rows(dS, x_, m->tile[w % SLOTS]);
    wgmma_commit();
    if constexpr (stores)
        copy_swizzled_rows<CHUNK>(out<bf16>(a.dU, z.t, a.HV, n, a.V) + v,
                                  (int64_t)a.HV * a.V, z.len, dv);
    wgmma_wait<0>();
    keep_operand(x_);
    keep_operand(d_);
    fence_operand<32>(dS);
    ring_release(&m->ring, q);
    ring_release(&m->ring, w);
    //< kernel-wide
}

// Scans columns v to v + 63 of the gradients of token range s and head n, from dh_out
// (NULL: 0) back to dh_in, which has row stride ld. Both point to the head's first
// column. If `stores` is set, dh is the map of the tensor dh.
template <int stores, class Args>
static __device__ __forceinline__ void reverse_block(const Args &a, int s, int n, int v,
                                                     const float *dh_out, float *dh_in,
                                                     int ld, const CUtensorMap *dh,
                                                     struct reverse_storage *m)
{
    const struct token_range all = stretch_of(a, s);
    const int c0 = ((const int *)a.cn)[s], count = chunks_of(all);

    ring_init(&m->ring);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == 0) {
        load_reverse(a, s, n, v, m);
        return;
    }
    const int col = v + threadIdx.x / 32 % 4 * 16;
    float dS[ROWS_K / 8][4];
    load_state<ROWS_K>(dS, dh_out ? dh_out + col : NULL, 1, a.V);
    for (int i = 0; i < count; i++) {
        const int j = count - 1 - i;
        reverse_step<stores>(a, chunk_of(all, j), n, v, c0 + j, i, dh, m, dS);
    }
    if (stores) wide_store_done();
    store_state<ROWS_K>(dh_in + col, 1, ld, dS);
}
