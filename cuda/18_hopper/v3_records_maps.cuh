// v3_records_maps.cuh -- (M, h_ext) of stretches that others need, from the records.
// Book: chapter 18, "Code: kernels"; chapter 05.
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_cut.h.
#ifndef KCP_V3_RECORDS_MAPS_CUH
#define KCP_V3_RECORDS_MAPS_CUH

#include "v3_records_chain.cuh"

// Two warps have v, rows in turn: one warp with -k~ and v came too late.
template <int blocks, int K, int WGS, int kda>
static __device__ __forceinline__ void copy_map(const struct records &x, int z, int n,
                                                int v0, int of_v,
                                                struct chain<K, WGS, 2, kda> &m)
{
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (warp == 0) copy_parts<PART_K, 1, 0, blocks>(x, z, n, v0, m);
    if (warp == 1) copy_parts<PART_A, 1, 0, blocks>(x, z, n, v0, m);
    if (warp >= 2 && of_v) copy_parts<PART_K, 0, 64, blocks>(x, z, n, v0, m);
}

// The chunk's k~ has come, and y begins with its rows of v; for M with nothing.
template <int K, int WGS>
static __device__ __forceinline__ void begin_link(float (*y)[4], int turn, int of_v,
                                                  struct chain<K, WGS, 2, 1> &m)
{
    const bf16 *v = m.v[turn % m.FIRST][0] + threadIdx.x / 32 * 16;
    wait_full(m, PART_K, turn);
    if (of_v) from_rows(y, v, 64 * WGS + PAD);
}

// S <- Lambda S + kg^T A beta (v - k~ S) along stretch z: h_ext; without v, from I: M.
// S is kept in fp32 and enters products rounded, as in the scan.
template <int K, int WGS, int blocks>
static __device__ __forceinline__ void map_walk(const struct records &x, int z,
                                                int of_v,
                                                struct chain<K, WGS, 2, 1> &m,
                                                float (*S)[4])
{
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    float y[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4];

    if (count) begin_link<K, WGS>(y, 0, of_v, m);
    for (int turn = 0; turn < count; turn++) {
        const int at = turn % m.SECOND;
        as_rows<K / 8>(a, S);
        wgmma_fence();
        times_panels<K / 16>(y, a, m.k[turn % m.FIRST].x[0], of_v);
        wgmma_commit();
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        give_back<blocks>(m, PART_K, turn);
        as_rows<CHUNK / 8>(b, y);
        wait_full(m, PART_A, turn);
        wgmma_fence();
        times_triangle(y, b, m.second[at].Ab, 0);
        wgmma_commit();
        scale_columns<K / 8>(S, m.decay[at]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        as_rows<CHUNK / 8>(b, y);
        wgmma_fence();
        add_panels<K>(S, b, m.second[at].kg[0]);
        wgmma_commit();
        if (turn + 1 < count) begin_link<K, WGS>(y, turn + 1, of_v, m);
        wgmma_wait<0>();
        fence_operand<K / 8>(S);
        give_back<blocks>(m, PART_A, turn);
    }
}

// The same with one gate a head: factors of rows stay outside the products.
template <int K, int WGS, int blocks>
static __device__ __forceinline__ void map_walk_gdn(const struct records &x, int z,
                                                    int of_v,
                                                    struct chain<K, WGS, 2, 0> &m,
                                                    float (*S)[4])
{
    const int c0 = __shfl_sync(~0u, first_chunk(x, z), 0);
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    float y[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4];

    for (int turn = 0; turn < count; turn++) {
        const auto &f = m.head[turn % m.SECOND];
        const int at = turn % m.FIRST;
        const int len = of_v ? chunk_tokens(x.a, z, c0 + turn).len : 0;
        uint32_t v[4][4] = {};
        as_rows<K / 8>(a, S);
        wait_full(m, PART_K, turn);
        if (of_v) load_v_raw(v, m.v[at][0], 64 * WGS + PAD);
        wgmma_fence();
        times_panels<K / 16>(y, a, m.k[at].x[0], 0);
        wgmma_commit();
        wait_full(m, PART_A, turn);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        v_minus(y, v, f.F, len);
        as_rows<CHUNK / 8>(b, y);
        wgmma_fence();
        times_triangle(y, b, m.second[turn % m.SECOND].Ab, 0);
        wgmma_commit();
        scale_all(S, K / 8, f.decay[0]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        scale_columns<CHUNK / 8>(y, f.B);
        as_rows<CHUNK / 8>(b, y);
        wgmma_fence();
        add_panels<K>(S, b, m.k[at].x[0]);
        wgmma_commit();
        wgmma_wait<0>();
        fence_operand<K / 8>(S);
        give_back<blocks>(m, PART_A, turn), give_back<blocks>(m, PART_K, turn);
    }
}

// A block is 64 WGS columns of [h_ext | M]. blocks: 2, h_ext and M have a block each,
// of as many columns; they are a cluster and share their copies. Left alone they drift
// apart, and memory is read for either.
// Bound: the tensor core, 4 C K (V + K) + 2 C^2 (V + K) flops a chunk and head.
template <int K, int WGS, int kda, int blocks>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void maps_kernel(
    const struct records x)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct chain<K, WGS, 2, kda> &m = *(struct chain<K, WGS, 2, kda> *)on_chip;
    const int wide = 64 * WGS, n = blockIdx.x, z = blockIdx.y;
    const int of_v = blockIdx.z >= K / wide, VK = x.a.V + K;
    const int v0 = (blockIdx.z - (of_v ? K / wide : 0)) * wide;
    const int mine = blocks > 1 ? KCP_WANT_H | KCP_WANT_M
                   : of_v ? KCP_WANT_H : KCP_WANT_M;
    if (!(x.want[z] & mine)) return;

    chain_init<blocks>(m, of_v ? 65 : 1);
    griddepcontrol_wait();
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == WGS) {
        setmaxnreg_dec<WGS == 1 ? 56 : 40>();
        copy_map<blocks>(x, z, n, v0, of_v, m);
        if (blocks > 1) cluster_sync();
        return;
    }
    setmaxnreg_inc<232>();
    const int64_t state = ((int64_t)z * x.a.HV + n) * K, v = v0 + threadIdx.x / 32 * 16;
    const int64_t own = ((int64_t)x.own[z] * x.a.HV + n) * K * x.a.V + v;
    float S[K / 8][4];
    if (of_v)
        load_state<K>(S, own < 0 ? NULL : (const float *)x.h_own + own, 1, x.a.V);
    else set_identity<K>(S, v);
    if constexpr (kda) map_walk<K, WGS, blocks>(x, z, of_v, m, S);
    else map_walk_gdn<K, WGS, blocks>(x, z, of_v, m, S);
    store_state<K>((float *)x.maps + state * VK + v + (of_v ? 0 : x.a.V), 1, VK, S);
    if (blocks > 1) cluster_sync();      // the other may still write here
}

template <int K, int WGS, int kda, int blocks>
static int maps_of(const struct records *x)
{
    const size_t bytes = sizeof(struct chain<K, WGS, 2, kda>);
    const dim3 grid(x->a.HV, x->a.NS, (K + x->a.V) / (64 * WGS));
    return launch_pairs(maps_kernel<K, WGS, kda, blocks>, bytes, grid, 128 * WGS + 128,
                        blocks, x);
}

// M and h_ext of as many columns: two blocks, and all warpgroups of one share a chunk's
// record.
template <int K, int kda>
static int records_maps(const struct records *x)
{
    return K == x->a.V ? maps_of<K, K / 64, kda, 2>(x) : maps_of<K, 1, kda, 1>(x);
}

#endif
