// finish_kda.cuh -- KDA: the gradients of a chunk's raw inputs, except dv.
// Book: chapter 18c.
#pragma once

#include "finish_deep.cuh"

// Registers per thread. If K = 64, two blocks share an SM.
template <int K>
struct finish_registers {
    enum { CONSUMER = K == 128 ? 240 : 216, PRODUCER = K == 128 ? 24 : 40 };
};

// Computes X = dO v_new^T and Y = dv v_new^T for the triangles dA and dB. Each warp has
// 16 rows. If K = 128, each of the two consumer warpgroups computes one product. If K =
// 64, the only consumer warpgroup computes X and Y.
template <int K>
static __device__ __forceinline__ void begin_triangles(
    const struct kda_finish_storage<K> &s, int tile, float (*d)[4])
{
    wgmma_tiles_begin<K>(d, tile ? s.dv : s.dO, s.v_new);
}

template <int K>
static __device__ __forceinline__ void finish_triangles(
    const struct backward_params &x, int tile, const struct finish_vectors<K> &of,
    float (*d)[4], struct kda_finish_storage<K> &smem)
{
    wgmma_tiles_wait(d);
    store_triangle<K>(tile, (float)x.a.scale, of, d, smem);
    if (K == 128) return;
    begin_triangles<K>(smem, 1, d);
    wgmma_tiles_wait(d);
    store_triangle<K>(1, 1.0f, of, d, smem);
}

// Returns the address in the scratch of this thread's sums over value heads.
template <int K>
static __device__ __forceinline__ float4 *sums_of_block(const struct backward_params &x)
{
    return (float4 *)x.scratch
           + (int64_t)blockIdx.x * 16 * finish_threads<K>::CONSUMERS + threadIdx.x;
}

// Sums dq and dk over the value heads of a query/key head. Each thread keeps its fp32
// sums between value heads in global memory (L2).
static __device__ __forceinline__ void add_to_group(float4 *sums, int threads,
                                                    int first, int last,
                                                    pairs_of_tokens &dq, float (*dk)[4])
{
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float4 *sum = sums + (2 * t + h) * threads;
            float4 y = { bf16x2_low(dq[t][h]), bf16x2_high(dq[t][h]), dk[t][2 * h],
                         dk[t][2 * h + 1] };
            if (!first) {
                const float4 x = *sum;
                y = { y.x + x.x, y.y + x.y, y.z + x.z, y.w + x.w };
            }
            if (!last) *sum = y;
            dq[t][h] = pack_bf16x2(y.x, y.y);
            dk[t][2 * h] = y.z;
            dk[t][2 * h + 1] = y.w;
        }
}

// Computes Q^T and row sums of k: per token, the sum over earlier columns. Adds these
// terms of dk to dk and, times k, to dG. Adds the sums of h dS to `last` (dG_last).
template <int K>
static __device__ __forceinline__ void add_row_terms_of_dk(
    int chunk, int wg, int deep, const struct finish_vectors<K> &of,
    const struct anchors &b, const float *G_last, const struct operands &o,
    const float (*G)[4], float (*d)[4], float *last, float (*dG)[4], float (*dk)[4],
    struct kda_finish_storage<K> &smem)
{
    //> finish-keys
    wgmma_tiles_begin<K>(d, smem.h[wg], smem.dv);
    mbarrier_wait(&smem.sums_full, chunk);
    add_h_dS<K>(smem, G_last, last);
    wgmma_tiles_wait(d);
    mbarrier_arrive(&smem.empty[PART_h]);
    scale_rows_of_state(b, -1.0f, of.rstd_k, d);
    if (__builtin_expect(deep, 0)) add_row_products<1>(smem.dB, o, b, d);
    else add_row_products<0>(smem.dB, o, b, d);
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t k = o.kf[t][j / 2];
            dG[t][j] = fmaf(j % 2 ? bf16x2_high(k) : bf16x2_low(k), d[t][j], dG[t][j]);
            dk[t][j] = fmaf(G[t][j], d[t][j], dk[t][j]);
        }
    //< finish-keys
}

