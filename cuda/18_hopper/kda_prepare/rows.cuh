// rows.cuh -- KDA: shared storage, TMA loads of rows, conversion of rows to factors.
// Book: chapter 18.
#pragma once

#include "cuda/18_hopper/chunk_prepare.cuh"

// 64 channels of a chunk in shared memory. TMA writes rows of q, k and the gate as
// swizzle128 tiles. Then operands of the scores, which are products of rows, overwrite
// these rows. `q` and `k` become q F and k F. F is exp2(G), and G is the sum of log2
// decays from the start of the row's subchunk (16 rows). `g` becomes k / F, for pairs
// within a subchunk. `ahead1`, `ahead2` and `ahead3` hold k decayed to the start of the
// first, second and third subchunk after the row's subchunk.
//
// Once the scores are computed, operands of the inverse (1 + L)^-1 overwrite ahead1 to
// ahead3. In kda_prepare_storage, `half[0].L` is L (scores of k times beta). `half[1]`
// has the inverted diagonal blocks, as fragments in `A` and as fp32 in `block16`.
struct channel_half {
    unsigned char q[TILE_BYTES], k[TILE_BYTES], g[TILE_BYTES];
    union {
        struct {
            unsigned char ahead1[3][TILE_BYTES / SUBCHUNKS];
            unsigned char ahead3[TILE_BYTES / SUBCHUNKS];
            unsigned char ahead2[2][TILE_BYTES / SUBCHUNKS];
        };
        uint4 L[SUBCHUNKS * (SUBCHUNKS + 1) / 2][2][32];
        struct {
            uint4 A[SUBCHUNKS][2][32];
            float block16[SUBCHUNKS][SUBCHUNK][SUBCHUNK + 4];
        };
    };
};

// A chunk's first token and length. The position is in shared memory, because a spilled
// register would be reloaded from L2.
struct __align__(8) chunk_position { uint32_t t; int len; };

// The storage of a block has 75 KiB, so that three blocks exactly fill an SM.
template <int K>
struct kda_prepare_storage {
    struct channel_half half[2];         // K = 64: rows in half[0] only
    float sum[8][64], beta[CHUNK];
    float2 norm[CHUNK];                  // scale / |q|, 1 / |k|
    bf16 diagonal[CHUNK];                // Aqk_ii
    uint64_t full;                       // a chunk's rows have arrived
    struct chunk_position position[2];   // of the current chunk and the next
    uint32_t deep[2 * SUBCHUNKS];        // per warp, the threads with deep channels
    int first_chunk;                     // of the stretch
    int qk_head, saved_head;             // saved_head: -1 if norms are not saved
};

struct inverse_storage {
    uint4 (*L)[2][32], (*A)[2][32];
    float (*block16)[SUBCHUNK][SUBCHUNK + 4], *beta;
};

template <int K>
static __device__ __forceinline__ struct inverse_storage inverse_storage_of(
    struct kda_prepare_storage<K> &smem)
{
    return { smem.half[0].L, smem.half[1].A, smem.half[1].block16, smem.beta };
}

// A thread converts its elements in place: two adjacent channels of the 16 rows of a
// subchunk. With K = 64, where one warp covers all channels, a thread has only 8 rows.
// A warp covers 128 bytes of a row.
template <int K>
struct thread_rows {
    enum { ROWS = K / 8, PARTS = SUBCHUNK / ROWS };
    int I, row, channel, at;             // subchunk, first row, channel, byte offset
};

template <int K>
static __device__ __forceinline__ struct thread_rows<K> thread_rows_of(int warp)
{
    warp = opaque(warp);
    const int lane = opaque_thread_id() % 32, I = warp / 2, h = warp % 2,
              wide = K == 128;
    const int row = I * SUBCHUNK + (wide ? 0 : h * 8);
    return { I, row, (wide ? h * 64 : 0) + lane * 2,
             (wide ? h * (int)sizeof(struct channel_half) : 0) + row * 128 + lane * 4 };
}

// Returns the byte offset of the thread's channels in the r-th of its rows.
template <int K>
static __device__ __forceinline__ int row_offset(const struct thread_rows<K> &w, int r)
{
    return (w.at ^ (r % 8) << 4) + r * 128;
}

// Tensor maps of q, k and the gate, with boxes of 64 tokens by 64 channels. TMA loads
// gates of 16 bits. Threads load gates of fp32 from global memory (load_gates), because
// with tiles of fp32 only two blocks would fit on an SM. In this case TMA prefetches
// the next chunk's gates into L2, with a map whose rows are 2K channels of 16 bits.
struct row_descriptors { CUtensorMap q, k, g; };

