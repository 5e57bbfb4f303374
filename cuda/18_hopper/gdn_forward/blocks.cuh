// blocks.cuh -- GDN: shared storage, products of rows, 16x16 blocks of them.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: chunk_prepare_sm90.cu.
#ifndef KCP_GDN_BLOCKS_CUH
#define KCP_GDN_BLOCKS_CUH

#include "cuda/18_hopper/chunk_prepare.cuh"

// A square in a warp's registers, d[2][4]: a lane has rows g = lane / 4 and g + 8, and
// of each four neighbours, columns 4 (lane % 4) .., two in d[0] and two in d[1]; so it
// writes 8 bytes at once. To the tensor core these are tiles whose columns come in
// another order; what is summed over may, as long as both sides have the same.

// fp32, where a span is inverted; two of them, side by side, meet all banks.
struct block16 {
    float x[SUBCHUNK][SUBCHUNK + 4], pad[16];
};

static __device__ __forceinline__ int lane_row(void)
{
    return threadIdx.x % 32 / 4;
}
static __device__ __forceinline__ int lane_column(void)
{
    return threadIdx.x % 4 * 4;
}

static __device__ __forceinline__ void set_lane_row(float (*d)[4], int h, float4 x)
{
    d[0][2 * h] = x.x, d[0][2 * h + 1] = x.y, d[1][2 * h] = x.z, d[1][2 * h + 1] = x.w;
}

static __device__ __forceinline__ void load_block16(float (*d)[4],
                                                    const struct block16 &s)
{
    #pragma unroll
    for (int h = 0; h < 2; h++)
        set_lane_row(d, h, *(const float4 *)&s.x[h * 8 + lane_row()][lane_column()]);
}

// The B of a product whose D is such a square: tile t has columns 4 m + 2 t and their
// right neighbours.
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

// y[I] += A[I] N for so many squares, three of the four products of pieces; squares in
// turn, so that few products wait for the one before.
static __device__ __forceinline__ void mma_split_blocks(float (*y)[2][4],
                                                        const struct split_operand *A,
                                                        const struct split_operand &N,
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

// A value head of a chunk: its gate and beta, and the norms of the chunk's rows; where
// its record lies, seen from this lane; and what the block keeps (NULL: nothing): there
// this many rows from the lane's on, `step` apart.
struct head_of_chunk {
    const float *G, *beta;
    const float2 *norm;
    unsigned char *to;
    bf16 *A, *Aqk;
    int rows, step;
};

// Byte of this lane's four in a square of a triangle (in_triangle).
static __device__ __forceinline__ int lane_offset(void)
{
    const int g = lane_row(), piece = threadIdx.x % 4 / 2;
    return g * 32 + ((piece ^ g / 4) % 2 << 4) + threadIdx.x % 2 * 8;
}

// Square (I, J), a lane's four of either half: to the record, and to a tensor of the
// block.
static __device__ __forceinline__ void store_block16(const struct head_of_chunk &w,
                                                     int matrix, int I, int J,
                                                     const uint2 *four)
{
    #pragma unroll
    for (int h = 0; h < 2; h++)
        *(uint2 *)(w.to + matrix + triangle_column(J) + (I - J) * 512 + h * 256) =
            four[h];
}

static __device__ __forceinline__ void save_block16(const struct head_of_chunk &w,
                                                    bf16 *to, int I, int J,
                                                    const uint2 *four)
{
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = I * SUBCHUNK + h * 8;
        if (to && i < w.rows)
            *(uint2 *)(to + i * opaque(w.step) + J * SUBCHUNK) = four[h];
    }
}

// Square (I, J) of A: A beta to the record, A to the block.
static __device__ __forceinline__ void store_inverse(const struct head_of_chunk &w,
                                                     int I, int J, const float (*d)[4])
{
    const float4 b = *(const float4 *)&w.beta[J * SUBCHUNK + lane_column()];
    uint2 Ab[2], A[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *l = d[0] + 2 * h, *r = d[1] + 2 * h;
        Ab[h] = make_uint2(pack_bf16x2(b.x * l[0], b.y * l[1]),
                           pack_bf16x2(b.z * r[0], b.w * r[1]));
        A[h] = make_uint2(pack_bf16x2(l[0], l[1]), pack_bf16x2(r[0], r[1]));
    }
    store_block16(w, offsetof(struct gdn_head_factors, Ab), I, J, Ab);
    save_block16(w, w.A, I, J, A);
}

static __device__ __forceinline__ void store_scores(const struct head_of_chunk &w,
                                                    int I, int J, const uint2 *four)
{
    store_block16(w, offsetof(struct gdn_head_factors, Aqk), I, J, four);
    save_block16(w, w.Aqk, I, J, four);
}

