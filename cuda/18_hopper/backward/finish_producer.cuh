// finish_producer.cuh -- KDA's finishing kernel: storage, producer, and sum warps.
// Book: chapter 18c.
//
// GDN's finishing kernel also uses the first part of this file: iteration over chunks,
// loads of chunks, named barriers, stores of rows. The second part is only for KDA:
// storage, fragments, the producer, and the three warps that compute sums.
#pragma once

#include "cuda/18_hopper/backward/storage.cuh"
#include "cuda/tile/named_barrier.cuh"
#include "cuda/tile/typed.cuh"

// The launcher of GDN's finishing kernel, compiled in a separate object file.
int gdn_finish(const struct backward_params *x, int processors);

// CONSUMERS: number of consumer threads. A consumer warpgroup processes 64 channels of
// all tokens of a chunk, and each of its warps 16 channels. ALL: CONSUMERS plus the
// threads of the producer's warpgroup. BLOCKS: number of blocks per SM.
template <int K>
struct finish_threads {
    enum { CONSUMERS = 2 * K, ALL = 2 * K + 128, BLOCKS = K == 128 ? 1 : 2 };
};

// Named barriers. All consumers reach CONSUMERS_SYNC several times per chunk. The
// comment at each call says what is complete then. WARPGROUP_SYNC + w synchronizes
// warpgroup w. Consumers arrive at DIAGONAL_STORED after storing the diagonal of dv
// v_new^T. The warp that computes dbeta waits for this arrival.
enum { CONSUMERS_SYNC = 1, WARPGROUP_SYNC = 2, DIAGONAL_STORED = 4 };

// This thread's coordinates in an mma accumulator (D tile): rows g and g + 8, columns e
// and e + 1, the warp within its warpgroup, and the first channel.
struct mma_coords {
    int g, e, warp, channel;
};

static __device__ __forceinline__ struct mma_coords mma_coords_of_thread(void)
{
    const int thread = opaque_thread_id(), lane = thread % 32;
    return { lane / 4, lane % 4 * 2, thread / 32 % 4, thread / 32 * 16 + lane / 4 };
}

// The iteration state of a block. A block processes every gridDim.x-th (chunk,
// query/key head) pair, with all value heads of each pair. `chunk` numbers the
// combinations of pair and value head from 0.
struct block_chunk {
    int pair, head, chunk;
    int at;                              // index in x.pairs (v7_by_head)
};

static __device__ __forceinline__ int group_of(const struct kcp_backward &a)
{
    return a.HV / a.H;
}

static __device__ __forceinline__ int next_of_block(const struct kcp_backward &a,
                                                    struct block_chunk &i)
{
    i.chunk++;
    if (++i.head < group_of(a)) return 1;
    i.head = 0;
    i.pair += gridDim.x;
    return i.pair < a.NC * a.H;
}

static __device__ __forceinline__ int first_of_block(const struct kcp_backward &a,
                                                     struct block_chunk &i)
{
    i.pair = blockIdx.x - (int)gridDim.x;
    i.head = group_of(a);
    i.chunk = -1;
    return next_of_block(a, i);
}

// As next_of_block and first_of_block, but with `by_head` only over the pairs that
// x.pairs lists.
template <int by_head>
static __device__ __forceinline__ int next_pair(const struct backward_params &x,
                                                struct block_chunk &i)
{
    if (!by_head) return next_of_block(x.a, i);
    i.chunk++;
    if (++i.head < group_of(x.a)) return 1;
    i.head = 0;
    i.at += gridDim.x;
    if (i.at >= __ldcg(x.pairs)) return 0;
    i.pair = __ldcg(x.pairs + 1 + i.at);
    return 1;
}

template <int by_head>
static __device__ __forceinline__ int first_pair(const struct backward_params &x,
                                                 struct block_chunk &i)
{
    if (!by_head) return first_of_block(x.a, i);
    i = { 0, group_of(x.a), -1, (int)blockIdx.x - (int)gridDim.x };
    return next_pair<1>(x, i);
}

// Returns the index on this rank of the chunk that iteration i processes.
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

// Returns the tokens of chunk c, without a table lookup if NS = 1.
static __device__ __forceinline__ struct token_range finish_tokens(
    const struct kcp_backward &a, int c)
{
    if (a.NS != 1) return chunk_tokens(a, ((const int *)a.sc)[c], c);
    const int64_t t = (int64_t)c * CHUNK, left = a.T - t;
    return { t, left < CHUNK ? (int)left : (int)CHUNK };
}