static int make_row_descriptors(struct row_descriptors *m,
                                const struct forward_params &x)
{
    const struct kcp_forward &a = x.a;
    const int n = x.channels, words = a.g_type == KCP_TYPE_F32 ? 2 * a.K : n;
    const int made = tensor_map_of_heads(&m->q, a.q_raw, a.T, a.H, n, CHUNK)
                     && tensor_map_of_heads(&m->k, a.k_raw, a.T, a.H, n, CHUNK)
                     && tensor_map_of_heads(&m->g, a.g_raw, a.T, a.HV, words, CHUNK);
    return made ? KCP_OK : KCP_CUDA;
}

// One thread loads 64 rows from token t on: q and k of head m, the gate of head n.
template <int K, enum kcp_type gate>
static __device__ __forceinline__ void tma_load_rows(
    const struct row_descriptors &from, int t, int m, int n,
    struct kda_prepare_storage<K> &smem)
{
    const int in_tile = gate != KCP_TYPE_F32;
    mbarrier_arrive_expect_tx(&smem.full, (in_tile ? 3 : 2) * K / 64 * TILE_BYTES);
    #pragma unroll
    for (int h = 0; h < K / 64; h++) {
        tma_load_3d(smem.half[h].q, from.q, h * 64, m, t, &smem.full);
        tma_load_3d(smem.half[h].k, from.k, h * 64, m, t, &smem.full);
        if (in_tile) tma_load_3d(smem.half[h].g, from.g, h * 64, n, t, &smem.full);
    }
}

// The producer is one thread. `load_first_chunk` loads chunk c, this block's last
// chunk. Once all warps have read the tiles, `load_next_chunk` loads the preceding
// chunk.
template <int K, enum kcp_type gate>
static __device__ __forceinline__ void load_first_chunk(
    const struct forward_params &x, const struct row_descriptors &from, int c, int n,
    struct kda_prepare_storage<K> &smem)
{
    const int kv = x.a.HV / x.a.H;
    const struct token_range z = tokens_of_chunk(x.a, c);
    smem.qk_head = n / kv;
    smem.saved_head = x.saved.rstd_q && n % kv == 0 ? n / kv : -1;
    smem.first_chunk =
        x.a.NS == 1 ? 0 : ((const int *)x.a.cn)[((const int *)x.a.sc)[c]];
    smem.position[0] = { (uint32_t)z.t, z.len };
    tma_load_rows<K, gate>(from, z.t, smem.qk_head, n, smem);
}

template <int K, enum kcp_type gate>
static __device__ __forceinline__ void load_next_chunk(
    const struct kcp_forward &a, const struct row_descriptors &from, int c, int chunk,
    int n, struct kda_prepare_storage<K> &smem)
{
    struct token_range z = { smem.position[chunk % 2].t - CHUNK, CHUNK };
    if (c < smem.first_chunk) z = tokens_of_chunk(a, c);
    smem.position[(chunk + 1) % 2] = { (uint32_t)z.t, z.len };
    tma_load_rows<K, gate>(from, z.t, smem.qk_head, n, smem);
    for (int i = 0; gate == KCP_TYPE_F32 && i < 2 * K; i += 64)
        tma_prefetch_3d(from.g, i, n, z.t);
}

// Returns the tokens of the block's chunk number `chunk` (0, 1, ...). Every call reads
// the position from shared memory.
template <int K>
static __device__ __forceinline__ struct token_range position_of(
    const struct kda_prepare_storage<K> &smem, int chunk)
{
    const uint2 y = ld_shared_v2(&smem.position[chunk % 2]);
    return { y.x, (int)y.y };
}

// All threads zero rows of q and k past the chunk's end (rows of another sequence).
template <int K>
static __device__ __forceinline__ void zero_past_end(
    int len, struct kda_prepare_storage<K> &smem)
{
    for (int at = len * 8 + threadIdx.x; at < CHUNK * 8; at += blockDim.x)
        for (int h = 0; h < K / 64; h++)
            ((uint4 *)smem.half[h].q)[at] = ((uint4 *)smem.half[h].k)[at] =
                make_uint4(0, 0, 0, 0);
    __syncthreads();
}

