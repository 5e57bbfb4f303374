// blocks.cuh -- GDN: shared storage, loads, products of rows in 16x16 blocks.
// Book: chapter 18.
#pragma once

#include "cuda/18_hopper/chunk_prepare.cuh"

// ---- 16x16 blocks in a warp's registers
//
// A lane has two rows of a block, g = lane / 4 and g + 8, as d[2][4]. In each row the
// lane has four columns, starting at 4 * (lane % 4): two in d[0] and two in d[1]. In
// bf16 these four elements are 8 contiguous bytes. For the tensor core a block is an
// accumulator with permuted columns. A product has the same result, because both
// operands permute the summed index in the same way.

// A 16x16 block in fp32, inverted in place. Row i of two blocks covers all 32 banks.
struct block16 { float x[SUBCHUNK][SUBCHUNK + 4], pad[16]; };

static __device__ __forceinline__ int lane_row(void) { return threadIdx.x % 32 / 4; }
static __device__ __forceinline__ int lane_column(void) { return threadIdx.x % 4 * 4; }

static __device__ __forceinline__ void set_lane_row(float (*d)[4], int h, float4 x)
{
    d[0][2 * h] = x.x;
    d[0][2 * h + 1] = x.y;
    d[1][2 * h] = x.z;
    d[1][2 * h + 1] = x.w;
}

static __device__ __forceinline__ void load_block16(float (*d)[4],
                                                    const struct block16 &s)
{
    #pragma unroll
    for (int h = 0; h < 2; h++)
        set_lane_row(d, h, *(const float4 *)&s.x[h * 8 + lane_row()][lane_column()]);
}

// Loads a block as operand B of a product, with the permuted column order: tile t has
// columns 4 m + 2 t and 4 m + 2 t + 1 for m = 0 to 3.
static __device__ __forceinline__ struct split_operand block16_as_b(
    const struct block16 &s)
{
    const int e = threadIdx.x % 4 * 2, g = lane_row(), column = g / 2 * 4 + g % 2;
    float d[2][4];
    #pragma unroll
    for (int h = 0; h < 8; h++)
        d[h / 4][h % 4] = s.x[h / 4 * 8 + e + h % 2][column + h % 4 / 2 * 2];
    return split_accumulator(d);
}

// Adds A[I] N to y[I] for `count` blocks. The operands are sums top + rest, and rest *
// rest is omitted (below the rounding error). Blocks are interleaved to hide latency.
static __device__ __forceinline__ void mma_split_blocks(
    float (*y)[2][4], const struct split_operand *A, const struct split_operand &N,
    int count)
{
    #pragma unroll
    for (int p = 0; p < 3; p++) {
        const uint32_t *b = p == 1 ? N.rest : N.top;
        #pragma unroll
        for (int x = 0; x < 2 * (SUBCHUNKS - 1); x++) {
            const int I = x / 2, t = x % 2;
            if (I < count)
                mma_m16n8k16(y[I][t], p == 2 ? A[I].rest : A[I].top, b[t], b[t + 2]);
        }
    }
}

// A value head of a chunk: per row G (the sum of log2 decays up to the row), beta and
// reciprocal norms, and this lane's address in the factors.
struct head_of_chunk {
    const float *G, *beta;
    const float2 *norm;
    unsigned char *to;
};

// Returns the byte offset of this lane's four elements in a block of a triangle.
static __device__ __forceinline__ int lane_offset(void)
{
    const int g = lane_row(), piece = threadIdx.x % 4 / 2;
    return g * 32 + ((piece ^ g / 4) % 2 << 4) + threadIdx.x % 2 * 8;
}

// Stores block (I, J) in the factors. A lane stores four elements each of rows g and g
// + 8.
static __device__ __forceinline__ void store_block16(
    const struct head_of_chunk &w, int matrix, int I, int J, const uint2 *four)
{
    #pragma unroll
    for (int h = 0; h < 2; h++)
        *(uint2 *)(w.to + matrix + triangle_column(J) + (I - J) * 512 + h * 256) =
            four[h];
}

// Stores block (I, J) of A diag(beta) in the factors. A is (1 + L)^-1 (see `scores`).
static __device__ __forceinline__ void store_inverse(const struct head_of_chunk &w,
                                                     int I, int J, const float (*d)[4])
{
    const float4 b = *(const float4 *)&w.beta[J * SUBCHUNK + lane_column()];
    uint2 Ab[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *l = d[0] + 2 * h, *r = d[1] + 2 * h;
        Ab[h] = make_uint2(pack_bf16x2(b.x * l[0], b.y * l[1]),
                           pack_bf16x2(b.z * r[0], b.w * r[1]));
    }
    store_block16(w, offsetof(struct gdn_head_factors, Ab), I, J, Ab);
}

