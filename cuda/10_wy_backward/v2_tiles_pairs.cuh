// v2_tiles_pairs.cuh -- dq2*, dk2, dkt* of a chunk: tiles of the strict lower triangle.
// Book: chapter 10, "One kernel, and what it spends".
// Checked by: tests/10_wy_backward/checks.c.
// Next: v2_tiles_steps.cuh.
#include "v2_tiles_room.cuh"

// A square of size s of the strict lower triangle has its first row a as anchor: D_ij =
// exp2(G_i - G_a) exp2(G_a - G_j), both exponents <= 0 (chapter 03, v2). Tiles below
// the diagonal lie in squares of 32 and 16; a tile on the diagonal is taken four times,
// for its squares of 8, 4, 2 and 1, the rest of it masked. No pair i = j is in any
// square, so the sums are the starred ones.
//
// A pair adds to dG_i what it takes from dG_j, and dg sums dG over the rows: what
// cancels there must be the same number twice. So dG is made of the very factors,
// rounded to bf16, that entered the products; an unrounded one on either side would
// leave their rounding behind, coherent over all rows above (a tenth of dA_log when it
// was tried).

// Squares of size 2^b. Is row i in the lower half of one, column j in a left one? Of
// which anchor?
static __device__ __forceinline__ int lower(int i, int b) { return i >> b & 1; }
static __device__ __forceinline__ int anchor_row(int i, int b) { return i >> b << b; }
static __device__ __forceinline__ int anchor_column(int j, int b)
{
    return (j >> b << b) + (1 << b);
}

// Two entries of a tile, (i, j) and its neighbour, 0 where they are in no square.
static __device__ __forceinline__ uint32_t keep(uint32_t x, int i0, int j0, int i1,
                                                int j1, int b)
{
    if (!lower(i0, b) || j0 >> b != (i0 >> b) - 1) x &= 0xffff0000u;
    if (!lower(i1, b) || j1 >> b != (i1 >> b) - 1) x &= 0x0000ffffu;
    return x;
}

// exp2(G_i - G_a) of a row, exp2(G_a - G_j) of a column; 0 where there is no square.
template <class Room>
static __device__ __forceinline__ float of_row(const Room &r, int i, int d, int b)
{
    return lower(i, b) ? ex2_approx(r.G[i][d] - r.G[anchor_row(i, b)][d]) : 0.0f;
}

template <class Room>
static __device__ __forceinline__ float of_column(const Room &r, int j, int d, int b)
{
    return lower(j, b) ? 0.0f : ex2_approx(r.G[anchor_column(j, b)][d] - r.G[j][d]);
}

static __device__ __forceinline__ uint32_t by(uint32_t x, float low, float high)
{
    return pack_bf16x2(__uint_as_float(x << 16) * low,
                       __uint_as_float(x & 0xffff0000u) * high);
}

static __device__ __forceinline__ float rounded(float x)
{
    return (float)(bf16)x;
}

// S[I] += f x, I the same in the whole warp: the slab stays in registers.
static __device__ __forceinline__ void add_tile(slab &S, int I, const float (*x)[4])
{
    #pragma unroll
    for (int t = 0; t < 4; t++)
        if (t == I)
            #pragma unroll
            for (int h = 0; h < 8; h++) S[t][h / 4][h % 4] += x[h / 4][h % 4];
}