// One warp rounds 16 rows of q and k, from row `first` on, from fp16 to bf16.
template <int K>
static __device__ __forceinline__ void rows_to_bf16(int first,
                                                    struct kda_prepare_storage<K> &smem)
{
    #pragma unroll
    for (int i = 0; i < SUBCHUNK / 4; i++)
        #pragma unroll
        for (int h = 0; h < K / 64; h++) {
            const int at = (first + 4 * i) * 8 + threadIdx.x % 32;
            uint4 *q = (uint4 *)smem.half[h].q + at, *k = (uint4 *)smem.half[h].k + at;
            const uint4 x = *q, y = *k;
            *q = converted<KCP_TYPE_BF16>(x);
            *k = converted<KCP_TYPE_BF16>(y);
        }
    __syncwarp();
}

// Inputs of a thread's two gates, and the raw beta of the thread's row. The thread
// loads these inputs before waiting for the rows.
struct gate_operands { float A_log, dt[2]; uint32_t beta; };

static __device__ __forceinline__ struct gate_operands load_gate_operands(
    const struct kcp_forward &a, struct token_range z, int n, int channel)
{
    const float *dt = (const float *)a.dt_bias + n * a.KG + channel;
    struct gate_operands y = {};
    if (a.A_log) y.A_log = ((const float *)a.A_log)[n];
    if (a.dt_bias) {
        y.dt[0] = dt[0];
        y.dt[1] = dt[1];
    }
    if (threadIdx.x < z.len)
        y.beta = load_bits(a.beta_raw, (z.t + threadIdx.x) * a.HV + n, a.beta_type);
    return y;
}

// Loads the raw gates of the thread's rows from global memory. For rows past the
// chunk's end, loads the last row again.
template <int K>
static __device__ __forceinline__ void load_gates(const struct kcp_forward &a,
                                                  struct token_range z, int n,
                                                  const struct thread_rows<K> &w,
                                                  float (*G)[2])
{
    const int last = z.len - 1, step = a.HV * K;
    const float *from = in<float>(a.g_raw, z.t + min(w.row, last), a.HV, n, K);
    from += w.channel;
    #pragma unroll
    for (int r = 0; r < w.ROWS; r++) {
        const float2 x = *(const float2 *)from;
        G[r][0] = x.x;
        G[r][1] = x.y;
        if (w.row + r < last) from += step;
    }
}

// Returns and saves beta of the thread's row, which is 0 past the chunk's end.
static __device__ __forceinline__ float beta_of_row(const struct forward_params &x,
                                                    int len, int c, int n,
                                                    uint32_t bits)
{
    const int i = threadIdx.x;
    const float raw = float_of_bits(bits, x.a.beta_type);
    const float b = i < len ? beta_from_raw(x, raw) : 0.0f;
    if (x.saved.beta) x.saved.beta[((int64_t)c * x.a.HV + n) * CHUNK + i] = b;
    return b;
}

// Returns 1 if one of two channels, with these sums over a thread's rows, is deep.
template <int K>
static __device__ __forceinline__ int has_deep_channel(float2 sum)
{
    return fminf(sum.x, sum.y) < -118.0f / thread_rows<K>::PARTS;
}

// Computes G, the sums of log2 decays from the thread's first row on, and stores the
// total for other threads. Past the chunk's end G is constant. Gates of fp32 are in G
// (load_gates), other gates in the tiles. Returns 1 if 1 / F (F = exp2(G)) may exceed
// the range of bf16 in this subchunk, i.e. if a channel of this thread is deep.
template <int K, int form, enum kcp_type gate>
static __device__ __forceinline__ int decay_sums(
    const struct kcp_forward &a, const struct gate_operands &loaded, int len,
    const struct thread_rows<K> &w, struct kda_prepare_storage<K> &smem, float (*G)[2])
{
    const float e = a.A_log ? expf(loaded.A_log) : 1.0f;
    const struct gate_constants f[2] = {
        gate_constants_from<form>(a, e, loaded.dt[0]),
        gate_constants_from<form>(a, e, loaded.dt[1])
    };
    float sum[2] = {};
    #pragma unroll
    for (int r = 0; r < w.ROWS; r++) {
        if (gate != KCP_TYPE_F32) {
            const unsigned char *pair = smem.half->g + row_offset(w, r);
            const float2 x = unpack_pair<gate>(*(const uint32_t *)pair);
            G[r][0] = x.x;
            G[r][1] = x.y;
        }
        const float g[2] = { log2_decay<form>(f[0], G[r][0]),
                             log2_decay<form>(f[1], G[r][1]) };
        #pragma unroll
        for (int d = 0; d < 2; d++) {
            sum[d] += g[d];
            G[r][d] = sum[d];
        }
    }
    if (w.row + w.ROWS > len)            // G is constant past the end
        #pragma unroll
        for (int r = 0; r < w.ROWS; r++)
            #pragma unroll
            for (int d = 0; d < 2; d++) {
                if (w.row + r >= len) G[r][d] = r ? G[r - 1][d] : 0.0f;
                sum[d] = G[r][d];
            }
    const float2 both = make_float2(sum[0], sum[1]);
    *(float2 *)(smem.sum[0] + w.row / w.ROWS * K + w.channel) = both;
    return has_deep_channel<K>(both);
}

