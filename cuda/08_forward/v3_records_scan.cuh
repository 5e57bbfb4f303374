// v3_records_scan.cuh -- the kernel that consumes the records: a chain a block.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_walk_kda.cuh.
#ifndef KCP_V3_RECORDS_SCAN_CUH
#define KCP_V3_RECORDS_SCAN_CUH

#include "v3_records_chain.cuh"

// apart: o is made by a warpgroup of its own, of S and v_new that the other hands it.
template <int K>
struct __align__(1024) handed { unsigned char S[K / 64][BYTES], v[BYTES]; };

template <int K, int WGS, int kda, int apart>
struct scan_room {
    struct chain<K, WGS, 4, kda> m;
    struct handed<K> handed[apart];
    bf16 o[WGS == 1 ? 0 : WGS][CHUNK][64 + PAD];  // rows on their way out
    uint64_t o_full[kda || apart ? 0 : WGS], o_empty[kda || apart ? 0 : WGS];
    uint64_t h_full[apart], h_empty[apart];
};

// Where the states of a row of x lie: how far a column, a key row is from the next.
struct state_view { float *p; int64_t dv, di; };

static __device__ __forceinline__ struct state_view view_of(const struct kcp_forward &a,
                                                           const void *x, int layout,
                                                           int64_t row, int n, int v)
{
    const int64_t at = (row * a.HV + n) * a.K * a.V, kv = layout == KCP_KV;
    const int64_t dv = kv ? 1 : a.K, di = kv ? a.V : 1;
    return { x ? (float *)x + at + v * dv : NULL, dv, di };
}

#include "v3_records_walk_kda.cuh"
#include "v3_records_walk_apart.cuh"

// The turns that are not the chain's: arrivals of warps.
template <int K, int WGS, int kda, int apart>
static __device__ __forceinline__ void room_init(
    struct scan_room<K, WGS, kda, apart> &room)
{
    const int i = threadIdx.x;
    if constexpr (apart) {
        if (i == 0) turn_init(room.h_full, 4), turn_init(room.h_empty, 4);
    } else if constexpr (!kda) {
        if (i < WGS) turn_init(&room.o_full[i], 4), turn_init(&room.o_empty[i], 1);
    }
}

// The warps that copy, and take o to memory where it is not made apart.
template <int K, int WGS, int kda, int blocks, int apart>
static __device__ __forceinline__ void copy_all(
    const struct records &x, int z, int n, int v0,
    struct scan_room<K, WGS, kda, apart> &room)
{
    if constexpr (kda || apart) copy_ahead<blocks>(x, z, n, v0, room.m);
    else {
        const struct o_out<struct scan_room<K, WGS, 0, 0>, WGS> out = {
            room, o_rows(x, z, n) + v0, (int64_t)x.a.HV * x.a.V, rows_left(x, z) };
        copy_ahead<blocks>(x, z, n, v0, room.m, out);
    }
}

// The warps that have the state: from where it lies, along the chain, and back.
template <int K, int WGS, int kda, int blocks, int apart>
static __device__ __forceinline__ void walk_all(
    const struct records &x, int z, int n, int v0,
    struct scan_room<K, WGS, kda, apart> &room)
{
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    const int v = v0 + threadIdx.x / 32 * 16, to = x.to[z];
    const int ends = ((const int *)x.a.cn)[z + 1] <= first_chunk(x, z) + x.count;
    const struct state_view c = view_of(x.a, x.carry, KCP_KV, z, n, v);
    const struct state_view h =
        x.first ? c : view_of(x.a, x.h_in, x.h_layout, x.from[z], n, v);
    float S[K / 8][4];
    load_state<K>(S, h.p, h.dv, h.di);
    if (z < x.kept && !x.first) {
        const struct state_view k = view_of(x.a, x.to13.h_kept, KCP_KV, z, n, v);
        store_state<K>(k.p, k.dv, k.di, S);
    }
    if constexpr (kda) walk<K, WGS, blocks>(x, z, n, v0, room, S);
    else if constexpr (apart) walk_state<K, blocks>(room, count, S);
    else walk_links(walk_gdn<K, WGS, blocks>{ room, wg }, count, S);
    const struct state_view t = !ends ? c : view_of(x.a, x.a.ht, x.a.layout, to, n, v);
    if (!ends || to >= 0) store_state<K>(t.p, t.dv, t.di, S);
}

// Bound: memory, 6K + 4C + 2V read and 2V written a token-head. In series: T / C chunks
// of four products each; a chunk is 2300 cycles of tensor core for the two warpgroups,
// which take turns. Registers: S 64, its bf16 32, y 32, o 32, b 16 of 232 a thread.
// apart: a second warpgroup makes o; of three that are launched with 168 a thread.
template <int K, int WGS, int kda, int blocks, int apart>
static __global__ __launch_bounds__(128 * (WGS + apart) + 128, 1) void scan_kernel(
    const struct records x)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    auto &room = *(struct scan_room<K, WGS, kda, apart> *)on_chip;
    const int n = blockIdx.x, z = x.order[blockIdx.y], v0 = blockIdx.z * 64 * WGS;

    let_next_begin();
    room_init(room);
    chain_init<blocks>(room.m, 33);
    wait_for_scan();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == WGS + apart) {
        give_registers<WGS == 1 ? 56 : 40>();
        copy_all<K, WGS, kda, blocks, apart>(x, z, n, v0, room);
        if (blocks > 1) cluster_sync();
        return;
    }
    if constexpr (apart) {
        if (wg == WGS) {
            walk_o<K, blocks>(x, z, n, v0, room);
            if (blocks > 1) cluster_sync();
            return;
        }
    }
    take_registers<232>();
    walk_all<K, WGS, kda, blocks, apart>(x, z, n, v0, room);
    if (blocks > 1) cluster_sync();      // the other may still write here
}

// blocks: 2, the halves of a head's columns are a cluster and share their copies.
template <int K, int WGS, int kda, int blocks, int apart>
static int scan_records_of(const struct records *x)
{
    const size_t bytes = sizeof(struct scan_room<K, WGS, kda, apart>);
    static_assert(bytes <= 227 * 1024, "on chip");
    const int threads = 128 * (WGS + apart) + 128;
    const dim3 grid(x->a.HV, x->a.NS, x->a.V / (64 * WGS));
    return launch_pairs(scan_kernel<K, WGS, kda, blocks, apart>, bytes, grid, threads,
                        blocks, x);
}

// Few chains: 64 columns a block, so that more SMs have one; with one gate a head there
// is room for o apart.
template <int K, int kda>
static int scan_records(const struct records *x)
{
    const int apart = !kda;
    if (x->a.V == 64) return scan_records_of<K, 1, kda, 1, apart>(x);
    return (int64_t)x->a.HV * x->a.NS * 2 > 132
         ? scan_records_of<K, 2, kda, 1, 0>(x)
         : scan_records_of<K, 1, kda, 2, apart>(x);
}

#endif