// Tile (I, J) with squares of size 2^b, on 16 columns d0 ..: P_i += dq2, Q_i += dk2,
// W_j += dkt, and dG_i, dG_j. GDN: D is in the matrices already. One body for all
// tiles, in a loop: unrolled, the 22 of them are 240 KiB of instructions, and the warps
// wait for those (13.2 ms for case A, half of it so).
template <int K, int V, int kda>
static __device__ __forceinline__ void tile(struct room<K, V> &r, int I, int J, int b_,
                                            int d0, slab &P, slab &Q, slab &W)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const int down = ldmatrix_offset_a(lane, K + PAD);
    uint32_t a[4], l[4], b[4], q[4];
    float x[2][4] = {}, y[2][4] = {}, z[2][4] = {};

    //> kernel-halves
    // rows i: sums over j of dAqk_ij k_j and dL_ij k_j
    ldmatrix_x4(a, &r.dAqk[16 * I][16 * J] + ldmatrix_offset_a(lane, LC));
    ldmatrix_x4(l, &r.dA[16 * I][16 * J] + ldmatrix_offset_a(lane, LC));
    ldmatrix_x4_trans(b, &r.k[16 * J][d0] + down);
    #pragma unroll
    for (int h = 0; h < 4 && kda; h++) {
        const int i = 16 * I + g + h % 2 * 8, j = 16 * J + e + h / 2 * 8;
        const int jb = 16 * J + e + h % 2 * 8, d = d0 + g + h / 2 * 8;
        a[h] = keep(a[h], i, j, i, j + 1, b_);
        l[h] = keep(l[h], i, j, i, j + 1, b_);
        b[h] = by(b[h], of_column(r, jb, d, b_), of_column(r, jb + 1, d, b_));
    }
    mma_m16n8k16(x[0], a, b[0], b[1]), mma_m16n8k16(x[1], a, b[2], b[3]);
    mma_m16n8k16(y[0], l, b[0], b[1]), mma_m16n8k16(y[1], l, b[2], b[3]);
    //< kernel-halves

    // columns j: sums over i of dAqk_ij q_i + dL_ij beta_i k_i
    ldmatrix_x4_trans(a, &r.dAqk[16 * I][16 * J] + ldmatrix_offset_b(lane, LC));
    ldmatrix_x4_trans(l, &r.dA[16 * I][16 * J] + ldmatrix_offset_b(lane, LC));
    ldmatrix_x4_trans(q, &r.q[16 * I][d0] + down);
    ldmatrix_x4_trans(b, &r.k[16 * I][d0] + down);
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const int j = 16 * J + g + h % 2 * 8, i = 16 * I + e + h / 2 * 8;
        const int ib = 16 * I + e + h % 2 * 8, d = d0 + g + h / 2 * 8;
        const float E0 = kda ? of_row(r, ib, d, b_) : 1.0f;
        const float E1 = kda ? of_row(r, ib + 1, d, b_) : 1.0f;
        if (kda) a[h] = keep(a[h], i, j, i + 1, j, b_);
        if (kda) l[h] = keep(l[h], i, j, i + 1, j, b_);
        q[h] = by(q[h], E0, E1);
        b[h] = by(b[h], E0 * r.beta[ib], E1 * r.beta[ib + 1]);
    }
    mma_m16n8k16(z[0], a, q[0], q[1]), mma_m16n8k16(z[1], a, q[2], q[3]);
    mma_m16n8k16(z[0], l, b[0], b[1]), mma_m16n8k16(z[1], l, b[2], b[3]);

    #pragma unroll
    for (int h = 0; h < 8; h++) {
        const int c = h / 4, j = h % 4, d = d0 + column_in(c, j);
        const int u = row_in(I, j), t = row_in(J, j);
        const float E = kda ? of_row(r, u, d, b_) : 1.0f;
        const float F = kda ? of_column(r, t, d, b_) : 1.0f;
        r.dG[u][d] += rounded((float)r.q[u][d] * E) * x[c][j]
                    + rounded((float)r.k[u][d] * (E * r.beta[u])) * y[c][j];
        r.dG[t][d] -= rounded((float)r.k[t][d] * F) * z[c][j];
        x[c][j] *= E, y[c][j] *= E, z[c][j] *= F;
    }
    add_tile(P, I, x), add_tile(Q, I, y), add_tile(W, J, z);
}

template <int K, int V>
static __device__ void pairs_kda(struct room<K, V> &r, int d0, slab &P, slab &Q,
                                 slab &W)
{
    #pragma unroll 1
    for (int task = 0; task < 22; task++) {
        const int I = task < 4 ? 2 + task / 2 : task < 6 ? 2 * task - 7
                                              : (task - 6) / 4;
        const int J = task < 4 ? task % 2 : task < 6 ? task * 2 - 8 : I;
        const int b = task < 4 ? 5 : task < 6 ? 4 : 3 - (task - 6) % 4;
        tile<K, V, 1>(r, I, J, b, d0, P, Q, W);
    }
}

template <int K, int V>
static __device__ void pairs_gdn(struct room<K, V> &r, int d0, slab &P, slab &Q,
                                 slab &W)
{
    #pragma unroll 1
    for (int task = 0; task < 10; task++) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        tile<K, V, 0>(r, I, J, 0, d0, P, Q, W);
    }
}
