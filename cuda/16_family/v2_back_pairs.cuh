// v2_back_pairs.cuh -- backward through the scores of a chunk, tile by tile.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_back_states.cuh"

// Processes the tiles below the diagonal of up to four matrices: the gradients of the
// scores qk, qb, ab and ak. The sum dG uses the rounded bf16 factors that entered the
// products, because terms of dG cancel only with equal rounding.

// A block's rows are the second half of an aligned range of 2^(b+1) tokens, and its
// columns the first half. Its anchor is the token of its last column (in chapter 10, of
// the first row). `lower` returns whether token i is in the second half. `of_row` and
// `of_column` return the decay relative to the anchor, or 0 outside the block. With
// `early` = 1, the decay is computed from G of the previous row.
static __device__ __forceinline__ int lower(int i, int b) { return i >> b & 1; }

template <class Storage>
static __device__ __forceinline__ float of_row(const Storage &s, int i, int d, int b,
                                               int early)
{
    return lower(i, b) ? ex2_approx(s.G[i + 1 - early][d] - s.G[i >> b << b][d]) : 0.0f;
}

template <class Storage>
static __device__ __forceinline__ float of_column(const Storage &s, int j, int d, int b)
{
    const int anchor = (j >> b << b) + (1 << b);
    return lower(j, b) ? 0.0f : ex2_approx(s.G[anchor][d] - s.G[j + 1][d]);
}

// Of two adjacent entries (i0, j0) and (i1, j1), sets those outside all blocks to 0.
static __device__ __forceinline__ uint32_t mask_entries(uint32_t x, int i0, int j0,
                                                        int i1, int j1, int b)
{
    if (!lower(i0, b) || j0 >> b != (i0 >> b) - 1) x &= 0xffff0000u;
    if (!lower(i1, b) || j1 >> b != (i1 >> b) - 1) x &= 0x0000ffffu;
    return x;
}

static __device__ __forceinline__ float rounded(float x)
{
    return (float)(bf16)x;
}

// `rows_of_tile` loads tile (I, J) of a matrix as operand A, and `columns_of_tile`
// loads the tile's transpose. Entries outside the blocks become 0.
static __device__ __forceinline__ void rows_of_tile(uint32_t *a, const bf16 *M, int ld,
                                                    int I, int J, int b)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    ldmatrix_x4(a, M + 16 * I * ld + 16 * J + ldmatrix_offset_a(lane, ld));
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const int i = 16 * I + g + h % 2 * 8, j = 16 * J + e + h / 2 * 8;
        a[h] = mask_entries(a[h], i, j, i, j + 1, b);
    }
}

static __device__ __forceinline__ void columns_of_tile(uint32_t *a, const bf16 *M,
                                                       int ld, int I, int J, int b)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    ldmatrix_x4_trans(a, M + 16 * I * ld + 16 * J + ldmatrix_offset_b(lane, ld));
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const int j = 16 * J + g + h % 2 * 8, i = 16 * I + e + h / 2 * 8;
        a[h] = mask_entries(a[h], i, j, i + 1, j, b);
    }
}

// Adds products of tile (I, J) with k and b of its columns to x (gradient of q) and y
// (gradient of `look`, the vector with which a token reads the state).
template <class Storage>
static __device__ __forceinline__ void sum_rows(const Storage &s, int I, int J, int b,
                                                int d0, float (*x)[4], float (*y)[4])
{
    enum { K = sizeof s.q[0] / sizeof(bf16) - PAD, LB = Storage::LB };
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    uint32_t a[4], k[4], b_[4];
    ldmatrix_x4_trans(k, &s.k[16 * J][d0] + ldmatrix_offset_a(lane, K + PAD));
    if (s.m == 2)
        ldmatrix_x4_trans(b_, &s.b[16 * J][d0] + ldmatrix_offset_a(lane, K + PAD));
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const int j = 16 * J + e + h % 2 * 8, d = d0 + g + h / 2 * 8;
        const float2 F = make_float2(of_column(s, j, d, b), of_column(s, j + 1, d, b));
        k[h] = scale_bf16x2(k[h], F);
        if (s.m == 2) b_[h] = scale_bf16x2(b_[h], F);
    }
    rows_of_tile(a, s.of_qk[0], LB, I, J, b);
    mma_m16n16k16(x, a, k);
    if (s.looks) {
        rows_of_tile(a, s.dL[0], LB, I, J, b);
        mma_m16n16k16(y, a, s.m == 2 ? b_ : k);
    }
    if (s.m == 1) return;
    rows_of_tile(a, s.of_qb[0], LB, I, J, b);
    mma_m16n16k16(x, a, b_);
    rows_of_tile(a, s.dB[0], LB, I, J, b);
    mma_m16n16k16(y, a, k);
}