// Loads a chunk in three parts: dO with v_new, dv with h, and dS. A part is loaded as
// soon as the same part of the previous chunk has been released. The barriers of the
// three parts have the indices `first`, `first` + 1 and `first` + 2.
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

// Four lanes that share a channel call this function together. Returns in x the
// neighbouring lane's `own`, and in y the sum of `own` over the other two lanes.
static __device__ __forceinline__ float2 quad_sums(float own)
{
    const float beside = __shfl_xor_sync(~0u, own, 1);
    const float across = __shfl_xor_sync(~0u, own + beside, 2);
    return make_float2(beside, across);
}

// Sums over the channels of a warp. Each lane passes sixteen numbers, for tokens 8 t +
// e and 8 t + e + 1, e = 2 (lane % 4). Numbers of lanes with equal e are added. Lane l
// returns the sums of tokens 2 l and 2 l + 1.
static __device__ __forceinline__ float2 sum_over_channels(float (&y)[16])
{
    const int lane = opaque_thread_id() % 32;
    #pragma unroll
    for (int b = 0; b < 3; b++) {
        const int half = 8 >> b, upper = lane >> (4 - b) & 1;
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i >= half) continue;
            const float mine = upper ? y[i + half] : y[i];
            const float other = upper ? y[i] : y[i + half];
            y[i] = mine + __shfl_xor_sync(~0u, other, 16 >> b);
        }
    }
    return make_float2(y[0], y[1]);
}

// A warpgroup stores its tile to rows of a tensor [T,H,K], with 16 bytes per thread.
static __device__ __forceinline__ void store_tile(const unsigned char *tile, bf16 *to,
                                                  int64_t row_step, int len)
{
    const int thread = opaque_thread_id() % 128, row = thread / 8, piece = thread % 8;
    const unsigned char *from = tile + swizzle128_offset(row, piece);
    to += row * row_step + piece * 8;
    #pragma unroll
    for (int i = 0; i < 4; i++)
        if (row + 16 * i < len)
            *(uint4 *)(to + 16 * i * row_step) = *(const uint4 *)(from + 2048 * i);
}

// Returns the gradient of the raw beta: dbeta_i = (dv v_new^T)_ii / beta_i^2, times the
// derivative of the sigmoid, if any.
static __device__ __forceinline__ float dbeta_raw_of(enum kcp_beta_form form,
                                                     float beta, float dv_v_new)
{
    const float least = 9.094947e-13f; // 2^-40; past the chunk's end beta is 0
    const float b = fabsf(beta) < least ? copysignf(least, beta) : beta;
    const float dbeta = dv_v_new * __fdividef(1.0f, b) * __fdividef(1.0f, b);
    if (form == KCP_BETA_RAW) return dbeta;
    return dbeta * beta
           * (form == KCP_BETA_SIGMOID2 ? fmaf(-0.5f, beta, 1.0f) : 1.0f - beta);
}

// ---- KDA: shared storage

// Tensors of a chunk and value head that are loaded and released together form a part.
// PART_dO: dO and v_new; PART_h: dv and h; PART_dS: dS; PART_ROWS, with two stages: the
// rows of q, k and the gate.
enum { PART_dO, PART_h, PART_dS, PART_ROWS, PARTS = PART_ROWS + 2 };

// Vectors of a chunk. The factors of the norms' gradient later overwrite the norms.
template <int K>
struct finish_vectors {
    float rstd_q[CHUNK], rstd_k[CHUNK], dt_bias[K];
    int t, len, c, n; // first token, number of tokens, chunk, value head
    float exp_A, none[3];
};

template <int K>
struct finish_rows {
    unsigned char q[K / 64][TILE_BYTES], k[K / 64][TILE_BYTES], g[K / 64][TILE_BYTES];
};

// h and dS are in swizzle128 tiles of 64 rows of K by 64 columns of V. Rows of tokens
// are in tiles of 64 tokens by 64 channels. The chunk's triangles are dA and dB.
template <int K>
struct kda_finish_storage {
    unsigned char h[K / 64][K / 64][TILE_BYTES], dS[K / 64][K / 64][TILE_BYTES];
    unsigned char dO[K / 64][TILE_BYTES], v_new[K / 64][TILE_BYTES],
        dv[K / 64][TILE_BYTES];
    struct finish_rows<K> rows[2];
    unsigned char dA[TILE_BYTES], dB[TILE_BYTES];
    float dA_diagonal[CHUNK], dv_v_new[CHUNK];
    struct finish_vectors<K> of[2];
    uint64_t full[PARTS], empty[PARTS], sums_full;
};

