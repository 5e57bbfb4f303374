// v3_records_scan.cuh -- the kernel that consumes the records: a chain a block.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_maps.cuh.
#ifndef KCP_V3_RECORDS_SCAN_CUH
#define KCP_V3_RECORDS_SCAN_CUH

#include "v3_records_walk_gdn.cuh"
#include "v3_records_walk_kda.cuh"

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

// The warps that have the state: from where it lies, along the chain, and back.
template <int K, int WGS, int kda, int blocks>
static __device__ __forceinline__ void walk_all(const struct records &x, int z, int n,
                                                int v0,
                                                struct chain<K, WGS, 4, kda> &m)
{
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
    const struct o_out o = o_out(x, z, n, v0, count);
    if constexpr (kda) walk_links(walk_kda<K, WGS, blocks>{ m, o }, count, S);
    else walk_links(walk_gdn<K, WGS, blocks>{ m, o }, count, S);
    const struct state_view t = !ends ? c : view_of(x.a, x.a.ht, x.a.layout, to, n, v);
    if (!ends || to >= 0) store_state<K>(t.p, t.dv, t.di, S);
}

// Bound: memory, 6K + 2.5C + 2V read and 2V written a token-head. In series: T / C
// links of three products each; a link is about 1000 cycles of tensor core a warpgroup.
// Registers: S 64, its bf16 32, y 32, o 32, packed 16, b 16 of 232 a thread.
template <int K, int WGS, int kda, int blocks>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void scan_kernel(
    const struct records x)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    auto &m = *(struct chain<K, WGS, 4, kda> *)on_chip;
    const int n = blockIdx.x, z = x.order[blockIdx.y], v0 = blockIdx.z * 64 * WGS;

    griddepcontrol_launch_dependents();
    chain_init<blocks>(m, 33);
    griddepcontrol_wait();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == WGS) {
        setmaxnreg_dec<WGS == 1 ? 56 : 40>();
        copy_ahead<blocks>(x, z, n, v0, m);
    } else {
        setmaxnreg_inc<232>();
        walk_all<K, WGS, kda, blocks>(x, z, n, v0, m);
    }
    if (blocks > 1) cluster_sync();      // the other may still write here
}

// blocks: 2, the halves of a head's columns are a cluster and share their copies.
template <int K, int WGS, int kda, int blocks>
static int scan_records_of(const struct records *x)
{
    const size_t bytes = sizeof(struct chain<K, WGS, 4, kda>);
    static_assert(bytes <= 227 * 1024, "on chip");
    const dim3 grid(x->a.HV, x->a.NS, x->a.V / (64 * WGS));
    return launch_pairs(scan_kernel<K, WGS, kda, blocks>, bytes, grid, 128 * WGS + 128,
                        blocks, x);
}

// Few chains: 64 columns a block, so that more SMs have one.
template <int K, int kda>
static int scan_records(const struct records *x)
{
    if (x->a.V == 64) return scan_records_of<K, 1, kda, 1>(x);
    return (int64_t)x->a.HV * x->a.NS * 2 > 132 ? scan_records_of<K, 2, kda, 1>(x)
                                                : scan_records_of<K, 1, kda, 2>(x);
}

#endif
