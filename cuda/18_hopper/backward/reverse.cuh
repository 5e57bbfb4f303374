// reverse.cuh -- backward: scans the gradient of a head's state in reverse chunk order.
// Book: chapter 18c.
#pragma once

#include "states.cuh"

// A stage contains all data of a chunk, and has one pair of barriers. After dO of a
// chunk has been read, dv is staged in the bytes of dO. Separate tiles stage dS.
template <int K, int WGS, int kda>
struct reverse_storage {
    enum { STAGES = kda ? 2 : 3 };
    struct __align__(1024) stage {
        unsigned char k[K / 64][TILE_BYTES], kg[kda ? K / 64 : 0][TILE_BYTES],
            q[K / 64][TILE_BYTES], dO[WGS][TILE_BYTES], Ab[TILE_BYTES], Aqk[TILE_BYTES];
    } at[STAGES];
    struct __align__(1024) { unsigned char dS[WGS][K / 64][TILE_BYTES]; } out;
    float decay[kda ? STAGES : 0][K];
    struct gdn_row_factors head[kda ? 0 : STAGES];
    uint64_t full[STAGES], empty[STAGES];
};

// The producer is one thread, which loads the chunks of a stretch (a local token range
// of one sequence), last chunk first.
template <int blocks, int K, int WGS, int kda>
static __device__ __forceinline__ void reverse_producer(
    const struct forward_params &f, const CUtensorMap &dO, int z, int n, int v0,
    struct reverse_storage<K, WGS, kda> &smem)
{
    const int count = chunk_count(f, z), c = first_chunk(f, z) + count - 1;
    struct factors_cursor<K> from = factors_cursor_of<K>(f, c, n);
    int t = (int)chunk_tokens(f.a, z, c).t, at = 0, phase = 0;
    for (int left = count; left > 0; left--) {
        const uint32_t rows = K / 64 * TILE_BYTES;
        auto &s = smem.at[at];
        uint64_t *full = &smem.full[at];
        if (phase) mbarrier_wait(&smem.empty[at], phase - 1);
        mbarrier_arrive_expect_tx(full, (2 + kda) * rows + WGS * TILE_BYTES
                                            + 2 * TRIANGLE_BYTES
                                            + (kda ? (int)sizeof from.kda->decay
                                                   : (int)sizeof from.head->f));
        if (kda) tma_load_bytes<blocks>(s.kg, from.kda->kg, rows, full);
        else tma_load_bytes<blocks>(s.k, from.rows->k, rows, full);
        for (int h = 0; h < WGS; h++) tma_load_3d(s.dO[h], dO, v0 + 64 * h, n, t, full);
        tma_load_triangle<blocks>(s.Aqk, kda ? from.kda->Aqk : from.head->Aqk, full);
        tma_load_triangle<blocks>(s.Ab, kda ? from.kda->Ab : from.head->Ab, full);
        tma_load_bytes<blocks>(s.q, kda ? from.kda->q[0] : from.rows->q[0], rows, full);
        if (kda) {
            tma_load_bytes<blocks>(s.k, from.kda->k, rows, full);
            tma_load_bytes<blocks>(smem.decay[at], from.kda->decay,
                                   sizeof from.kda->decay, full);
        } else
            tma_load_bytes<blocks>(&smem.head[at], &from.head->f, sizeof from.head->f,
                                   full);
        from.previous_chunk();
        t -= CHUNK;
        at = at + 1 == smem.STAGES ? 0 : at + 1;
        phase += at == 0;
    }
}

// Addresses of this warpgroup's part of a chunk. If `dS` is NULL, nothing is stored.
struct reverse_out {
    unsigned char *dS;
    bf16 *dv;                            // this thread's 16 bytes of its first row
    int64_t dS_step, dv_row;
    int column, columns;
};