// Adds the pairs of a token with itself, and sums dq and dk over the value heads of a
// group. After the group's last head, adds the norms' gradient and stores dq and dk.
// Returns 1 if this thread issued TMA stores.
template <int K, int whole>
static __device__ __forceinline__ int finish_dq_dk(
    const struct backward_params &x, const struct finish_maps &from,
    const struct block_chunk &i, int wg, int stage, const struct finish_position &z,
    pairs_of_tokens &dq, float (*dk)[4], struct kda_finish_storage<K> &smem)
{
    enum { CONSUMERS = finish_threads<K>::CONSUMERS };
    const struct kcp_backward &a = x.a;
    struct finish_vectors<K> &of = smem.of[stage];
    struct finish_rows<K> &rows = smem.rows[stage];
    {
        pairs_of_tokens q, k;
        load_channels(k, rows.k[wg]);
        load_channels(q, rows.q[wg]);
        add_own_pairs(smem.dA_diagonal, q, k, dq, dk);
        const int heads = group_of(a), last_head = i.head + 1 == heads;
        if (heads > 1)
            add_to_group(sums_of_block<K>(x), CONSUMERS, i.head == 0, last_head, dq,
                         dk);
        named_barrier_sync(CONSUMERS_SYNC, CONSUMERS); // dA and dB have been read
        if (!last_head) {
            mbarrier_arrive(&smem.empty[PART_ROWS + stage]);
            return 0;
        }
        // Per-warp sums of q dq and k dk overwrite dA, as [K / 16][2][CHUNK].
        store_dots(q, k, dq, dk,
                   (float *)smem.dA + opaque_thread_id() / 32 * 2 * CHUNK);
    }
    named_barrier_sync(CONSUMERS_SYNC, CONSUMERS); // the dots are stored
    projection_factors<K>(a.l2norm, (const float *)smem.dA, of);
    named_barrier_sync(CONSUMERS_SYNC, CONSUMERS); // the projection factors are stored
    stage_rows<K>(of, rows.q[wg], rows.k[wg], dq, dk);
    fence_proxy_async(); // TMA reads the staged rows, and later overwrites them
    named_barrier_sync(WARPGROUP_SYNC + wg, 128);
    const int m = i.pair % a.H;
    if (!whole) {
        const int64_t at = (z.t * a.H + m) * K + wg * 64;
        store_tile(rows.q[wg], (bf16 *)a.dq_raw + at, (int64_t)a.H * K, z.len);
        store_tile(rows.k[wg], (bf16 *)a.dk_raw + at, (int64_t)a.H * K, z.len);
    } else if (opaque_thread_id() % 128 == 0) {
        tma_store_3d(from.dq, rows.q[wg], wg * 64, m, (int)z.t);
        tma_store_3d(from.dk, rows.k[wg], wg * 64, m, (int)z.t);
        return 1;
    }
    mbarrier_arrive(&smem.empty[PART_ROWS + stage]);
    return 0;
}