static __device__ __forceinline__ void store_scores(const struct head_of_chunk &w,
                                                    int I, int J, const uint2 *four)
{
    store_block16(w, offsetof(struct gdn_head_factors, Aqk), I, J, four);
}

// The decay from row j to row i of a later subchunk I (16 rows) is the product of two
// decays: from row j to the first row of I, and from that row to row i. Both decays are
// at most 1 for any gate. `to[row_pairs_before(I) + j]` has the first decay times
// norm[j].y. `q[i]` and `k[i]` have the second decay times norm[i].x or norm[i].y.
// `k[i]` is also multiplied by -beta, because -L is needed, not L.
struct pair_factors { float q[CHUNK], k[CHUNK], to[96]; };

static __device__ __forceinline__ int row_pairs_before(int I)
{
    return 8 * I * (I - 1);
}

// Returns the index of block (I, J), J < I, among the six blocks below the diagonal.
static __device__ __forceinline__ int below_diagonal(int I, int J)
{
    return I * (I - 1) / 2 + J;
}

// Products of rows in 16x16 blocks, each stored lane by lane. Entry (I, J), J <= I, has
// block (I, J) of q k^T in `qk`, but block (J, I) of k k^T in `kk`. Norms and decays
// turn q k^T into Aqk, and turn beta k k^T below the diagonal into L.
typedef float4 scores[SUBCHUNKS * (SUBCHUNKS + 1) / 2][2][32];

// Scales the scores of block (I, J), J < I, and stores the block of Aqk.
static __device__ __forceinline__ void scale_scores(const struct head_of_chunk &w,
                                                    int I, int J, const scores &qk,
                                                    const struct pair_factors &f)
{
    const float4 c =
        *(const float4 *)&f.to[row_pairs_before(I) + J * SUBCHUNK + lane_column()];
    uint2 four[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float4 d = qk[block16_index(I, J)][h][threadIdx.x % 32];
        const float r = f.q[I * SUBCHUNK + h * 8 + lane_row()];
        four[h] = make_uint2(pack_bf16x2(d.x * (r * c.x), d.y * (r * c.y)),
                             pack_bf16x2(d.z * (r * c.z), d.w * (r * c.w)));
    }
    store_scores(w, I, J, four);
}

// Returns block (I, J) of N = -L as operand B, computed from block (J, I) of k k^T.
static __device__ __forceinline__ struct split_operand minus_L(
    int I, int J, const scores &kk, const struct pair_factors &f)
{
    const float4 c = *(const float4 *)&f.k[I * SUBCHUNK + lane_column()];
    float y[2][4];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float4 d = kk[block16_index(I, J)][h][threadIdx.x % 32];
        const float r = f.to[row_pairs_before(I) + J * SUBCHUNK + h * 8 + lane_row()];
        set_lane_row(y, h,
                     make_float4(d.x * (r * c.x), d.y * (r * c.y), d.z * (r * c.z),
                                 d.w * (r * c.w)));
    }
    return split_accumulator(y);
}

// Computes a diagonal block with one exponential per pair of rows, because the factor
// exp2(-G_j) may overflow. Stores Aqk in the factors and L in shared memory.
static __device__ __forceinline__ void diagonal_scores(
    const struct head_of_chunk &w, int I, const scores &qk, const scores &kk,
    struct block16 &L)
{
    const int column = lane_column(), j = I * SUBCHUNK + column;
    const float4 G = *(const float4 *)&w.G[j], n0 = *(const float4 *)&w.norm[j];
    const float4 n2 = *(const float4 *)&w.norm[j + 2];
    const float Gj[4] = { G.x, G.y, G.z, G.w }, nj[4] = { n0.y, n0.w, n2.y, n2.w };
    uint2 four[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = h * 8 + lane_row(), i = I * SUBCHUNK + row;
        const float2 n = w.norm[i];
        const float Gi = w.G[i], nk = n.y * w.beta[i];
        const float4 dq = qk[block16_index(I, I)][h][threadIdx.x % 32];
        const float4 dk = kk[block16_index(I, I)][h][threadIdx.x % 32];
        float q[4] = { dq.x, dq.y, dq.z, dq.w }, k[4] = { dk.x, dk.y, dk.z, dk.w };
        #pragma unroll
        for (int m = 0; m < 4; m++) {
            const float f = nj[m] * ex2_approx(Gi - Gj[m]);
            q[m] = column + m > row ? 0.0f : q[m] * (n.x * f);
            k[m] *= nk * f;
        }
        four[h] = make_uint2(pack_bf16x2(q[0], q[1]), pack_bf16x2(q[2], q[3]));
        *(float4 *)&L.x[row][column] = make_float4(k[0], k[1], k[2], k[3]);
    }
    store_scores(w, I, I, four);
}