// A chunk's position, which is read from shared memory at each use, to save registers.
struct finish_position {
    int64_t t;
    int len, c, n;
};

template <int K>
static __device__ __forceinline__ struct finish_position finish_position_of(
    const struct finish_vectors<K> &of)
{
    const uint2 tokens = ld_shared_v2(&of.t), head = ld_shared_v2(&of.c);
    return { tokens.x, (int)tokens.y, (int)head.x, (int)head.y };
}

// A warp has 16 channels by 64 tokens in D tiles, with channels along M. With g = lane
// / 4 and e = 2 (lane % 4), element [t][2 h + j] is channel g + 8 h, token 8 t + e + j.
// In bf16 a pair of tokens is one register [t][h]. Two adjacent tiles are operand A.
typedef uint32_t pairs_of_tokens[8][2];

// Returns the address where the sum warps store sum_v h dS of a channel. The bytes are
// above the diagonal of dB and are not used otherwise.
template <int K>
static __device__ __forceinline__ float *h_dS_of(struct kda_finish_storage<K> &smem,
                                                 int channel)
{
    const int piece = channel / 4;
    return (float *)(smem.dB + swizzle128_offset(piece % 16, 2 + piece / 16))
           + channel % 4;
}

// Returns this lane's byte offset for the transposing ldmatrix or stmatrix of a warp's
// channels in a tile [64 tokens][64 channels]. The next 16 tokens are 2048 bytes later.
static __device__ __forceinline__ int channels_offset(void)
{
    const int lane = opaque_thread_id() % 32, warp = opaque_thread_id() / 32 % 4;
    return swizzle128_offset(lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2);
}

static __device__ __forceinline__ void load_channels(pairs_of_tokens &x,
                                                     const unsigned char *tile)
{
    const unsigned char *from = tile + channels_offset();
    #pragma unroll
    for (int I = 0; I < SUBCHUNKS; I++) {
        uint32_t y[4];
        ldmatrix_x4_trans(y, (const bf16 *)(from + I * 2048));
        x[2 * I][0] = y[0];
        x[2 * I][1] = y[1];
        x[2 * I + 1][0] = y[2];
        x[2 * I + 1][1] = y[3];
    }
}

static __device__ __forceinline__ void store_channels(unsigned char *tile,
                                                      const pairs_of_tokens &x)
{
    unsigned char *to = tile + channels_offset();
    #pragma unroll
    for (int I = 0; I < SUBCHUNKS; I++) {
        const uint32_t y[4] = { x[2 * I][0], x[2 * I][1], x[2 * I + 1][0],
                                x[2 * I + 1][1] };
        stmatrix_x4_trans((bf16 *)(to + I * 2048), y);
    }
}

// ---- the producer

// Tensor maps of the caller's rows, with boxes of 64 tokens by 64 channels. TMA loads
// gates of 16 bits. Consumers load gates of fp32 from global memory, because tiles of
// fp32 do not fit in shared memory. In this case TMA prefetches the gates into L2, with
// a map whose rows are 2K channels of 16 bits.
struct finish_maps {
    CUtensorMap q, k, g, dO, dv, dq, dk;
};

template <int K>
static int make_finish_maps(struct finish_maps *m, const struct kcp_backward &a)
{
    const int words = K << (a.g_type == KCP_TYPE_F32);
    const int made = tensor_map_of_heads(&m->q, a.q_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->k, a.k_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->g, a.g_raw, a.T, a.HV, words, CHUNK)
                     && tensor_map_of_heads(&m->dO, a.do_, a.T, a.HV, K, CHUNK)
                     && tensor_map_of_heads(&m->dv, a.dv, a.T, a.HV, K, CHUNK)
                     && tensor_map_of_heads(&m->dq, a.dq_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->dk, a.dk_raw, a.T, a.H, K, CHUNK);
    return made ? KCP_OK : KCP_CUDA;
}

template <int K, enum kcp_type gate>
static __device__ __forceinline__ void load_rows_part(
    const struct backward_params &x, const struct finish_maps &from,
    const struct block_chunk &i, struct kda_finish_storage<K> &smem)
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
    const int in_tile = gate != KCP_TYPE_F32;
    const size_t absent = in_tile ? 0 : sizeof rows.g;
    const size_t by_tma = sizeof rows - absent + 2 * sizeof of.rstd_q;
    mbarrier_arrive_expect_tx(full, by_tma + (dt ? sizeof of.dt_bias : 0));
    for (int d = 0; d < K / 64; d++) {
        tma_load_3d(rows.q[d], from.q, d * 64, m, z.t, full);
        tma_load_3d(rows.k[d], from.k, d * 64, m, z.t, full);
        if (in_tile) tma_load_3d(rows.g[d], from.g, d * 64, n, z.t, full);
    }
    for (int d = 0; !in_tile && d < 2 * K; d += 64)
        tma_prefetch_3d(from.g, d, n, (int)z.t);
    tma_load_1d(of.rstd_q, x.rstd_q + (int64_t)i.pair * CHUNK, sizeof of.rstd_q, full);
    tma_load_1d(of.rstd_k, x.rstd_k + (int64_t)i.pair * CHUNK, sizeof of.rstd_k, full);
    if (dt) tma_load_1d(of.dt_bias, dt, sizeof of.dt_bias, full);
}

