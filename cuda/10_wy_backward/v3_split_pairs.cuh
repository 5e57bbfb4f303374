// v3_split_pairs.cuh -- v3's second kernel: gradients from pairs of rows, and all sums.
// Book: chapter T, "Two kernels".
#include "v3_split_storage.cuh"

// Tile (I, J) of dAqk or dL is 16 x 16 and starts at row a = 16 I and column 16 J. Off
// the diagonal, row a is the tile's anchor, and D_ij = E_i F_j. The factors E_i =
// exp2(G_i - G_a) and F_j = exp2(G_a - G_j) are at most 1. A thread processes the 16
// rows of block B in column d. The thread computes the factors of these rows, the
// tensor core multiplies the tiles, and the thread applies the remaining factor to the
// products. Tiles on the diagonal are computed pair by pair in fp32 in registers. The
// gradient dg_t sums the terms of pairs j < t <= i. Off the diagonal, these terms are
// summed by rows i >= t, by columns j < t, and by whole tiles with J < B < I. No term
// is added and later subtracted, so the sums may be rounded independently.
enum { COLS = 64, LX = COLS + PAD, TILES = 6, LT = 56 };

struct pair_storage {
    float G[CHUNK][COLS];                // first, at offset 0
    bf16 k[CHUNK][COLS];
    struct token_range z;                // stored here to save registers
    int end;                             // last value head + 1; stored here likewise
    __align__(16) bf16 tri[2][48][LT];   // dAqk, dL: rows from 16, columns to 47
    float2 diagonal[CHUNK][16];          // dAqk_ij, dL_ij of the diagonal tiles
    bf16 raw[3][CHUNK][LX], q[CHUNK][LX];   // P, W, Q; then k (Q + dk2), in halves
    bf16 kF[TILES][16][LX];              // k F of tile (I, J); then its sums by columns
    bf16 qE[2][3][16][LX];               // q E and beta k E; then the sums by rows
    float G_first[4][COLS], G_last[COLS];   // G of each block's first row, of row 63
    float whole[4][4][COLS];             // 0: sums by rows, 1: by columns, I > 1: tiles
    float beta[CHUNK], of_beta[2][CHUNK], of_gate[2][CHUNK];
};

static __device__ __forceinline__ int tile_of(int I, int J)
{
    return I * (I - 1) / 2 + J;
}

// Loads the chunk's dAqk, dL and beta. A thread loads four columns of a row of the
// diagonal tiles.
static __device__ void fetch_matrices(const struct kcp_wy_backward &a, const bf16 *dL_,
                                      struct token_range z, int n,
                                      struct pair_storage &s)
{
    const int64_t stride = (int64_t)a.HV * CHUNK;
    for (int at = threadIdx.x; at < 2 * 48 * 6; at += blockDim.x) {
        const int w = at / 288, i = at / 6 % 48, j = at % 6 * 8, t = i + 16;
        if (j / 16 >= t / 16) continue;
        const bf16 *from = in<bf16>(w ? dL_ : a.dAqk, z.t, a.HV, n, CHUNK) + j;
        cp_async_16(&s.tri[w][i][j], from + (t < z.len ? t : 0) * stride, t < z.len);
    }
    cp_async_commit();
    const int i = threadIdx.x / 4, j = threadIdx.x % 4 * 4, there = i < z.len;
    const int64_t at = (z.t * a.HV + n) * CHUNK + j
                     + (there ? i * stride + i / 16 * 16 : 0);
    const uint2 x = *(const uint2 *)((const bf16 *)a.dAqk + at);
    const uint2 y = *(const uint2 *)(dL_ + at);
    const uint32_t *p = &x.x, *q = &y.x;
    #pragma unroll
    for (int e = 0; e < 4; e++) {
        const float u = e % 2 ? bf16x2_high(p[e / 2]) : bf16x2_low(p[e / 2]);
        const float v = e % 2 ? bf16x2_high(q[e / 2]) : bf16x2_low(q[e / 2]);
        s.diagonal[i][j + e] = make_float2(there ? u : 0.0f, there ? v : 0.0f);
    }
    if (threadIdx.x < CHUNK)
        s.beta[threadIdx.x] = threadIdx.x < z.len
            ? in<float>(a.beta, z.t + threadIdx.x, 1, 0, a.HV)[n] : 0.0f;
}