// ---- shared storage, and the products of rows
//
// With one gate per head the decay is not part of the products over channels. So q k^T
// and k k^T are computed from the raw rows, once for all value heads of a query/key
// head. Then each value head multiplies the products by its decays. A thread block is
// one warpgroup. Warp I has the 16 rows of subchunk I of both products.
enum { HEADS_PER_BLOCK = 4 };            // maximum number of value heads

// Storage per value head in addition to the products. `blocks` is the number of 16x16
// blocks that are inverted at a time, two or four.
template <int blocks>
struct head_storage { struct block16 block16[blocks]; struct pair_factors f; };

// Data that the four warps of one head exchange: N = -L, inverted diagonal blocks.
struct shared_blocks { uint4 N[6][2][32], B[SUBCHUNKS - 1][2][32]; };

// If `heads_by_warp` is 1, the block has several value heads, one per warp. Otherwise
// the block's four warps share one value head. After the rows of q and k have been
// read, `qk` and `kk` overwrite these rows.
template <int K, int heads_by_warp>
struct __align__(1024) gdn_prepare_storage {
    union {
        struct gdn_qk_rows<K> raw;
        struct {
            scores kk;
            struct shared_blocks four[heads_by_warp ? 0 : 1];
            struct head_storage<heads_by_warp ? 2 : SUBCHUNKS>
                head[heads_by_warp ? HEADS_PER_BLOCK : 1];
            scores qk;
        };
    };
    float G[heads_by_warp ? HEADS_PER_BLOCK : 1][CHUNK],
        beta[heads_by_warp ? HEADS_PER_BLOCK : 1][CHUNK];
    float2 norm[CHUNK];                  // scale / |q|, 1 / |k|, 0 past the end
    struct token_range z;                // z, c, n, heads: here to free registers
    int c, n, heads;                     // the chunk, first head, number of heads
};

// Loads rows of q and k of query/key head m into tiles, with 0 past the chunk's end.
template <int K>
static __device__ __forceinline__ void gdn_load_rows(const struct forward_params &x,
                                                 struct token_range z, int m,
                                                 struct gdn_qk_rows<K> &to)
{
    const int pieces = K / 8, rows = 128 / pieces, p = threadIdx.x % pieces;
    const int first = threadIdx.x / pieces;
    const int offset = p / 8 * TILE_BYTES + swizzle128_offset(first, p % 8);
    const int64_t at = (z.t * x.a.H + m) * K + p * 8;
    const bf16 *q = (const bf16 *)x.a.q_raw + at, *k = (const bf16 *)x.a.k_raw + at;
    #pragma unroll
    for (int r = 0; r < CHUNK; r += rows) {
        const int there = first + r < z.len;
        const int64_t from = (int64_t)(there ? first + r : 0) * (x.a.H * K);
        cp_async_16(to.q[0] + offset + r * 128, q + from, there);
        cp_async_16(to.k[0] + offset + r * 128, k + from, there);
    }
}

// Computes X X^T of subchunk I's rows. The registers that hold X as operand A also
// serve as operand B, X^T.
template <int K>
static __device__ __forceinline__ void mma_gram_diagonal(
    float (*d)[4], int I, const unsigned char (*X)[TILE_BYTES])
{
    const int lane = threadIdx.x % 32,
              at = swizzle128_offset(I * SUBCHUNK + lane % 16, lane / 16);
    #pragma unroll
    for (int p = 0; p < K / 16; p++) {
        uint32_t a[4];
        ldmatrix_x4(a, (const bf16 *)(X[p / 4] + (at ^ p % 4 << 5)));
        mma_m16n8k16(d[0], a, a[0], a[2]);
        mma_m16n8k16(d[1], a, a[1], a[3]);
    }
}