template <int K>
static __device__ __forceinline__ struct reverse_out reverse_out_of(
    const struct backward_params &x, int job, int c, int64_t t, int n, int v0)
{
    const int columns = x.a.V / 64, wg = threadIdx.x / 128, at = threadIdx.x % 128;
    const int64_t state = (int64_t)K / 64 * columns * TILE_BYTES, row = x.a.HV * x.a.V;
    bf16 *dv = out<bf16>(x.a.dv, t + at / 8, x.a.HV, n, x.a.V);
    unsigned char *dS = (unsigned char *)x.dS + ((int64_t)c * x.a.HV + n) * state;
    return { job == SCAN_REVERSE ? dS : NULL,
             dv + v0 + 64 * wg + at % 8 * 8,
             x.a.HV * state,
             row,
             v0 / 64 + wg,
             columns };
}

// Loads dO^T of this warp's 16 columns as operand A. Rows past the chunk's end belong
// to another token range and are set to 0.
static __device__ __forceinline__ void load_dO(uint32_t (*o)[4],
                                               const unsigned char *dO, int len)
{
    const int lane = threadIdx.x % 32, e = lane % 4 * 2;
    const unsigned char *at = dO + swizzle128_offset(lane % 8 + lane / 16 * 8,
                                                     threadIdx.x / 32 % 4 * 2
                                                         + lane / 8 % 2);
    #pragma unroll
    for (int c = 0; c < 4; c++) ldmatrix_x4_trans(o[c], (const bf16 *)(at + c * 2048));
    if (len >= CHUNK) return;
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        const int row = i / 4 * 16 + i % 4 / 2 * 8 + e;
        if (row >= len) o[i / 4][i % 4] = 0;
        else if (row + 1 >= len) o[i / 4][i % 4] &= 0xffffu;
    }
}

// Copies the staged dv of a chunk to global memory row by row. A barrier of the
// warpgroup separates the writes to the staging tile from the reads.
static __device__ __forceinline__ void send_dv(struct reverse_out &to,
                                               const unsigned char *staged, int len)
{
    const int at = threadIdx.x % 128, row = at / 8;
    warpgroup_sync();
    const unsigned char *from = staged + swizzle128_offset(row, at % 8);
    #pragma unroll
    for (int i = 0; i < 4; i++)
        if (row + 16 * i < len)
            *(uint4 *)(to.dv + 16 * i * to.dv_row) = *(const uint4 *)(from + 2048 * i);
    to.dv -= CHUNK * to.dv_row;
}

// Stages operand A, which is dS in bf16, and issues the TMA stores.
template <int K>
static __device__ __forceinline__ void send_dS(struct reverse_out &to,
                                               unsigned char (*staged)[TILE_BYTES],
                                               const uint32_t (*a)[4])
{
    staged_wait_read();
    store_operand_transposed<K / 16>(staged[0], a);
    staged_publish();
    if (threadIdx.x % 128 == 0)
        tma_store_state<K>(to.dS, to.column, to.columns, staged);
    to.dS -= to.dS_step;
}

// ---- one gate per channel (KDA)
//
// dU = kg dS + Aqk^T dO, dv = (A beta)^T dU, dS <- Lambda dS + scale qg^T dO - k~^T dv,
// as in storage.cuh. The critical path is dU, dv and k~^T dv; qg^T dO overlaps with dv.
template <int K, int WGS>
static __device__ __forceinline__ void kda_reverse_step(
    typename reverse_storage<K, WGS, 1>::stage &s, const float *decay,
    unsigned char (*staged)[TILE_BYTES], struct reverse_out &to, int len,
    float (*dS)[4])
{
    const int wg = threadIdx.x / 128;
    uint32_t a[K / 16][4], o[4][4], b[4][4];
    float y[CHUNK / 8][4];
    load_dO(o, s.dO[wg], len);
    pack_accumulator<K / 8>(a, dS);
    wgmma_fence();
    wgmma_times_triangle_transposed(y, o, s.Aqk, 0);
    wgmma_times_tiles<K / 16>(y, a, s.kg[0], 1);
    wgmma_commit();                                            // dU
    if (to.dS) send_dS<K>(to, staged, a);
    wgmma_wait<0>();
    fence_operand<CHUNK / 8>(y);
    pack_accumulator<CHUNK / 8>(b, y);
    wgmma_fence();
    wgmma_times_triangle_transposed(y, b, s.Ab, 0);
    wgmma_commit();                                            // dv
    scale_columns<K / 8>(dS, decay);
    wgmma_fence();
    wgmma_add_tiles<K>(dS, o, s.q[0]);
    wgmma_commit();
    wgmma_wait<1>();
    fence_operand<CHUNK / 8>(y);
    pack_accumulator<CHUNK / 8>(b, y);
    wgmma_fence();
    wgmma_add_tiles<K>(dS, b, s.k[0]);
    wgmma_commit();
    if (to.dS) {
        store_operand_transposed<CHUNK / 16>(s.dO[wg], b);
        send_dv(to, s.dO[wg], len);
    }
    wgmma_wait<0>();
    fence_operand<K / 8>(dS);
}