// Stores x, a term k (Q + dk2) of dbeta, over P and W, which are no longer needed.
static __device__ __forceinline__ void keep(struct pair_storage &s, int i, int d,
                                            float x)
{
    *(uint16_t *)&s.raw[0][i][d] = __float_as_uint(x) >> 16;
    *(uint16_t *)&s.raw[1][i][d] = __float_as_uint(x) & 0xffff;
}
static __device__ __forceinline__ float kept(const struct pair_storage &s, int i, int d)
{
    const uint32_t high = *(const uint16_t *)&s.raw[0][i][d];
    return __uint_as_float(high << 16 | *(const uint16_t *)&s.raw[1][i][d]);
}

// Loads 64 columns of q and of the first kernel's results P, W and Q.
static __device__ void fetch_raw(const struct kcp_wy_backward &a,
                                 const struct intermediates &b, struct token_range z,
                                 int m, int n, int d0, struct pair_storage &s)
{
    const int64_t at = (z.t * a.HV + n) * a.K + d0;
    const bf16 *q = in<bf16>(a.q, z.t, a.H, m, a.K) + d0;
    load_block<CHUNK, COLS, 256>(s.raw[0][0], b.P + at, a.HV * a.K, z.len);
    load_block<CHUNK, COLS, 256>(s.raw[1][0], b.W + at, a.HV * a.K, z.len);
    load_block<CHUNK, COLS, 256>(s.raw[2][0], b.Q + at, a.HV * a.K, z.len);
    load_block<CHUNK, COLS, 256>(s.q[0], q, a.H * a.K, z.len);
    cp_async_commit();
}

// Issues the copies of 64 columns of G and k, which run while the previous 64 columns
// are processed. In rows past the chunk's end, G repeats the last row and k is 0.
static __device__ __forceinline__ void load_columns_async(
    const struct kcp_wy_backward &a, struct token_range z, int m, int n, int d0,
    struct pair_storage &s)
{
    const bf16 *k = in<bf16>(a.k, z.t, a.H, m, a.K) + d0;
    const float *G = in<float>(a.G, z.t, a.HV, n, a.KG) + (a.KG > 1 ? d0 : 0);
    const int t = opaque(threadIdx.x);
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = t / 8 + 32 * r, d = t % 8 * 8, there = i < z.len;
        cp_async_16(&s.k[i][d], row_at(k, there ? i : 0, 2 * a.H * a.K) + d, there);
    }
    #pragma unroll
    for (int r = 0; r < 4 && a.KG > 1; r++) {
        const int i = t / 16 + 16 * r, d = t % 16 * 4;
        cp_async_16(&s.G[i][d], row_at(G, min(i, z.len - 1), 4 * a.HV * a.KG) + d, 1);
    }
    if (a.KG == 1 && d0 == 0) {          // GDN: one number per row for all columns
        const float g = *row_at(G, min(t / 4, z.len - 1), 4 * a.HV);
        for (int r = 0; r < 4; r++)
            *(float4 *)&s.G[t / 4][16 * r + t % 4 * 4] = make_float4(g, g, g, g);
    }
    cp_async_commit();
}

// Registers of thread (d, B), which processes 16 rows of column d.
struct column {
    int d, B;                            // within the current 64 columns
    float G[16], k[16];
    float dkt[16];                       // of the tile on the diagonal
    float up[16], down[16];              // sums of dG by rows, by columns
};

// Recomputes d and B of the thread, so that no register keeps d and B across phases.
static __device__ __forceinline__ void column_of_thread(struct column &x)
{
    const int i = opaque(threadIdx.x);
    x.d = i % COLS;
    x.B = __shfl_sync(~0u, i / COLS, 0);
}

static __device__ __forceinline__ void load_column(struct pair_storage &s,
                                                   struct column &x)
{
    #pragma unroll
    for (int r = 0; r < 16; r++) {
        x.G[r] = s.G[16 * x.B + r][x.d];
        x.k[r] = s.k[16 * x.B + r][x.d];
    }
    s.G_first[x.B][x.d] = x.G[0];
    if (x.B == 3) s.G_last[x.d] = x.G[15];
}

static __device__ __forceinline__ void make_factors(struct pair_storage &s,
                                                    const struct column &x)
{
    #pragma unroll
    for (int I = 1; I < 4; I++)
        if (I > x.B) {
            const float G = s.G[16 * I][x.d];
            #pragma unroll
            for (int r = 0; r < 16; r++)
                s.kF[tile_of(I, x.B)][r][x.d] = x.k[r] * ex2_approx(G - x.G[r]);
        }
    if (x.B)
        #pragma unroll
        for (int r = 0; r < 16; r++) {
            const float E = ex2_approx(x.G[r] - x.G[0]);
            s.qE[0][x.B - 1][r][x.d] = (float)s.q[16 * x.B + r][x.d] * E;
            s.qE[1][x.B - 1][r][x.d] = x.k[r] * E * s.beta[16 * x.B + r];
        }
}