// For rows g and g + 8 stores `times` / |row| (`times` without l2norm, 0 past the end).
// Lanes with lane % 4 = g / 2 hold |row|^2, which is on the diagonal of X X^T.
template <int K>
static __device__ __forceinline__ void gdn_row_norms(
    const struct forward_params &x, int I, int len,
    const unsigned char (*X)[TILE_BYTES], float times, float *norm)
{
    const int g = threadIdx.x % 32 / 4;
    float d[2][4] = {};
    mma_gram_diagonal<K>(d, I, X);
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = I * SUBCHUNK + 8 * h + g;
        const float sum = g % 2 ? d[h][2 * h + 1] : d[h][2 * h];
        const float n = x.a.l2norm ? rsqrtf(sum + 1e-6f) : 1.0f;
        if (threadIdx.x % 4 == g / 2) norm[2 * i] = i < len ? n * times : 0.0f;
    }
}

// Stores the warp's blocks (I, J), first <= J <= last, in shared memory. A lane has
// pairs of adjacent columns, and stores each pair in the group of four columns that
// contains the pair. If `transposed` is set, block (I, J) is stored at position (J, I).
static __device__ __forceinline__ void store_blocks(
    int I, int first, int last, const float (*d)[4], int transposed, scores &to)
{
    const int lane = threadIdx.x % 32, at = lane / 4 * 8 + lane % 4;
    #pragma unroll
    for (int T = 0; T < 2 * SUBCHUNKS; T++) {
        const int J = T / 2;
        if (J < first || J > last) continue;
        float4 (*block)[32] =
            to[transposed ? block16_index(J, I) : block16_index(I, J)];
        #pragma unroll
        for (int h = 0; h < 2; h++)
            ((float2 *)block[h])[at + T % 2 * 4] = *(const float2 *)&d[T][2 * h];
    }
}

// Saves beta for backward. Also saves the norms, once for all value heads of a
// query/key head.
template <class Storage>
static __device__ __forceinline__ void save_row_scalars(const struct forward_params &x,
                                                        const Storage &smem, int kv)
{
    const int i = opaque_thread_id() % CHUNK, first = opaque_thread_id() / CHUNK;
    const int64_t m = (int64_t)smem.c * x.a.H + smem.n / kv;
    const int64_t at = ((int64_t)smem.c * x.a.HV + smem.n) * CHUNK + i;
    for (int j = first; j < smem.heads; j += 2)
        x.saved.beta[at + j * CHUNK] = smem.beta[j][i];
    if (smem.n % kv) return;
    if (first == 0) x.saved.rstd_q[m * CHUNK + i] = smem.norm[i].x / (float)x.a.scale;
    else x.saved.rstd_k[m * CHUNK + i] = smem.norm[i].y;
}

// Stores the raw rows by TMA. In the sanitizers' build threads copy the rows, because
// initcheck does not see TMA stores.
template <class Rows>
static __device__ __forceinline__ void store_rows(void *to, const Rows &from)
{
#ifdef KCP_FOR_SANITIZERS
    for (int i = threadIdx.x; to && i < (int)sizeof from / 16; i += blockDim.x)
        ((uint4 *)to)[i] = ((const uint4 *)&from)[i];
#else
    if (to && threadIdx.x == 0) tma_store_1d(to, &from, sizeof from);
#endif
}

// While q k^T runs, stores the raw rows and computes the norms. Overwrites the rows of
// q with q k^T. Then starts k k^T, so that no thread holds two products at once.
template <int K, int heads_by_warp>
static __device__ __forceinline__ void products(
    const struct forward_params &x, int I, int m, struct gdn_qk_rows<K> *to,
    float (*d)[4], struct gdn_prepare_storage<K, heads_by_warp> &smem)
{
    typedef struct gdn_prepare_storage<K, heads_by_warp> storage;
    static_assert(offsetof(storage, qk) >= sizeof smem.raw.k, "qk clear of k's rows");
    wgmma_tiles_begin<K>(d, smem.raw.q, smem.raw.k);
    store_rows(to, smem.raw);
    gdn_row_norms<K>(x, I, smem.z.len, smem.raw.q, (float)x.a.scale, &smem.norm[0].x);
    gdn_row_norms<K>(x, I, smem.z.len, smem.raw.k, 1.0f, &smem.norm[0].y);
    wgmma_wait<0>();
    fence_operand<2 * SUBCHUNKS>(d);
    if (threadIdx.x == 0) tma_store_wait_read();
    __syncthreads();
    store_blocks(I, 0, I, d, 0, smem.qk);
    wgmma_tiles_begin<K>(d, smem.raw.k, smem.raw.k);
}