// Computes |q|^2 and |k|^2 of the rows as the diagonals of q q^T and k k^T, on the
// tensor core from the raw rows. Also computes the diagonal of q k^T, which has no
// decay. Operand A has eight rows of q and the eight rows of k of the same tokens. The
// factors 1 / |q| and 1 / |k| are also saved for backward.
template <int K>
static __device__ __forceinline__ void row_norms(const struct forward_params &x,
                                                 int len, int c, int first,
                                                 struct kda_prepare_storage<K> &smem)
{
    const int lane = opaque_thread_id() % 32, g = lane / 4;
    const int a_at =
        swizzle128_offset(first + lane % 8, lane / 16) + lane / 8 % 2 * TILE_BYTES;
    const int b_at =
        swizzle128_offset(first + lane % 8, lane / 8 % 2) + lane / 16 * TILE_BYTES;
    float of[2][2][4] = {};
    #pragma unroll
    for (int i = 0; i < K / 16; i++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned char *from = smem.half[i / 4].q + h * 8 * 128;
            uint32_t a[4], b[4];
            ldmatrix_x4(a, (const bf16 *)(from + (a_at ^ i % 4 << 5)));
            ldmatrix_x4(b, (const bf16 *)(from + (b_at ^ i % 4 << 5)));
            mma_m16n16k16(of[h], a, b);
        }
    if (lane % 4 != g / 2) return;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *of_q = of[h][0], *of_k = of[h][1];
        const float qq = g % 2 ? of_q[1] : of_q[0], qk = g % 2 ? of_k[1] : of_k[0];
        const float kk = g % 2 ? of_k[3] : of_k[2];
        const float nq = x.a.l2norm ? rsqrtf(qq + 1e-6f) : 1.0f;
        const float nk = x.a.l2norm ? rsqrtf(kk + 1e-6f) : 1.0f;
        const int i = first + h * 8 + g;
        smem.norm[i] = make_float2(nq * (float)x.a.scale, nk);
        smem.diagonal[i] = (bf16)(qk * nq * nk * (float)x.a.scale);
        if (smem.saved_head < 0) continue;
        const int64_t at = ((int64_t)c * x.a.H + smem.saved_head) * CHUNK + i;
        x.saved.rstd_q[at] = i < len ? nq : 0.0f;
        x.saved.rstd_k[at] = i < len ? nk : 0.0f;
    }
}

// Decays over whole subchunks for a thread's two channels. `start` is the decay over
// all subchunks before the thread's subchunk I, and `end` is the decay over all
// subchunks after subchunk I. `ahead1` is the decay over the next subchunk, and
// `ahead2` over the next two subchunks. `last` is the sum of log2 decays of subchunk I.
struct subchunk_decay { float start[2], end[2], ahead1[2], ahead2[2], last[2]; };

// K = 64: adds the sum of a subchunk's first 8 rows to G of its last 8 rows, so that G
// covers the whole subchunk.
template <int K>
static __device__ __forceinline__ void sums_of_subchunk(
    const struct thread_rows<K> &w, const struct kda_prepare_storage<K> &smem,
    float (*G)[2])
{
    const float *sum = smem.sum[0] + w.I * 2 * K + w.channel;
    for (int r = 0; w.row % SUBCHUNK && r < w.ROWS; r++) {
        G[r][0] += sum[0];
        G[r][1] += sum[1];
    }
}

