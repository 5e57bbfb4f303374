// states.cuh -- backward: recomputes and stores the states of a head before each chunk.
// Book: chapter 18c.
#pragma once

#include "cuda/18_hopper/backward/storage.cuh"
#include "cuda/18_hopper/forward_scan/staged_stores.cuh"

// The storage of forward's scan without q and o, plus staged tiles for the results. A
// step stores v_new and h in bf16, where h is the state S before the chunk. The rounded
// h is also operand A of the step's first product, and with KDA the rounded v_new is
// operand A of the last product.
template <int K, int WGS, int kda>
struct states_storage {
    struct scan_storage<K, WGS, STATES_SCAN, kda> in;
    struct __align__(1024) {
        unsigned char h[WGS][K / 64][TILE_BYTES], v_new[WGS][TILE_BYTES];
    } out;
};

// This warpgroup's part of a chunk. `h_step`, `v_step`: bytes from chunk to chunk.
struct states_out { unsigned char *h, *v_new; int64_t h_step, v_step; int column; };

template <int K>
static __device__ __forceinline__ struct states_out states_out_of(
    const struct backward_params &x, int c, int n, int v0)
{
    const int columns = x.a.V / 64;
    const int64_t at = (int64_t)c * x.a.HV + n, rows = columns * TILE_BYTES;
    const int64_t state = K / 64 * rows;
    return { (unsigned char *)x.h + at * state, (unsigned char *)x.v_new + at * rows,
             x.a.HV * state, x.a.HV * rows, v0 / 64 + (int)threadIdx.x / 128 };
}

static __device__ __forceinline__ struct state_view scan_state_of(
    const struct backward_params &x, const struct scan_states &s, int z, int n, int v)
{
    const int row = s.x ? s.row[z] : -1;
    return state_view_of(x.a, row < 0 ? NULL : s.x, s.layout, row, n, v);
}

template <int K>
static __device__ __forceinline__ void send_h(const struct states_out &to,
                                              const struct backward_params &x,
                                              const unsigned char (*h)[TILE_BYTES])
{
    staged_publish();
    if (threadIdx.x % 128 == 0) tma_store_state<K>(to.h, to.column, x.a.V / 64, h);
}

static __device__ __forceinline__ void send_v_new(struct states_out &to,
                                                  const unsigned char *v_new)
{
    staged_publish();
    if (threadIdx.x % 128 == 0)
        tma_store_tile(to.v_new + to.column * TILE_BYTES, v_new);
    to.h += to.h_step;
    to.v_new += to.v_step;
}

// ---- one gate per channel (KDA)

// Starts a step of the scan: waits for k~ (storage.cuh) and v, and sets `y` to v.
template <int K, int WGS>
static __device__ __forceinline__ void begin_states_step(
    float (*y)[4], int chunk, struct states_storage<K, WGS, 1> &smem)
{
    consumer_wait(smem.in, PIPE_K, chunk);
    from_rows(y, smem.in.v[chunk % smem.in.K_STAGES][0] + threadIdx.x / 32 * 16,
              64 * WGS + PAD);
}

template <int K, int WGS, int blocks>
static __device__ __forceinline__ void kda_states_consumer(
    const struct backward_params &x, int count, struct states_out to,
    struct states_storage<K, WGS, 1> &smem, float (*S)[4])
{
    auto &in = smem.in;
    const int wg = threadIdx.x / 128;
    float y[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4];

    if (count) begin_states_step<K, WGS>(y, 0, smem);
    for (int chunk = 0; chunk < count; chunk++) {
        const int at = chunk % in.A_STAGES;
        pack_accumulator<K / 8>(a, S);
        wgmma_fence();
        wgmma_times_tiles<K / 16>(y, a, in.k[chunk % in.K_STAGES].tile[0], 1);
        wgmma_commit();                                        // v - k~ S
        staged_wait_read();
        store_operand_transposed<K / 16>(smem.out.h[wg][0], a);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        consumer_release<blocks>(in, PIPE_K, chunk);
        pack_accumulator<CHUNK / 8>(b, y);
        consumer_wait(in, PIPE_A, chunk);
        wgmma_fence();
        wgmma_times_triangle(y, b, in.a[at].Ab, 0);            // v_new
        wgmma_commit();
        send_h<K>(to, x, smem.out.h[wg]);
        scale_columns<K / 8>(S, in.decay[at]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_add_tiles<K>(S, b, in.a[at].kg[0]);
        wgmma_commit();
        store_operand_transposed<CHUNK / 16>(smem.out.v_new[wg], b);
        send_v_new(to, smem.out.v_new[wg]);
        if (chunk + 1 < count) begin_states_step<K, WGS>(y, chunk + 1, smem);
        wgmma_wait<0>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(in, PIPE_A, chunk);
    }
}

// ---- one gate per head (GDN): row factors multiply accumulators, not operands
template <int K, int WGS, int blocks>
static __device__ __forceinline__ void gdn_states_consumer(
    const struct backward_params &x, int count, struct states_out to,
    struct states_storage<K, WGS, 0> &smem, float (*S)[4])
{
    auto &in = smem.in;
    const int wg = threadIdx.x / 128;
    float y[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4];