// Multiplies the tiles. Four warps compute the sums by rows, sum_J dAqk (kF) and sum_J
// dL (kF), and store the sums in place of the factors qE. The other four warps compute
// the sums by columns, dAqk^T (qE) + dL^T (beta kE) per tile, and store the sums in
// place of the factors kF. E and F are a tile's factors of rows and columns.
static __device__ __forceinline__ void products(struct pair_storage &s)
{
    const int i = opaque(threadIdx.x);
    const int lane = i % 32, d0 = i / 32 % 4 * 16;
    const int by_rows = i < 128, down = ldmatrix_offset_a(lane, LX) + d0;
    float y[TILES][2][4] = {};
    uint32_t a[4], b[4];

    //> kernel-tiles
    #pragma unroll
    for (int I = 1; I < 4; I++)
        #pragma unroll
        for (int J = 0; J < I; J++)
            #pragma unroll
            for (int w = 0; w < 2; w++) {
                const bf16 *tile = &s.tri[w][16 * (I - 1)][16 * J];
                const int to = tile_of(I, J);
                if (by_rows) {
                    ldmatrix_x4(a, tile + ldmatrix_offset_a(lane, LT));
                    ldmatrix_x4_trans(b, s.kF[to][0] + down);
                    mma_m16n16k16(y[3 * w + I - 1], a, b);
                } else {
                    ldmatrix_x4_trans(a, tile + ldmatrix_offset_b(lane, LT));
                    ldmatrix_x4_trans(b, s.qE[w][I - 1][0] + down);
                    mma_m16n16k16(y[to], a, b);
                }
            }
    //< kernel-tiles
    __syncthreads();
    bf16 *to = by_rows ? s.qE[0][0][0] : s.kF[0][0];
    #pragma unroll
    for (int h = 0; h < 4 * TILES; h++)
        *(uint32_t *)(to + (h / 4 * 16 + lane / 4 + h % 2 * 8) * LX + d0 + h / 2 % 2 * 8
                      + lane % 4 * 2) = pack_bf16x2(y[h / 4][h / 2 % 2][h % 2 * 2],
                                                    y[h / 4][h / 2 % 2][h % 2 * 2 + 1]);
    __syncthreads();
}

// Processes row i of the diagonal tile, one pair j < i at a time, with exponents <= 0.
// Adds the terms of these pairs to dq2 and dk2 of row i, and to dkt of each row j.
static __device__ __forceinline__ void row_pairs(const struct pair_storage &s, int i,
                                                 float q, float beta_k,
                                                 struct column &x, float &dq2,
                                                 float &dk2)
{
    //> kernel-diagonal
    const float4 *row = (const float4 *)s.diagonal[16 * x.B + i];
    #pragma unroll
    for (int j = 0; j < i; j++) {
        const float4 two = row[j / 2];               // dAqk_ij, dL_ij of two columns
        const float A = j % 2 ? two.z : two.x, L = j % 2 ? two.w : two.y;
        const float D = ex2_approx(x.G[i] - x.G[j]), kD = x.k[j] * D;
        dq2 += A * kD;
        dk2 += L * kD;
        x.dkt[j] += (A * q + L * beta_k) * D;
    }
    //< kernel-diagonal
}

// Exchanges half of the rows with another lane, and adds the received rows. In
// reduce_rows, four such steps and one shuffle sum 16 rows over 32 columns.
template <int half>
static __device__ __forceinline__ void reduce_halves(float (&x)[16])
{
    const bool up = threadIdx.x & 2 * half;
    #pragma unroll
    for (int r = 0; r < half; r++) {
        const float low = x[r], high = x[r + half];
        x[r] = (up ? high : low) + __shfl_xor_sync(~0u, up ? low : high, 2 * half);
    }
}

static __device__ __forceinline__ void reduce_rows(float (&x)[16], int first, float *to)
{
    const int lane = threadIdx.x % 32;
    reduce_halves<8>(x);
    reduce_halves<4>(x);
    reduce_halves<2>(x);
    reduce_halves<1>(x);
    const float sum = x[0] + __shfl_xor_sync(~0u, x[0], 1);
    if (lane % 2 == 0) to[lane / 2] = first ? sum : to[lane / 2] + sum;
}
