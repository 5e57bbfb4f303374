// v3_records_maps.cuh -- (M, h_ext) of the stretches that others need, from the records.
// Book: chapter 17, "Code: kernels"; chapter 05.
// Checked by: tests/08_forward.c.
// Next: v3_records_sm90.cu.
#ifndef KCP_V3_RECORDS_MAPS_CUH
#define KCP_V3_RECORDS_MAPS_CUH

#include "v3_records_chain.cuh"

// d += x X^T, or a state += x X, with x in `pieces` pieces of bf16, one after another: X
// is bf16, so three pieces lose nothing of an fp32 but what the accumulator rounds.
template <int steps, int pieces, int p = 0>
static __device__ __forceinline__ void times_pieces(float (*d)[4], const float (*x)[4],
                                                    const unsigned char *X, int add)
{
    uint32_t a[steps][4];
    as_rows<2 * steps, p>(a, x);
    group_begin();
    times_panels<steps>(d, a, X, add || p);
    group_commit();
    group_wait<0>();
    if constexpr (p + 1 < pieces) times_pieces<steps, pieces, p + 1>(d, x, X, add);
}

template <int K, int pieces, int p = 0>
static __device__ __forceinline__ void add_pieces(float (*S)[4], const float (*x)[4],
                                                  const unsigned char *X)
{
    uint32_t a[CHUNK / 16][4];
    as_rows<CHUNK / 8, p>(a, x);
    group_begin();
    add_panels<K>(S, a, X);
    group_commit();
    group_wait<0>();
    if constexpr (p + 1 < pieces) add_pieces<K, pieces, p + 1>(S, x, X);
}

// S <- Lambda S + kg^T A beta (v - k~ S) along stretch z: h_ext; without v, from I: M.
template <int K, int pieces>
static __device__ __forceinline__ void map_walk(const struct records &x, int z, int of_v,
                                                struct chain<K, 1, 2> &m, float (*S)[4])
{
    const int *cn = (const int *)x.a.cn;
    const int c0 = __shfl_sync(~0u, cn[z], 0), c1 = __shfl_sync(~0u, cn[z + 1], 0);
    float y[CHUNK / 8][4], b[CHUNK / 8][4];

    for (int turn = 0; turn < c1 - c0; turn++) {
        const auto &r = m.turn[turn % TURNS];
        const int at = turn % FIRST_TURNS;
        wait_full(m, PART_K, turn);
        if (of_v) load_v(y, m.v[at][0], 64 + PAD, chunk_span(x.a, z, c0 + turn).len);
        times_pieces<K / 16, pieces>(y, S, m.k[at].x[0], of_v);
        give_back(m, PART_K, turn);
        wait_full(m, PART_A, turn);
        scale_columns<K / 8>(S, m.decay[turn % TURNS]);
        times_pieces<CHUNK / 16, pieces>(b, y, r.Ab, 0);
        add_pieces<K, pieces>(S, b, r.kg[0]);
        give_back(m, PART_A, turn);
    }
}

// A block is 64 columns of [h_ext | M], those of M first, for they take thrice as long.
// Bound: the tensor core, 4 C K (V + 3 K) + 2 C^2 (V + 3 K) flops a chunk and head.
template <int K>
static __global__ __launch_bounds__(256, 1) void maps_kernel(const struct records x)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct chain<K, 1, 2> &m = *(struct chain<K, 1, 2> *)on_chip;
    const int n = blockIdx.x, z = blockIdx.y, of_v = blockIdx.z >= K / 64;
    const int v0 = (blockIdx.z - (of_v ? K / 64 : 0)) * 64, VK = x.a.V + K;
    if (!(x.want[z] & (of_v ? KCP_WANT_H : KCP_WANT_M))) return;

    chain_init(m);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0)) {
        copy_ahead<K, 1>(x, z, n, v0, of_v, m);
        return;
    }
    const int64_t state = ((int64_t)z * x.a.HV + n) * K, v = v0 + threadIdx.x / 32 * 16;
    float *map = (float *)x.maps + state * VK + v, S[K / 8][4];
    if (of_v) {
        load_state<K>(S, (const float *)x.h_in + state * x.a.V + v, 1, x.a.V);
        map_walk<K, 1>(x, z, 1, m, S);
        store_state<K>(map, 1, VK, S);
    } else {
        set_identity<K>(S, v);
        map_walk<K, 3>(x, z, 0, m, S);
        store_state<K>(map + x.a.V, 1, VK, S);
    }
}

template <int K>
static int records_maps(const struct records *x)
{
    const size_t bytes = sizeof(struct chain<K, 1, 2>);
    const dim3 grid(x->a.HV, x->a.NS, (K + x->a.V) / 64);
    cudaFuncSetAttribute(maps_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    maps_kernel<K><<<grid, 256, bytes, x->a.stream>>>(*x);
    return launched();
}

#endif