// Computes the gradients of one chunk and value head in a warpgroup's 64 channels. If
// `whole` is 1, the chunk has 64 rows. The code for a partial last chunk needs more
// registers and is compiled separately. If `unread` is 1, this thread issued TMA stores
// of the previous chunk's rows, and must release the stage when TMA has read the rows.
// Returns `unread` for the next chunk.
template <int K, int form, enum kcp_type gate, int whole>
static __device__ __forceinline__ int finish_chunk(const struct backward_params &x,
                                                   const struct finish_maps &from,
                                                   const struct block_chunk &i,
                                                   int unread,
                                                   struct kda_finish_storage<K> &smem)
{
    enum { CONSUMERS = finish_threads<K>::CONSUMERS };
    const struct kcp_backward &a = x.a;
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0), stage = i.chunk % 2;
    struct finish_vectors<K> &of = smem.of[stage];
    struct finish_rows<K> &rows = smem.rows[stage];
    float d[8][4], G[8][4], bound[SUBCHUNKS + 1][2];
    if (gate == KCP_TYPE_F32) load_gates<K, whole>(a, finish_position_of<K>(of), G);

    // ---- computes the triangles, and the gate while the products run
    mbarrier_wait(&smem.full[PART_dO], i.chunk);
    const int len = whole ? (int)CHUNK : of.len;
    if (wg || K == 64 || len < CHUNK) mbarrier_wait(&smem.full[PART_h], i.chunk);
    if (len < CHUNK) {
        zero_finish_rows<K>(len, stage, smem);
        named_barrier_sync(CONSUMERS_SYNC, CONSUMERS); // rows past the end are 0
    }
    begin_triangles<K>(smem, wg, d);
    if (gate != KCP_TYPE_F32) load_tile_gates<gate>(rows.g[wg], G);
    decays_of_tokens<form>(a, finish_gate_of<K, form>(of), G);
    if (len < CHUNK) zero_tokens_from(len, G);
    sum_along_tokens(G, bound);
    // lower_bound >= -5, so 16 tokens of a bounded gate decay by more than 2^-116
    // The hints below keep most spills, which deep warps need, out of other warps.
    const int deep = form != KCP_GATE_BOUNDED && deep_channels(bound);
    const struct anchors b = anchors_of(deep, bound);
    struct deep_terms terms;
    const float G_last[2] = { bound[4][0], bound[4][1] };
    if (unread) {
        tma_store_wait_read();
        mbarrier_arrive(&smem.empty[PART_ROWS + 1 - stage]);
    }
    finish_triangles<K>(x, wg, of, d, smem);

    // ---- W^T, and column sums: per token, the sum over later rows
    mbarrier_wait(&smem.full[PART_dS], i.chunk);
    wgmma_tiles_begin<K>(d, smem.dS[wg], smem.v_new);
    struct operands o;
    if (__builtin_expect(deep, 0)) make_operands<1>(b, rows.q[wg], rows.k[wg], G, o);
    else make_operands<0>(b, rows.q[wg], rows.k[wg], G, o);
    wgmma_tiles_wait(d);
    named_barrier_sync(CONSUMERS_SYNC, CONSUMERS); // the triangles are stored
    // Each consumer arrives once per chunk, after full[PART_h] has completed. The dbeta
    // warp releases h only after DIAGONAL_STORED, so no consumer can arrive twice
    // before the dbeta warp has passed.
    named_barrier_arrive(DIAGONAL_STORED, CONSUMERS + 32);
    float dG[8][4], dk[8][4], last[2] = {}, star[2];
    scale_columns_of_W<K>(of, deep, b, G_last, d);
    take_star(len, d, star);
    add_to_dG_last(o.kb, d, last);
    if (__builtin_expect(deep, 0)) {
        add_column_products<1, K>(smem, o, b, d);
        spread_columns<1>(b, G, o.kb, d, dk, dG);
        add_star<1>(len, b, G, star, dk);
        add_deep_subchunks(smem.dA, smem.dB, rows.q[wg], rows.k[wg], G, dk, dG, terms);
    } else {
        add_column_products<0, K>(smem, o, b, d);
        spread_columns<0>(b, G, o.kb, d, dk, dG);
        add_star<0>(len, b, G, star, dk);
    }

    // ---- P^T, and row sums of q: per token, the sum over earlier columns
    pairs_of_tokens dq;
    mbarrier_wait(&smem.full[PART_h], i.chunk);
    wgmma_tiles_begin<K>(d, smem.h[wg], smem.dO);
    wgmma_tiles_wait(d);
    mbarrier_arrive(&smem.empty[PART_dO]);
    mbarrier_arrive(&smem.empty[PART_dS]);
    scale_rows_of_state(b, (float)a.scale, of.rstd_q, d);
    if (__builtin_expect(deep, 0)) add_row_products<1>(smem.dA, o, b, d);
    else add_row_products<0>(smem.dA, o, b, d);
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *y = d[t] + 2 * h;
            dG[t][2 * h] = fmaf(bf16x2_low(o.qf[t][h]), y[0], dG[t][2 * h]);
            dG[t][2 * h + 1] = fmaf(bf16x2_high(o.qf[t][h]), y[1], dG[t][2 * h + 1]);
            dq[t][h] = pack_bf16x2(G[t][2 * h] * y[0], G[t][2 * h + 1] * y[1]);
        }
    if (__builtin_expect(deep, 0)) add_deep_dq(terms, dq);
    add_row_terms_of_dk<K>(i.chunk, wg, deep, of, b, G_last, o, G, d, last, dG, dk,
                           smem);

    // ---- dg from dG, then the gradient of the gate
    struct finish_position z = finish_position_of<K>(of);
    if (whole) z.len = CHUNK;
    float raw[8][4];
    if (form != KCP_GATE_RAW && gate == KCP_TYPE_F32) load_gates<K, whole>(a, z, raw);
    if (form != KCP_GATE_RAW && gate != KCP_TYPE_F32)
        load_tile_gates<gate>(rows.g[wg], raw);
    add_to_last_row(len, last, dG);
    sum_from_the_end(dG);
    gate_gradient<K, form, gate>(x, finish_gate_of<K, form>(of), z, raw, dG);

    return finish_dq_dk<K, whole>(x, from, i, wg, stage, z, dq, dk, smem);
}