// Between spans decay is a product of two factors, at most 1 at any gate: from a row up
// to the first of its span, and from there to a row above. Norms and beta are in them:
// of rows i of q, and of k with L's sign; of rows j above span I, `above(I) + j`.
struct pair_factors {
    float q[CHUNK], k[CHUNK], to[96];
};

static __device__ __forceinline__ int row_pairs_before(int I)
{
    return 8 * I * (I - 1);
}

// Where square (I, J), J < I, lies among six.
static __device__ __forceinline__ int below_diagonal(int I, int J)
{
    return I * (I - 1) / 2 + J;
}

// Products on chip, in squares as lanes hold them: (I, J) of q k^T where J <= I; of
// k k^T, which is its own transpose, (J, I) there.
typedef float4 scores[SUBCHUNKS * (SUBCHUNKS + 1) / 2][2][32];

// Square (I, J) of Aqk, J < I.
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

// N = -L, square (I, J), as the B of a product: its transpose's rows are those of
// k k^T.
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

// The square on the diagonal, pair by pair, for no two factors hold it at any gate: Aqk
// out, L, below the diagonal, to where it is inverted.
static __device__ __forceinline__ void diagonal_scores(const struct head_of_chunk &w,
                                                       int I, const scores &qk,
                                                       const scores &kk,
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
            q[m] = column + m > row ? 0.0f : q[m] * (n.x * f), k[m] *= nk * f;
        }
        four[h] = make_uint2(pack_bf16x2(q[0], q[1]), pack_bf16x2(q[2], q[3]));
        *(float4 *)&L.x[row][column] = make_float4(k[0], k[1], k[2], k[3]);
    }
    store_scores(w, I, I, four);
}

static __device__ __forceinline__ void unpack_row(float *y, uint4 u, float times)
{
    const uint32_t w[4] = { u.x, u.y, u.z, u.w };
    #pragma unroll
    for (int i = 0; i < 8; i++)
        y[i] = times * (i % 2 ? bf16x2_high(w[i / 2]) : bf16x2_low(w[i / 2]));
}

static __device__ __forceinline__ uint4 pack_row(const float *x)
{
    return make_uint4(pack_bf16x2(x[0], x[1]), pack_bf16x2(x[2], x[3]),
                      pack_bf16x2(x[4], x[5]), pack_bf16x2(x[6], x[7]));
}

// With one gate a head, decay leaves the products over channels: q k^T and k k^T are
// made once for the value heads of a query/key head, of the numbers as they are, and a
// pair's decay is exp2 of a difference, exact at any gate. A block is a warpgroup: warp
// I has span I, 16 rows of both products.
enum { HEADS_PER_BLOCK = 4 }; // value heads of a block, at most

// What a value head needs besides the products: two spans at a time, or all four.
template <int spans>
struct head_storage {
    struct block16 block16[spans];
    struct pair_factors f;
};

// Where four warps have one head: -L and the diagonal's inverses, as a product's B.
struct shared_blocks {
    uint4 N[6][2][32], B[SUBCHUNKS - 1][2][32];
};

// many: more heads than one, a warp each; the products wait for them in shared memory.
// Rows of q are gone when qk is written, those of k when kk is.
template <int K, int heads_by_warp>
struct __align__(1024) shared_storage
{
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
    float2 norm[CHUNK];   // scale / |q|, 1 / |k|, 0 past the end
    struct token_range z; // these here, so that no registers hold them:
    int c, n, heads;      // the chunk, the first head, how many
};

// Rows of q and k of query/key head m to panels, 0 past the end.
template <int K>
static __device__ __forceinline__ void load_rows(const struct forward_params &x,
                                                 struct token_range z, int m,
                                                 struct gdn_qk_rows<K> &to)
{
    const int pieces = K / 8, rows = 128 / pieces, p = threadIdx.x % pieces;
    const int first = threadIdx.x / pieces;
    const int panel = p / 8 * TILE_BYTES + swizzle128_offset(first, p % 8);
    const int64_t at = (z.t * x.a.H + m) * K + p * 8;
    const bf16 *q = (const bf16 *)x.a.q_raw + at, *k = (const bf16 *)x.a.k_raw + at;
    #pragma unroll
    for (int r = 0; r < CHUNK; r += rows) {
        const int there = first + r < z.len;
        const int64_t from = (int64_t)(there ? first + r : 0) * (x.a.H * K);
        cp_async_16(to.q[0] + panel + r * 128, q + from, there);
        cp_async_16(to.k[0] + panel + r * 128, k + from, there);
    }
}