// ---- one gate per head (GDN)
//
// With the raw k and q: x = B (k dS) + Aqk^T dO, dv = (A beta)^T x, dS <- decay dS +
// q^T (Q dO) - k^T (F dv). gdn_row_factors defines B, Q and F.

// Multiplies the columns of operand A by `factor`, and rounds the products to bf16.
static __device__ __forceinline__ void scale_operand(uint32_t (*a)[4],
                                                     const float *factor)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        const float2 f = *(const float2 *)&factor[i / 4 * 16 + i % 4 / 2 * 8 + e];
        uint32_t &x = a[i / 4][i % 4];
        x = pack_bf16x2(bf16x2_low(x) * f.x, bf16x2_high(x) * f.y);
    }
}

template <int K, int WGS>
static __device__ __forceinline__ void gdn_reverse_step(
    typename reverse_storage<K, WGS, 0>::stage &s, const struct gdn_row_factors &f,
    unsigned char (*staged)[TILE_BYTES], struct reverse_out &to, int len,
    float (*dS)[4])
{
    const int wg = threadIdx.x / 128;
    uint32_t a[K / 16][4], o[4][4], b[4][4];
    float y[CHUNK / 8][4], z[CHUNK / 8][4];
    load_dO(o, s.dO[wg], len);
    pack_accumulator<K / 8>(a, dS);
    wgmma_fence();
    wgmma_times_tiles<K / 16>(y, a, s.k[0], 0);
    wgmma_times_triangle_transposed(z, o, s.Aqk, 0);
    wgmma_commit();
    if (to.dS) send_dS<K>(to, staged, a);
    scale_state(dS, K / 8, f.decay[0]);
    wgmma_wait<0>();
    fence_operand<CHUNK / 8>(y);
    fence_operand<CHUNK / 8>(z);
    scale_columns<CHUNK / 8>(y, f.B);
    #pragma unroll
    for (int i = 0; i < 32; i++) y[i / 4][i % 4] += z[i / 4][i % 4];
    pack_accumulator<CHUNK / 8>(b, y);
    wgmma_fence();
    wgmma_times_triangle_transposed(y, b, s.Ab, 0);
    wgmma_commit();                                            // dv
    scale_operand(o, f.Q);
    wgmma_fence();
    wgmma_add_tiles<K>(dS, o, s.q[0]);
    wgmma_commit();
    wgmma_wait<1>();
    fence_operand<CHUNK / 8>(y);
    pack_accumulator<CHUNK / 8>(b, y);
    if (to.dS) store_operand_transposed<CHUNK / 16>(s.dO[wg], b);
    #pragma unroll
    for (int i = 0; i < 32; i++) y[i / 4][i % 4] = -y[i / 4][i % 4];
    pack_accumulator_times<CHUNK / 8>(b, y, f.F);
    wgmma_fence();
    wgmma_add_tiles<K>(dS, b, s.k[0]);
    wgmma_commit();
    if (to.dS) send_dv(to, s.dO[wg], len);
    wgmma_wait<0>();
    fence_operand<K / 8>(dS);
}

// ---- the block

// Returns a view for the gradient of the state before token range z. If the view's p is
// NULL, this gradient is not stored.
static __device__ __forceinline__ struct state_view start_of(
    const struct backward_params &x, int job, int z, int n, int v)
{
    const struct state_view own = scan_state_of(x, x.of_first, z, n, v);
    if (job == SCAN_REVERSE && (own.p || !x.dh_ext)) return own;
    return { x.dh_ext + ((int64_t)z * x.a.HV + n) * x.a.K * x.pitch + v, 1, x.pitch };
}