// Computes the decays over whole subchunks.
template <int K>
static __device__ __forceinline__ struct subchunk_decay subchunk_decays(
    const struct thread_rows<K> &w, const struct kda_prepare_storage<K> &smem,
    const float (*G)[2], float *decay)
{
    struct subchunk_decay f;
    #pragma unroll
    for (int d = 0; d < 2; d++) {
        const float *sum = smem.sum[0] + w.channel + d;
        float D[SUBCHUNKS + 2];
        f.start[d] = f.end[d] = 1.0f;
        #pragma unroll
        for (int J = 0; J < SUBCHUNKS; J++) {
            float x = sum[J * w.PARTS * K];
            if (w.PARTS == 2) x += sum[(J * 2 + 1) * K];
            if (w.PARTS == 2 && J == w.I) f.last[d] = x;
            D[J] = ex2_approx(x);
            if (J < w.I) f.start[d] *= D[J];
            if (J > w.I) f.end[d] *= D[J];
        }
        f.ahead1[d] = w.I == 0 ? D[1] : D[2];
        f.ahead2[d] = D[1] * D[2];
        if (w.PARTS == 1) f.last[d] = G[w.ROWS - 1][d];
        if (w.row == 0) decay[w.channel + d] = D[0] * f.end[d];
    }
    return f;
}

static __device__ __forceinline__ void store_pair(unsigned char *to, const float *x)
{
    *(uint32_t *)to = pack_bf16x2(x[0], x[1]);
}

static __device__ __forceinline__ void store_scaled_pair(unsigned char *to,
                                                         const float *x, const float *f)
{
    *(uint32_t *)to = pack_bf16x2(x[0] * f[0], x[1] * f[1]);
}

// Converts a thread's rows to chunk factors and to operands of the scores. Let F =
// exp2(G) and B = exp2(G_last - G). Every decay across a boundary of the row's subchunk
// is F or B times decays over whole subchunks, so it is at most 1. B is exp2(G_last) /
// F. If the chunk has deep channels (`deep`), 1 / F may be infinite, so B is a separate
// exponential. If `excluded` is set, k / F is 0 in the operand `g`, because
// deep_scores.cuh computes the scores within the subchunk.
template <int K, int deep>
static __device__ __forceinline__ void rows_to_factors(
    const struct thread_rows<K> &w, const float (*G)[2], const struct subchunk_decay &f,
    int excluded, struct kda_prepare_storage<K> &smem, struct chunk_factors<K> *r)
{
    struct channel_half &m = *smem.half;
    unsigned char *to = (unsigned char *)r;
    to -= w.channel / 64 * (sizeof m - TILE_BYTES);
    const int in_k = offsetof(struct chunk_factors<K>, k);
    const int in_q = offsetof(struct chunk_factors<K>, q);
    const int in_kg = offsetof(struct chunk_factors<K>, kg);
    const float minus[2] = { -f.start[0], -f.start[1] };
    const float D[2] = { ex2_approx(f.last[0]), ex2_approx(f.last[1]) };
    enum { HALF = thread_rows<K>::ROWS / 2 };
    #pragma unroll
    for (int i = 0; i < HALF; i++) {
        const uint32_t line = opaque(w.at ^ i << 4);
        const uint32_t lines[2] = { line, line ^ HALF % 8 << 4 }; // row_offset - 128 r
        float kB[2][2];
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const int r = i + j * HALF, at = lines[j] + r * 128;
            unsigned char *row = to + lines[j] + r * 128;
            const float2 norm = smem.norm[w.row + r];
            const uint32_t qs = *(const uint32_t *)(m.q + at);
            const uint32_t ks = *(const uint32_t *)(m.k + at);
            //> kernel-prepare-row
            float q[2] = { norm.x * bf16x2_low(qs), norm.x * bf16x2_high(qs) }, up[2];
            float k[2] = { norm.y * bf16x2_low(ks), norm.y * bf16x2_high(ks) };
            for (int d = 0; d < 2; d++) {
                const float g = G[r][d], F = ex2_approx(g);
                up[d] = deep && excluded ? 0.0f : k[d] * ex2_approx(-g);
                kB[j][d] = deep ? k[d] * ex2_approx(f.last[d] - g) : up[d] * D[d];
                q[d] *= F;
                k[d] *= F;
            }
            store_pair(m.q + at, q);
            store_pair(m.k + at, k);
            store_pair(m.g + at, up);
            store_scaled_pair(row + in_q, q, f.start);
            store_scaled_pair(row + in_k, k, minus);
            store_scaled_pair(row + in_kg, kB[j], f.end);
            if (w.I < 3) store_pair(m.ahead1[0] + at, kB[j]);
            //< kernel-prepare-row
        }
        if (w.I < 2)
            #pragma unroll
            for (int j = 0; j < 2; j++) {
                const int at = lines[j] + (i + j * HALF) * 128;
                store_scaled_pair(m.ahead2[0] + at, kB[j], f.ahead1);
                if (w.I < 1) store_scaled_pair(m.ahead3 + at, kB[j], f.ahead2);
            }
        compiler_fence(); // the next rows are not loaded earlier, to save registers
    }
}