// d = X Y^T, X and Y [64,K] in panels, is under way.
template <int K>
static __device__ __forceinline__ void wgmma_gram(float (*d)[4],
                                                  const unsigned char (*X)[TILE_BYTES],
                                                  const unsigned char (*Y)[TILE_BYTES])
{
    wgmma_fence();
    #pragma unroll
    for (int p = 0; p < K / 16; p++)
        wgmma_m64n64k16_ss(
            d, smem_desc_k_major((const bf16 *)X[p / 4]) + p % 4 * DESC_STEP_K_MAJOR,
            smem_desc_k_major((const bf16 *)Y[p / 4]) + p % 4 * DESC_STEP_K_MAJOR, p);
    wgmma_commit();
}

// The products of span I's rows with one another: a fragment is its transpose's B.
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
        mma_m16n8k16(d[0], a, a[0], a[2]), mma_m16n8k16(d[1], a, a[1], a[3]);
    }
}

// times / |row| of the span's rows g and g + 8, from the diagonal of their products:
// lanes of e / 2 = g / 2 have it. 0 past the end.
template <int K>
static __device__ __forceinline__ void row_norms(const struct forward_params &x, int I,
                                                 int len,
                                                 const unsigned char (*X)[TILE_BYTES],
                                                 float times, float *norm)
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

// The warp's squares, from J = first to last, to where heads find them: a lane's pairs
// to the four neighbours they belong to. turned: (I, J) lies where (J, I) would.
static __device__ __forceinline__ void store_blocks(int I, int first, int last,
                                                    const float (*d)[4], int turned,
                                                    scores &to)
{
    const int lane = threadIdx.x % 32, at = lane / 4 * 8 + lane % 4;
    #pragma unroll
    for (int T = 0; T < 2 * SUBCHUNKS; T++) {
        const int J = T / 2;
        if (J < first || J > last) continue;
        float4(*square)[32] = to[turned ? block16_index(J, I) : block16_index(I, J)];
        #pragma unroll
        for (int h = 0; h < 2; h++)
            ((float2 *)square[h])[at + T % 2 * 4] = *(const float2 *)&d[T][2 * h];
    }
}

// What the block keeps of q and k, once for the heads that share them.
template <int K>
static __device__ __forceinline__ void save_rows(const struct forward_params &x,
                                                 struct token_range z, int m,
                                                 const float2 *norm,
                                                 const struct gdn_qk_rows<K> &r)
{
    const int pieces = K / 8, p = threadIdx.x % pieces;
    #pragma unroll 1
    for (int i = threadIdx.x / pieces; i < z.len; i += 128 / pieces) {
        const int panel = p / 8 * TILE_BYTES + swizzle128_offset(i, p % 8);
        const int64_t row = (z.t + i) * x.a.H + m;
        const float nq = norm[i].x / (float)x.a.scale, nk = norm[i].y;
        float y[8];
        unpack_row(y, *(const uint4 *)(r.q[0] + panel), nq);
        *(uint4 *)((bf16 *)x.saved.q + row * K + p * 8) = pack_row(y);
        unpack_row(y, *(const uint4 *)(r.k[0] + panel), nk);
        *(uint4 *)((bf16 *)x.saved.k + row * K + p * 8) = pack_row(y);
        if (p == 0)
            ((float *)x.saved.rstd_q)[row] = nq, ((float *)x.saved.rstd_k)[row] = nk;
    }
}

// Rows to memory, as they are: by the copy engine, whose stores initcheck does not see;
// in the sanitizers' build by threads.
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

// Norms and q k^T, which takes the place of q's rows; then k k^T, which is left under
// way, so that no thread holds both. Rows go to memory meanwhile, as they are.
template <int K, int heads_by_warp, int keeps>
static __device__ __forceinline__ void products(
    const struct forward_params &x, int I, int m, struct gdn_qk_rows<K> *to,
    float (*d)[4], struct shared_storage<K, heads_by_warp> &r)
{
    typedef struct shared_storage<K, heads_by_warp> room;
    static_assert(offsetof(room, qk) >= sizeof r.raw.k, "qk is not where k's rows are");
    wgmma_gram<K>(d, r.raw.q, r.raw.k);
    store_rows(to, r.raw);
    row_norms<K>(x, I, r.z.len, r.raw.q, (float)x.a.scale, &r.norm[0].x);
    row_norms<K>(x, I, r.z.len, r.raw.k, 1.0f, &r.norm[0].y);
    wgmma_wait<0>();
    fence_operand<2 * SUBCHUNKS>(d);
    if (threadIdx.x == 0) tma_store_wait_read();
    __syncthreads();
    if (keeps && x.saved.q && to) {
        save_rows<K>(x, r.z, m, r.norm, r.raw);
        __syncthreads();
    }
    store_blocks(I, 0, I, d, 0, r.qk);
    wgmma_gram<K>(d, r.raw.k, r.raw.k);
}

#endif
