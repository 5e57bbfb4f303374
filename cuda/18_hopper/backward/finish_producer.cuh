// finish_producer.cuh -- KDA's finishing kernel: who loads what, and when.
// Book: chapter 18, "Code: kernels".
// Checked by: bench/finish.cu, tests/13_backward/checks.c.
// Next: finish_gate.cuh.
#ifndef KCP_FINISH_PRODUCER_CUH
#define KCP_FINISH_PRODUCER_CUH

#include "finish_storage.cuh"

// Boxes of 64 tokens by 64 channels of the caller's rows.
struct finish_maps {
    CUtensorMap q, k, g, dO, dv, dq, dk;
};

template <int K>
static int make_finish_maps(struct finish_maps *m, const struct kcp_backward &a)
{
    const int made = tensor_map_of_heads(&m->q, a.q_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->k, a.k_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->g, a.g_raw, a.T, a.HV, K, CHUNK)
                     && tensor_map_of_heads(&m->dO, a.do_, a.T, a.HV, K, CHUNK)
                     && tensor_map_of_heads(&m->dv, a.dv, a.T, a.HV, K, CHUNK)
                     && tensor_map_of_heads(&m->dq, a.dq_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->dk, a.dk_raw, a.T, a.H, K, CHUNK);
    return made ? KCP_OK : KCP_CUDA;
}

// A block's work: pairs of a chunk and a query/key head, every so many of them, and of
// each pair all value heads, one after another. `chunk` counts chunks of value
// heads.
struct block_chunk {
    int pair, head, chunk;
};

static __device__ __forceinline__ int group_of(const struct kcp_backward &a)
{
    return a.HV / a.H;
}

// The underflow pass takes the pairs that the first pass marked.
template <int underflow>
static __device__ __forceinline__ int taken(const unsigned char *marks, int pair)
{
    return !underflow || marks[pair];
}

template <int underflow>
static __device__ __forceinline__ int next_of_block(const struct kcp_backward &a,
                                                    const unsigned char *marks,
                                                    struct block_chunk &i)
{
    const int pairs = a.NC * a.H;
    i.chunk++;
    if (++i.head < group_of(a)) return 1;
    i.head = 0;
    for (i.pair += gridDim.x; i.pair < pairs; i.pair += gridDim.x)
        if (taken<underflow>(marks, i.pair)) return 1;
    return 0;
}

template <int underflow>
static __device__ __forceinline__ int first_of_block(const struct kcp_backward &a,
                                                     const unsigned char *marks,
                                                     struct block_chunk &i)
{
    i.pair = blockIdx.x - (int)gridDim.x;
    i.head = group_of(a);
    i.chunk = -1;
    return next_of_block<underflow>(a, marks, i);
}

// Which chunk of the rank, and which value head.
static __device__ __forceinline__ int chunk_of(const struct kcp_backward &a,
                                               const struct block_chunk &i)
{
    return i.pair / a.H;
}

static __device__ __forceinline__ int value_head_of(const struct kcp_backward &a,
                                                    const struct block_chunk &i)
{
    return i.pair % a.H * group_of(a) + i.head;
}

// A single stretch needs no look into the tables.
static __device__ __forceinline__ struct token_range finish_tokens(
    const struct kcp_backward &a, int c)
{
    if (a.NS != 1) return chunk_tokens(a, ((const int *)a.sc)[c], c);
    const int64_t t = (int64_t)c * CHUNK, left = a.T - t;
    return { t, left < CHUNK ? (int)left : (int)CHUNK };
}

// Rows of q, k and the gate, and the vectors, of one chunk.
template <int K>
static __device__ __forceinline__ void load_rows_part(const struct backward_params &x,
                                                      const struct finish_maps &from,
                                                      const struct block_chunk &i,
                                                      struct shared_storage<K> &smem)
{
    const struct kcp_backward &a = x.a;
    const int stage = i.chunk % 2, m = i.pair % a.H, n = value_head_of(a, i);
    const struct token_range z = finish_tokens(a, chunk_of(a, i));
    const float *dt = a.dt_bias ? (const float *)a.dt_bias + (int64_t)n * K : NULL;
    uint64_t *full = &smem.full[PART_ROWS + stage];
    struct finish_vectors<K> &of = smem.of[stage];
    struct finish_rows<K> &rows = smem.rows[stage];