// Adds products of tile (I, J)^T with q and `look` to w (gradient of k) and u (of b).
template <class Storage>
static __device__ __forceinline__ void sum_columns(const Storage &s, int I, int J,
                                                   int b, int d0, float (*w)[4],
                                                   float (*u)[4])
{
    enum { K = sizeof s.q[0] / sizeof(bf16) - PAD, LB = Storage::LB };
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const int down = ldmatrix_offset_a(lane, K + PAD);
    uint32_t a[4], q[4], l[4] = {}, k[4] = {};
    ldmatrix_x4_trans(q, &s.q[16 * I][d0] + down);
    if (s.looks) ldmatrix_x4_trans(l, &s.a[16 * I][d0] + down);
    if (s.looks && s.m == 1) ldmatrix_x4_trans(k, &s.k[16 * I][d0] + down);
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const int i = 16 * I + e + h % 2 * 8, d = d0 + g + h / 2 * 8;
        float2 E = make_float2(of_row(s, i, d, b, 0), of_row(s, i + 1, d, b, 0));
        q[h] = scale_bf16x2(q[h], E);
        if (!s.looks) continue;
        if (s.m == 2)
            E = make_float2(of_row(s, i, d, b, 1), of_row(s, i + 1, d, b, 1));
        else {
            E.x *= __uint_as_float(k[h] << 16);
            E.y *= __uint_as_float(k[h] & 0xffff0000u);
        }
        l[h] = scale_bf16x2(l[h], E);
    }
    columns_of_tile(a, s.of_qk[0], LB, I, J, b);
    mma_m16n16k16(w, a, q);
    if (s.looks) {
        columns_of_tile(a, s.dL[0], LB, I, J, b);
        mma_m16n16k16(s.m == 2 ? u : w, a, l);
    }
    if (s.m == 1) return;
    columns_of_tile(a, s.of_qb[0], LB, I, J, b);
    mma_m16n16k16(u, a, q);
    columns_of_tile(a, s.dB[0], LB, I, J, b);
    mma_m16n16k16(w, a, l);
}

// Computes S[I] += x. All indices of S are constants, so S stays in registers.
template <int C>
static __device__ __forceinline__ void add_tile(struct slab<C> &S, int I,
                                                const float (*x)[4])
{
    #pragma unroll
    for (int t = 0; t < C / 16; t++)
        if (t == I)
            #pragma unroll
            for (int h = 0; h < 8; h++) S.x[t][h / 4][h % 4] += x[h / 4][h % 4];
}

template <class Storage, int C>
static __device__ __forceinline__ void block_gradients(Storage &s, int I, int J, int b,
                                                       int d0, struct slab<C> &P,
                                                       struct slab<C> &Y,
                                                       struct slab<C> &W,
                                                       struct slab<C> &U)
{
    float x[2][4] = {}, y[2][4] = {}, w[2][4] = {}, u[2][4] = {};
    sum_rows(s, I, J, b, d0, x, y);
    sum_columns(s, I, J, b, d0, w, u);
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        const int c = h / 4, j = h % 4, d = d0 + column_in(c, j);
        const int i = row_in(I, j), t = row_in(J, j);
        const float E = of_row(s, i, d, b, 0), F = of_column(s, t, d, b);
        const float e = s.m == 2 ? of_row(s, i, d, b, 1) : E;
        float of_i = rounded((float)s.q[i][d] * E) * x[c][j];
        if (s.m == 2) s.dE[i][d] += rounded((float)s.a[i][d] * e) * y[c][j];
        else if (s.looks)
            of_i += rounded((float)s.a[i][d] * (E * (float)s.k[i][d])) * y[c][j];
        s.dG[i][d] += of_i;
        float of_j = rounded((float)s.k[t][d] * F) * w[c][j];
        if (s.m == 2) of_j += rounded((float)s.b[t][d] * F) * u[c][j];
        s.dG[t][d] -= of_j;
        x[c][j] *= E;
        y[c][j] *= e;
        w[c][j] *= F;
        u[c][j] *= F;
    }
    add_tile(P, I, x);
    add_tile(W, J, w);
    if (s.looks) add_tile(Y, I, y);
    if (s.m == 2) add_tile(U, J, u);
}

// Processes the tiles below the diagonal: first blocks of size 32, then of size 16.
template <class Storage, int C>
static __device__ void pairs_back(Storage &s, int d0, struct slab<C> &P,
                                  struct slab<C> &Y, struct slab<C> &W,
                                  struct slab<C> &U)
{
    const int far = C == CHUNK ? 4 : 0;
    #pragma unroll 1
    for (int task = 0; task < far + C / 32; task++) {
        const int at = task - far, I = at < 0 ? 2 + task / 2 : 2 * at + 1;
        block_gradients(s, I, at < 0 ? task % 2 : 2 * at, at < 0 ? 5 : 4, d0, P, Y, W,
                        U);
    }
}