// The producer is one thread, which loads rows (PART_ROWS) one chunk in advance,
// because the consumers need the rows first.
template <int K, enum kcp_type gate, int by_head>
static __device__ __forceinline__ void kda_finish_producer(
    const struct backward_params &x, const struct finish_maps &from,
    struct kda_finish_storage<K> &smem)
{
    struct block_chunk i;
    int more = first_pair<by_head>(x, i);
    if (more) load_rows_part<K, gate>(x, from, i, smem);
    while (more) {
        load_chunk<K, PART_dO>(x, from, i, smem);
        more = next_pair<by_head>(x, i);
        if (more) load_rows_part<K, gate>(x, from, i, smem);
    }
}

// ---- the three warps that compute sums

enum { SUMS_THREADS = 96 };

// Four lanes compute sum_v h dS of a row. A warp has 8 of every 24 rows.
template <int K>
static __device__ __forceinline__ void make_h_dS(int warp,
                                                 struct kda_finish_storage<K> &smem)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int row = 8 * warp; row < K; row += 24) {
        float sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < K / 32; i++) {
            const int at =
                swizzle128_offset(row % 64 + lane / 4, i % 2 * 4 + lane % 4);
            const uint4 h = *(const uint4 *)(smem.h[row / 64][i / 2] + at);
            const uint4 dS = *(const uint4 *)(smem.dS[row / 64][i / 2] + at);
            const uint32_t *u = &h.x, *w = &dS.x;
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                sum = fmaf(bf16x2_low(u[j]), bf16x2_low(w[j]), sum);
                sum = fmaf(bf16x2_high(u[j]), bf16x2_high(w[j]), sum);
            }
        }
        const float2 other = quad_sums(sum);
        if (lane % 4 == 0) *h_dS_of(smem, row + lane / 4) = sum + other.x + other.y;
    }
}

// One warp computes dbeta of a chunk, with two tokens per lane.
template <int K>
static __device__ __forceinline__ void store_dbeta(
    const struct backward_params &x, const struct block_chunk &i,
    const struct kda_finish_storage<K> &smem)
{
    const struct kcp_backward &a = x.a;
    const int row = 2 * (threadIdx.x % 32), c = chunk_of(a, i), n = value_head_of(a, i);
    const struct token_range z = finish_tokens(a, c);
    const float2 beta =
        *(const float2 *)&x.beta[((int64_t)c * a.HV + n) * CHUNK + row];
    const int64_t at = (z.t + row) * a.HV + n;
    named_barrier_sync(DIAGONAL_STORED, finish_threads<K>::CONSUMERS + 32);
    const float2 y = *(const float2 *)&smem.dv_v_new[row];
    if (row < z.len)
        store_number(a.dbeta_raw, at, a.beta_type,
                     dbeta_raw_of(a.beta_form, beta.x, y.x));
    if (row + 1 < z.len)
        store_number(a.dbeta_raw, at + a.HV, a.beta_type,
                     dbeta_raw_of(a.beta_form, beta.y, y.y));
}

// Runs one of the three sum warps, which belong to the producer's warpgroup. So the
// consumers need no registers for these sums.
template <int K, int by_head>
static __device__ __forceinline__ void sums_warp(const struct backward_params &x,
                                                 int warp,
                                                 struct kda_finish_storage<K> &smem)
{
    struct block_chunk i;
    #pragma unroll 1
    for (int more = first_pair<by_head>(x, i); more; more = next_pair<by_head>(x, i)) {
        mbarrier_wait(&smem.full[PART_h], i.chunk);
        mbarrier_wait(&smem.full[PART_dS], i.chunk);
        make_h_dS<K>(warp, smem);
        mbarrier_arrive(&smem.sums_full);
        mbarrier_arrive(&smem.empty[PART_dS]);
        if (warp == 0) store_dbeta<K>(x, i, smem);
        mbarrier_arrive(&smem.empty[PART_h]);
    }
}