    if (i.chunk > 1) mbarrier_wait(&smem.empty[PART_ROWS + stage], i.chunk / 2 - 1);
    of.t = (int)z.t;
    of.len = z.len;
    of.c = chunk_of(a, i);
    of.n = n;
    of.exp_A = a.A_log ? expf(((const float *)a.A_log)[n]) : 1.0f;
    mbarrier_arrive_expect_tx(full, sizeof rows + 2 * sizeof of.rstd_q
                                        + (dt ? sizeof of.dt_bias : 0));
    for (int d = 0; d < K / 64; d++) {
        tma_load_3d(rows.q[d], from.q, d * 64, m, z.t, full);
        tma_load_3d(rows.k[d], from.k, d * 64, m, z.t, full);
        tma_load_3d(rows.g[d], from.g, d * 64, n, z.t, full);
    }
    tma_load_1d(of.rstd_q, x.rstd_q + (int64_t)i.pair * CHUNK, sizeof of.rstd_q, full);
    tma_load_1d(of.rstd_k, x.rstd_k + (int64_t)i.pair * CHUNK, sizeof of.rstd_k, full);
    if (dt) tma_load_1d(of.dt_bias, dt, sizeof of.dt_bias, full);
}

// Of a chunk: dO and v_new, dv and h, dS, each as soon as the one before has released
// it. Their barriers are number `first` and the two behind it.
template <int K, int first, class storage, class maps>
static __device__ __forceinline__ void load_chunk(const struct backward_params &x,
                                                  const maps &from,
                                                  const struct block_chunk &i,
                                                  storage &smem)
{
    enum { OF_dO = first, OF_h, OF_dS };
    const struct kcp_backward &a = x.a;
    const int c = chunk_of(a, i), n = value_head_of(a, i), before = i.chunk - 1;
    const int t = (int)finish_tokens(a, c).t;
    if (i.chunk) mbarrier_wait(&smem.empty[OF_dO], before);
    mbarrier_arrive_expect_tx(&smem.full[OF_dO], sizeof smem.dO + sizeof smem.v_new);
    for (int d = 0; d < K / 64; d++)
        tma_load_3d(smem.dO[d], from.dO, d * 64, n, t, &smem.full[OF_dO]);
    tma_load_1d(smem.v_new, v_new_of<K>(x, c, n), sizeof smem.v_new,
                &smem.full[OF_dO]);
    if (i.chunk) mbarrier_wait(&smem.empty[OF_h], before);
    mbarrier_arrive_expect_tx(&smem.full[OF_h], sizeof smem.dv + sizeof smem.h);
    for (int d = 0; d < K / 64; d++)
        tma_load_3d(smem.dv[d], from.dv, d * 64, n, t, &smem.full[OF_h]);
    tma_load_1d(smem.h, packed_state_of<K, K>(x, x.h, c, n), sizeof smem.h,
                &smem.full[OF_h]);
    if (i.chunk) mbarrier_wait(&smem.empty[OF_dS], before);
    mbarrier_arrive_expect_tx(&smem.full[OF_dS], sizeof smem.dS);
    tma_load_1d(smem.dS, packed_state_of<K, K>(x, x.dS, c, n), sizeof smem.dS,
                &smem.full[OF_dS]);
}

// The producer is one thread. The rows, which are needed first, go a chunk ahead.
template <int K, int underflow>
static __device__ __forceinline__ void producer_warp(const struct backward_params &x,
                                                     const struct finish_maps &from,
                                                     const unsigned char *marks,
                                                     struct shared_storage<K> &smem)
{
    struct block_chunk i;
    int more = first_of_block<underflow>(x.a, marks, i);
    if (more) load_rows_part<K>(x, from, i, smem);
    while (more) {
        load_chunk<K, PART_dO>(x, from, i, smem);
        more = next_of_block<underflow>(x.a, marks, i);
        if (more) load_rows_part<K>(x, from, i, smem);
    }
}

#endif