// Bound: instruction issue. Memory is nearly as strict a bound, with 3600 bytes per
// token and head at K = V = 128. Flops: per chunk, four products of 64 x 64 x 128 per
// warpgroup and 80 products of 16 x 8 x 16 per warp. Shared memory: 227 KiB. Registers:
// 240.
//
// Ownership: a block processes (chunk, query/key head) pairs one after another, with
// all value heads of each pair. Each consumer warpgroup has 64 channels, one thread is
// the producer, and three warps compute dbeta and the sums over v of h dS.
//
// Barriers. Each part (finish_producer.cuh) has `full` and `empty`. `sums_full`: the
// sums of h dS are stored. CONSUMERS_SYNC marks these events, in order: rows past the
// end are zero, the triangles are stored, the triangles have been read, the dots (sums
// of q dq and k dk) are stored, the factors of the norms' gradient are stored.
// WARPGROUP_SYNC: the warpgroup's rows are staged. DIAGONAL_STORED: the dbeta warp may
// read dv_v_new.
template <int K, int form, enum kcp_type gate, int by_head>
static __global__ __launch_bounds__(finish_threads<K>::ALL, finish_threads<K>::BLOCKS)
void kda_finish_kernel(const __grid_constant__ struct backward_params x,
                       const __grid_constant__ struct finish_maps from)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct kda_finish_storage<K> &smem = *(struct kda_finish_storage<K> *)shared;
    static_assert(sizeof smem <= 227 * 1024, "one block must fit");
    static_assert(K > 64 || 2 * (sizeof smem + 1024) <= 228 * 1024, "two must fit");
    enum { CONSUMERS = finish_threads<K>::CONSUMERS };

    if (threadIdx.x == 0) {
        for (int p = 0; p < PARTS; p++) {
            mbarrier_init(&smem.full[p], 1);
            const int summed = p == PART_h || p == PART_dS;
            mbarrier_init(&smem.empty[p], CONSUMERS + summed * SUMS_THREADS);
        }
        mbarrier_init(&smem.sums_full, SUMS_THREADS);
        mbarrier_fence_init();
    }
    if (!x.a.dt_bias)
        for (int d = threadIdx.x; d < K; d += blockDim.x)
            smem.of[0].dt_bias[d] = smem.of[1].dt_bias[d] = 0.0f;
    __syncthreads();
    griddepcontrol_wait();
    if (threadIdx.x >= CONSUMERS) {
        setmaxnreg_dec<finish_registers<K>::PRODUCER>();
        if (threadIdx.x == CONSUMERS)
            kda_finish_producer<K, gate, by_head>(x, from, smem);
        const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0) - CONSUMERS / 32;
        if (warp > 0) sums_warp<K, by_head>(x, warp - 1, smem);
        return;
    }
    setmaxnreg_inc<finish_registers<K>::CONSUMER>();
    struct block_chunk i;
    int unread = 0;
    #pragma unroll 1
    for (int more = first_pair<by_head>(x, i); more; more = next_pair<by_head>(x, i)) {
        mbarrier_wait(&smem.full[PART_ROWS + i.chunk % 2], i.chunk / 2);
        if (__shfl_sync(~0u, smem.of[i.chunk % 2].len, 0) == CHUNK)
            unread = finish_chunk<K, form, gate, 1>(x, from, i, unread, smem);
        else unread = finish_chunk<K, form, gate, 0>(x, from, i, unread, smem);
    }
    if (unread) tma_store_wait_read();
}

template <int K, int form, enum kcp_type gate, int by_head = 0>
static int launch_finish(const struct backward_params *x,
                         const struct finish_maps &from, int blocks)
{
    return launch_dependent(kda_finish_kernel<K, form, gate, by_head>,
                            sizeof(struct kda_finish_storage<K>), dim3(blocks),
                            finish_threads<K>::ALL, x, from);
}

template <int K, enum kcp_type gate>
static int finish_of_K(const struct backward_params *x, int blocks)
{
    struct finish_maps from;
    const int status = make_finish_maps<K>(&from, x->a);
    if (status) return status;
    switch (x->a.gate) {
        case KCP_GATE_BOUNDED:
            return launch_finish<K, KCP_GATE_BOUNDED, gate>(x, from, blocks);
        case KCP_GATE_SOFTPLUS:
            return launch_finish<K, KCP_GATE_SOFTPLUS, gate>(x, from, blocks);
        default: return launch_finish<K, KCP_GATE_RAW, gate>(x, from, blocks);
    }
}

// Launch the kernel for gates of fp32 and of fp16, compiled in separate object files.
int kda_finish_f32(const struct backward_params *x, int blocks);
int kda_finish_f16(const struct backward_params *x, int blocks);
