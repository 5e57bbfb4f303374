// maps_sm90.cu -- computes the maps (M, h_ext) of chapter 05 from chunk factors.
// Book: chapter 18b; chapter 05.
//
// A stretch is a segment, or a strip (part) of a segment. If S is the state before a
// stretch, M S + h_ext is the state after. A scan from S = 0 (or S = h0, if the
// sequence starts in the stretch) gives h_ext. A scan from S = I with v = 0 gives M.
#include "cuda/18_hopper/forward_scan/state_scan.cuh"

// If `walks` is 0, a launch computes the maps of all token ranges whose entry in x.want
// is set. If `walks` is 1, the rank has one segment: a launch extends map `from` (-1:
// none yet) by one window of chunks, and stores the result as map `to`, while the next
// window's factors are computed. If `only_h` is 1, M is not computed.
struct map_walk { int walks, from, to, only_h; };

// Computes a thread's part of a map. `v0`: the block's first column of h_ext or of M.
template <int K, int WGS, int kda, int blocks>
static __device__ __forceinline__ void map_consumers(
    const struct forward_params &x, const struct map_walk &w, int z, int n, int v0,
    int of_v, struct scan_storage<K, WGS, MAP_SCAN, kda> &smem)
{
    const int VK = x.a.V + K;
    const int64_t v = v0 + threadIdx.x / 32 * 16, column = v + (of_v ? 0 : x.a.V);
    const int64_t state = ((int64_t)(w.walks ? w.to : z) * x.a.HV + n) * K;
    const int64_t before = ((int64_t)w.from * x.a.HV + n) * K;
    const int64_t own = ((int64_t)x.own[z] * x.a.HV + n) * K * x.a.V + v;
    const float *begin = own < 0 ? NULL : (const float *)x.h_own + own;
    float S[K / 8][4];
    if (w.walks && w.from >= 0)
        load_state<K>(S, (const float *)x.maps + before * VK + column, 1, VK);
    else if (of_v) load_state<K>(S, begin, 1, x.a.V);
    else set_identity<K>(S, v);
    const int first = kda ? 0 : __shfl_sync(~0u, first_chunk(x, z), 0);
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    const struct keeps_nothing keep;
    if constexpr (kda) kda_state_scan<blocks>(count, of_v, keep, smem, S);
    else gdn_state_scan<blocks>(x, z, first, count, of_v, keep, smem, S);
    store_state<K>((float *)x.maps + state * VK + column, 1, VK, S);
}

// Bound: the tensor core, with 4 C K (V + K) + 2 C^2 (V + K) flops per chunk and head.
// The kernel reads 4K + 1.25C + 2V bytes per token and head. An SM runs one block. S
// takes 64 of a thread's 232 registers.
//
// Ownership: a block computes 64 WGS columns of [h_ext | M], and each consumer
// warpgroup computes 64 of these columns. If `blocks` is 2, two blocks form a cluster
// (one of h_ext and one of M, or both of h_ext), and each factor is copied once for
// both blocks. Separate blocks would drift apart in time and read the factors twice.
// Barriers: `full` and `empty` are as in scan_kernel.
template <int K, int WGS, int kda, int blocks>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void maps_kernel(
    const struct forward_params x, const struct map_walk w)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct scan_storage<K, WGS, MAP_SCAN, kda> &smem =
        *(struct scan_storage<K, WGS, MAP_SCAN, kda> *)on_chip;
    const int wide = 64 * WGS, n = blockIdx.x, z = blockIdx.y;
    const int of_M = w.only_h ? 0 : K / wide, of_v = blockIdx.z >= of_M;
    const int v0 = (blockIdx.z - (of_v ? of_M : 0)) * wide;
    const int own_part = of_v ? KCP_WANT_H : KCP_WANT_M;
    const int mine = blocks > 1 ? KCP_WANT_H | KCP_WANT_M : own_part;
    if (!w.walks && !(x.want[z] & mine)) return;

    griddepcontrol_launch_dependents();
    pipeline_init<blocks>(smem, of_v ? (int)MAP_V_LANES : 0);
    griddepcontrol_wait();
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == WGS) {
        setmaxnreg_dec<scan_registers<WGS>::PRODUCER>();
        state_producer_warpgroup<blocks>(x, z, n, v0, of_v, smem);
    } else {
        setmaxnreg_inc<scan_registers<WGS>::CONSUMER>();
        map_consumers<K, WGS, kda, blocks>(x, w, z, n, v0, of_v, smem);
    }
    if (blocks > 1) cluster_sync();      // the other block may still arrive at `empty`
}

template <int K, int WGS, int kda, int blocks>
static int launch_maps_blocks(const struct forward_params *x, struct map_walk w)
{
    const size_t bytes = sizeof(struct scan_storage<K, WGS, MAP_SCAN, kda>);
    const int columns = w.only_h ? x->a.V : K + x->a.V;
    const dim3 grid(x->a.HV, x->a.NS, columns / (64 * WGS));
    return launch_clusters(maps_kernel<K, WGS, kda, blocks>, bytes, grid,
                           128 * WGS + 128, blocks, x, w);
}

// Computes h_ext without M, concurrently with other kernels. For KDA with V = K one
// block with all columns is fastest. For GDN the steps of such a block would take too
// long, so for V = 128 two blocks of 64 columns form a cluster and share their copies.
template <int K, int kda>
static int launch_h_columns(const struct forward_params *x, struct map_walk w)
{
    if constexpr (kda)
        if (x->a.V == K) return launch_maps_blocks<K, K / 64, kda, 1>(x, w);
    return x->a.V == 128 ? launch_maps_blocks<K, 1, kda, 2>(x, w)
                         : launch_maps_blocks<K, 1, kda, 1>(x, w);
}

// If K = V, one block computes M, another block computes h_ext, and the warpgroups of a
// block share the factors of a chunk.
template <int K, int kda>
static int launch_maps_columns(const struct forward_params *x, struct map_walk w)
{
    if (w.only_h) return launch_h_columns<K, kda>(x, w);
    return K == x->a.V ? launch_maps_blocks<K, K / 64, kda, 2>(x, w)
                       : launch_maps_blocks<K, 1, kda, 1>(x, w);
}

static int launch_maps(const struct forward_params *x, struct map_walk w)
{
    if (x->a.KG == 1)
        return x->a.K == 128 ? launch_maps_columns<128, 0>(x, w)
                             : launch_maps_columns<64, 0>(x, w);
    return x->a.K == 128 ? launch_maps_columns<128, 1>(x, w)
                         : launch_maps_columns<64, 1>(x, w);
}

int forward_maps(const struct forward_params *x)
{
    const struct map_walk all = { 0, 0, 0, 0 };
    return launch_maps(x, all);
}

int forward_maps_walk(const struct forward_params *x, int from, int to, int only_h)
{
    const struct map_walk w = { 1, from, to, only_h };
    return launch_maps(x, w);
}
