// states.cuh -- backward: recomputes and stores the states of a head before each chunk.
// Book: chapter 18c.
#pragma once

#include "cuda/18_hopper/backward/storage.cuh"
#include "cuda/18_hopper/forward_scan/state_scan.cuh"

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

// The policy of this scan (state_scan.cuh): stores this warpgroup's part of h and v_new
// in the arrays of x. `h` and `v_new` are the addresses of a chunk, and `h_step` and
// `v_step` are the bytes to the next chunk.
template <int K, int WGS, int kda>
struct states_out {
    const struct backward_params &x;
    struct states_storage<K, WGS, kda> &smem;
    unsigned char *h, *v_new;
    int64_t h_step, v_step;
    int column;

    __device__ __forceinline__ void stage_h(const uint32_t (*a)[4])
    {
        staged_wait_read();
        store_operand_transposed<K / 16>(smem.out.h[threadIdx.x / 128][0], a);
    }

    __device__ __forceinline__ void send_h(void)
    {
        staged_publish();
        if (threadIdx.x % 128 == 0)
            tma_store_state<K>(h, column, x.a.V / 64, smem.out.h[threadIdx.x / 128]);
    }

    __device__ __forceinline__ void send_v_new(const uint32_t (*b)[4])
    {
        unsigned char *staged = smem.out.v_new[threadIdx.x / 128];
        store_operand_transposed<CHUNK / 16>(staged, b);
        staged_publish();
        if (threadIdx.x % 128 == 0)
            tma_store_tile(v_new + column * TILE_BYTES, staged);
        h += h_step;
        v_new += v_step;
    }
};

template <int K, int WGS, int kda>
static __device__ __forceinline__ struct states_out<K, WGS, kda> states_out_of(
    const struct backward_params &x, int c, int n, int v0,
    struct states_storage<K, WGS, kda> &smem)
{
    const int columns = x.a.V / 64;
    const int64_t at = (int64_t)c * x.a.HV + n, rows = columns * TILE_BYTES;
    const int64_t state = K / 64 * rows;
    return { x, smem, (unsigned char *)x.h + at * state,
             (unsigned char *)x.v_new + at * rows, x.a.HV * state, x.a.HV * rows,
             v0 / 64 + (int)threadIdx.x / 128 };
}

static __device__ __forceinline__ struct state_view scan_state_of(
    const struct backward_params &x, const struct scan_states &s, int z, int n, int v)
{
    const int row = s.x ? s.row[z] : -1;
    return state_view_of(x.a, row < 0 ? NULL : s.x, s.layout, row, n, v);
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
    const auto to = states_out_of(x, first_chunk(f, z), n, v0, smem);
    float S[K / 8][4];
    load_state<K>(S, h.p, h.dv, h.di);
    if constexpr (kda) kda_state_scan<blocks>(count, 1, to, smem.in, S);
    else gdn_state_scan<blocks>(f, z, 0, count, 1, to, smem.in, S);
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
        state_producer_warpgroup<blocks>(f, z, n, v0, 1, smem.in);
    } else {
        setmaxnreg_inc<scan_registers<WGS>::CONSUMER>();
        states_consumer_warpgroup<blocks>(x, f, z, n, v0, smem);
    }
}
