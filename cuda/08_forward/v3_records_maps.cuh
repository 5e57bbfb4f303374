// v3_records_maps.cuh -- (M, h_ext) of stretches that others need, from the records.
// Book: chapter 17, "Code: kernels"; chapter 05.
// Checked by: tests/08_forward.c.
// Next: v3_records_sm90.cu.
#ifndef KCP_V3_RECORDS_MAPS_CUH
#define KCP_V3_RECORDS_MAPS_CUH

#include "v3_records_chain.cuh"

// x in `pieces` pieces of bf16: X is bf16, so two leave 2^-17 of an fp32. d = x X^T, or
// += with add. The products of all pieces are under way at once.
template <int steps, int pieces>
struct split_rows { uint32_t a[pieces][steps][4]; };

template <int steps, int pieces>
static __device__ __forceinline__ void split_into(struct split_rows<steps, pieces> &to,
                                                  const float (*x)[4])
{
    as_rows<2 * steps, 0>(to.a[0], x);
    if (pieces > 1) as_rows<2 * steps, 1>(to.a[pieces - 1], x);
}

template <int steps, int pieces>
static __device__ __forceinline__ void times_pieces(
    float (*d)[4], const struct split_rows<steps, pieces> &x, const unsigned char *X,
    int add)
{
    group_begin();
    #pragma unroll
    for (int p = 0; p < pieces; p++) times_panels<steps>(d, x.a[p], X, add || p);
    group_commit();
}

// S <- Lambda S + kg^T A beta (v - k~ S) along stretch z: h_ext; without v, from I: M.
template <int K, int WGS, int pieces, int kda>
static __device__ __forceinline__ void map_walk(const struct records &x, int z,
                                                struct chain<K, WGS, 2, kda> &m,
                                                float (*S)[4])
{
    const int of_v = pieces == 1, c0 = __shfl_sync(~0u, first_chunk(x, z), 0);
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    float y[CHUNK / 8][4];
    struct split_rows<K / 16, pieces> a;
    struct split_rows<CHUNK / 16, pieces> b;

    for (int turn = 0; turn < count; turn++) {
        const auto &r = m.turn[turn % m.LATER];
        const int at = turn % FIRST_TURNS;
        const int len = of_v ? chunk_span(x.a, z, c0 + turn).len : 0;
        uint32_t v[4][4] = {};
        split_into(a, S);
        wait_full(m, PART_K, turn);
        if (of_v && kda) load_v(y, m.v[at][0], 64 * WGS + PAD, len);
        if (of_v && !kda) load_v_raw(v, m.v[at][0], 64 * WGS + PAD);
        times_pieces(y, a, m.k[at].x[0], of_v && kda);
        wait_full(m, PART_A, turn);
        if (kda) scale_columns<K / 8>(S, m.decay[turn % TURNS]);
        else scale_all(S, K / 8, m.head[turn % m.LATER].decay[0]);
        group_wait<0>();
        hold<CHUNK / 8>(y);
        if (kda) give_back(m, PART_K, turn);
        else v_minus(y, v, m.head[turn % m.LATER].F, len);
        split_into(b, y);
        group_begin();
        #pragma unroll
        for (int p = 0; p < pieces; p++) times_triangle(y, b.a[p], r.Ab, p);
        group_commit();
        group_wait<0>();
        hold<CHUNK / 8>(y);
        if (!kda) scale_columns<CHUNK / 8>(y, m.head[turn % m.LATER].B);
        split_into(b, y);
        group_begin();
        #pragma unroll
        for (int p = 0; p < pieces; p++) 
            add_panels<K>(S, b.a[p], kda ? r.kg[0] : m.k[at].x[0]);
        group_commit();
        group_wait<0>();
        hold<K / 8>(S);
        give_back(m, PART_A, turn);
        if (!kda) give_back(m, PART_K, turn);
    }
}

// A block is 64 WGS columns of [h_ext | M], those of M first, for they take longer.
// Bound: the tensor core, 4 C K (V + 2 K) + 2 C^2 (V + 2 K) flops a chunk and head.
template <int K, int WGS, int kda>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void maps_kernel(
    const struct records x)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct chain<K, WGS, 2, kda> &m = *(struct chain<K, WGS, 2, kda> *)on_chip;
    const int wide = 64 * WGS, n = blockIdx.x, z = blockIdx.y;
    const int of_v = blockIdx.z >= K / wide, VK = x.a.V + K;
    const int v0 = (blockIdx.z - (of_v ? K / wide : 0)) * wide;
    if (!(x.want[z] & (of_v ? KCP_WANT_H : KCP_WANT_M))) return;

    chain_init(m, of_v);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == WGS) {
        give_registers<WGS == 1 ? 56 : 40>();
        copy_ahead(x, z, n, v0, of_v, m);
        return;
    }
    take_registers<232>();
    const int64_t state = ((int64_t)z * x.a.HV + n) * K, v = v0 + threadIdx.x / 32 * 16;
    float *map = (float *)x.maps + state * VK + v, S[K / 8][4];
    if (of_v) {
        load_state<K>(S, (const float *)x.h_in + state * x.a.V + v, 1, x.a.V);
        map_walk<K, WGS, 1, kda>(x, z, m, S);
        store_state<K>(map, 1, VK, S);
    } else {
        set_identity<K>(S, v);
        map_walk<K, WGS, 2, kda>(x, z, m, S);
        store_state<K>(map + x.a.V, 1, VK, S);
    }
}

template <int K, int WGS, int kda>
static int maps_of(const struct records *x)
{
    const size_t bytes = sizeof(struct chain<K, WGS, 2, kda>);
    const dim3 grid(x->a.HV, x->a.NS, (K + x->a.V) / (64 * WGS));
    auto kernel = maps_kernel<K, WGS, kda>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, 128 * WGS + 128, bytes, x->a.stream>>>(*x);
    return launched();
}

// M and h_ext of 128 columns each: two warpgroups share a chunk's record.
template <int K, int kda>
static int records_maps(const struct records *x)
{
    return K == 128 && x->a.V == 128 ? maps_of<K, K / 64, kda>(x)
                                     : maps_of<K, 1, kda>(x);
}

#endif