    for (int chunk = 0; chunk < count; chunk++) {
        const auto &f = in.head[chunk % in.A_STAGES];
        const int at = chunk % in.K_STAGES;
        uint32_t v[4][4];
        pack_accumulator<K / 8>(a, S);
        consumer_wait(in, PIPE_K, chunk);
        ldmatrix_v(v, in.v[at][0], 64 * WGS + PAD);
        wgmma_fence();
        wgmma_times_tiles<K / 16>(y, a, in.k[at].tile[0], 0);
        wgmma_commit();                                        // k S
        staged_wait_read();
        store_operand_transposed<K / 16>(smem.out.h[wg][0], a);
        consumer_wait(in, PIPE_A, chunk);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        v_minus_scaled(y, v, f.F, CHUNK);
        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_times_triangle(y, b, in.a[chunk % in.A_STAGES].Ab, 0);
        wgmma_commit();                                        // v_new
        send_h<K>(to, x, smem.out.h[wg]);
        scale_state(S, K / 8, f.decay[0]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        pack_accumulator_times<CHUNK / 8>(b, y, f.B);
        wgmma_fence();
        wgmma_add_tiles<K>(S, b, in.k[at].tile[0]);
        wgmma_commit();
        pack_accumulator<CHUNK / 8>(a, y);
        store_operand_transposed<CHUNK / 16>(smem.out.v_new[wg], a);
        send_v_new(to, smem.out.v_new[wg]);
        wgmma_wait<0>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(in, PIPE_A, chunk);
        consumer_release<blocks>(in, PIPE_K, chunk);
    }
}

// ---- the block

// Warp 0 loads k~ (pipeline K), warp 1 loads pipeline A, and warps 2 and 3 copy v.
template <int blocks, int K, int WGS, int kda>
static __device__ __forceinline__ void states_producer_warpgroup(
    const struct forward_params &f, int z, int n, int v0,
    struct scan_storage<K, WGS, STATES_SCAN, kda> &in)
{
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (warp == 0) scan_producer_warp<PIPE_K, 1, 0, blocks>(f, z, n, v0, in);
    if (warp == 1) scan_producer_warp<PIPE_A, 1, 0, blocks>(f, z, n, v0, in);
    if (warp >= 2) scan_producer_warp<PIPE_K, 0, MAP_V_LANES, blocks>(f, z, n, v0, in);
}

// Loads 64 columns of the state before stretch z (a local token range of one sequence),
// scans the stretch's chunks, and stores h and v_new of each chunk.
template <int blocks, int K, int WGS, int kda>
static __device__ __forceinline__ void states_consumer_warpgroup(
    const struct backward_params &x, const struct forward_params &f, int z, int n,
    int v0, struct states_storage<K, WGS, kda> &smem)
{
    const int count = __shfl_sync(~0u, chunk_count(f, z), 0);
    const struct state_view h =
        scan_state_of(x, x.first, z, n, v0 + threadIdx.x / 32 * 16);
    const struct states_out to = states_out_of<K>(x, first_chunk(f, z), n, v0);
    float S[K / 8][4];
    load_state<K>(S, h.p, h.dv, h.di);
    if constexpr (kda) kda_states_consumer<K, WGS, blocks>(x, count, to, smem, S);
    else gdn_states_consumer<K, WGS, blocks>(x, count, to, smem, S);
    if (threadIdx.x % 128 == 0) tma_store_wait_read();
}

// Computes columns v0 to v0 + 64 WGS - 1 of value head n along token range z. The block
// has one producer warpgroup, and WGS consumer warpgroups of 64 columns each. `f` has
// the parameters of x.a in the format of forward's kernels. If `blocks` is 2, the two
// blocks of a cluster have all columns of a head and share the copied factors.
//
// Bound: memory. Per token and head, KDA reads 4K + 1.25C + 2V bytes and writes 2 KV /
// C + 2V bytes. With few token ranges and heads the bound is the latency of the
// sequential steps. Barriers: `full` and `empty` are as in scan_kernel. Three barriers
// per chunk synchronize a warpgroup: before the writes to staged tiles, after h is
// staged, and after v_new is staged.
template <int K, int WGS, int kda, int blocks>
static __device__ __forceinline__ void states_block(const struct backward_params &x,
                                                    const struct forward_params &f,
                                                    int z, int n, int v0, void *on_chip)
{
    auto &smem = *(struct states_storage<K, WGS, kda> *)on_chip;
    pipeline_init<blocks>(smem.in, MAP_V_LANES);
    griddepcontrol_wait();
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == WGS) {
        setmaxnreg_dec<scan_registers<WGS>::PRODUCER>();
        states_producer_warpgroup<blocks>(f, z, n, v0, smem.in);
    } else {
        setmaxnreg_inc<scan_registers<WGS>::CONSUMER>();
        states_consumer_warpgroup<blocks>(x, f, z, n, v0, smem);
    }
}