template <int blocks, int K, int WGS, int kda>
static __device__ __forceinline__ void reverse_init(
    struct reverse_storage<K, WGS, kda> &smem)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < smem.STAGES; i++) {
            mbarrier_init(&smem.full[i], 1);
            mbarrier_init(&smem.empty[i], release_count<blocks, WGS>());
        }
        mbarrier_fence_init();
    }
    for (int i = 0; i < smem.STAGES; i++) {
        zero_above_diagonal(smem.at[i].Ab);
        zero_above_diagonal(smem.at[i].Aqk);
    }
    fence_proxy_async();
    if (blocks > 1) cluster_sync();
    else __syncthreads();
}

// Loads 64 columns of the state gradient after token range z, and scans z in reverse.
template <int blocks, int K, int WGS, int kda>
static __device__ __forceinline__ void reverse_consumer_warpgroup(
    const struct backward_params &x, const struct forward_params &f, int job, int z,
    int n, int v0, int wg, struct reverse_storage<K, WGS, kda> &smem)
{
    const int count = __shfl_sync(~0u, chunk_count(f, z), 0);
    const int c = first_chunk(f, z) + count - 1, v = v0 + threadIdx.x / 32 * 16;
    const struct token_range last = chunk_tokens(f.a, z, c);
    const struct state_view end = scan_state_of(x, x.last, z, n, v);
    const struct state_view start = start_of(x, job, z, n, v);
    struct reverse_out to = reverse_out_of<K>(x, job, c, last.t, n, v0);
    float dS[K / 8][4];
    int at = 0, phase = 0;
    load_state<K>(dS, end.p, end.dv, end.di);
    #pragma unroll 1
    for (int step = 0; step < count; step++) {
        const int len = step ? (int)CHUNK : last.len;
        mbarrier_wait(&smem.full[at], phase);
        if constexpr (kda)
            kda_reverse_step<K, WGS>(smem.at[at], smem.decay[at], smem.out.dS[wg], to,
                                     len, dS);
        else
            gdn_reverse_step<K, WGS>(smem.at[at], smem.head[at], smem.out.dS[wg], to,
                                     len, dS);
        fence_proxy_async();             // TMA will overwrite the staged dv
        release_stage<blocks>(&smem.empty[at]);
        at = at + 1 == smem.STAGES ? 0 : at + 1;
        phase += at == 0;
    }
    if (start.p) store_state<K>(start.p, start.dv, start.di, dS);
    if (threadIdx.x % 128 == 0) tma_store_wait_read();
}

// Computes columns v0 to v0 + 64 WGS - 1 of value head n along token range z. The
// arguments are those of states_block.
//
// Bound: memory. Per token and head, KDA reads 6K + 2.5C + 2V bytes and writes 2 KV / C
// + 2V bytes. With few token ranges and heads the bound is the latency of the
// sequential steps. Barriers. `full`: the chunk's bytes have arrived. `empty`: every
// consumer of the block or cluster has read these bytes and has stored the dv that was
// staged in dO. Barriers of the warpgroup separate the accesses to staged tiles.
template <int K, int WGS, int kda, int blocks>
static __device__ __forceinline__ void reverse_block(const struct backward_params &x,
                                                     const struct forward_params &f,
                                                     const CUtensorMap &dO, int job,
                                                     int z, int n, int v0,
                                                     void *on_chip)
{
    auto &smem = *(struct reverse_storage<K, WGS, kda> *)on_chip;
    reverse_init<blocks>(smem);
    griddepcontrol_wait();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == WGS) {
        setmaxnreg_dec<scan_registers<WGS>::PRODUCER>();
        if (threadIdx.x % 128 == 0) reverse_producer<blocks>(f, dO, z, n, v0, smem);
    } else {
        setmaxnreg_inc<scan_registers<WGS>::CONSUMER>();
        reverse_consumer_warpgroup<blocks>(x, f, job, z, n, v0, wg, smem);
    }
}
