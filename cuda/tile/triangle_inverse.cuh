// triangle_inverse.cuh -- computes (I + L)^-1 of a chunk from inverses of its blocks.
// Book: chapter T, "Chapter 03: scores and the inverse".
#pragma once

#include "decay.cuh"

// In a matrix of blocks of size s, the lower blocks are the blocks directly left of the
// diagonal in odd block rows. Their rows (and columns) are counted from the first lower
// block to the last. Row r is row block_row of the matrix, in the lower block that
// starts at row block_anchor. Column r is column block_column of the matrix.
static __device__ __forceinline__ int block_row(int r, int s)
{
    return (r & ~(s - 1)) * 2 + s + (r & (s - 1));
}
static __device__ __forceinline__ int block_column(int r, int s)
{
    return block_row(r, s) - s;
}
static __device__ __forceinline__ int block_anchor(int r, int s)
{
    return block_row(r & ~(s - 1), s);
}

// Inverts the 16 x 16 blocks on the diagonal of I + L. A thread computes column j of
// the block that starts at row b, so 16 adjacent threads read the same rows of L.
template <int ld>
static __device__ void invert_diagonal_blocks(const float (*L)[ld], float (*A)[ld])
{
    const int b = threadIdx.x / 16 * 16, j = threadIdx.x % 16;
    float x[16];
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        float s = i == j;
        #pragma unroll
        for (int p = 0; p < i; p++) s -= L[b + i][b + p] * x[p];
        x[i] = s;
        A[b + i][b + j] = s;
    }
}

// Adds four rows of a product to y: y_r += sum_p x_rp A_p over p < H. Rows of x are
// 16-byte aligned.
template <int H, int ld>
static __device__ __forceinline__ void four_rows(float *y, const float *x,
                                                 const float *A)
{
    for (int p = 0; p < H; p += 4) {
        const float a0 = A[p * ld], a1 = A[p * ld + ld];
        const float a2 = A[p * ld + 2 * ld], a3 = A[p * ld + 3 * ld];
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            const float4 v = *(const float4 *)(x + r * ld + p);
            y[r] += v.x * a0 + v.y * a1 + v.z * a2 + v.w * a3;
        }
    }
}

// Joins the inverses A_0, A_1 of two adjacent blocks of size H into the inverse of one
// block of size 2 H. Below the diagonal, this inverse is -A_1 (L A_0). L A_0 is stored
// in L above the diagonal, where L is otherwise unused. The first barrier separates the
// writes of L A_0 from the reads. The second barrier separates the writes of the result
// from later reads.
template <int H, int ld>
static __device__ void join_blocks(float (*L)[ld], float (*A)[ld])
{
    const int at = threadIdx.x, per = H * H / 4, rows = ld - 4;
    const int active = at < rows / (2 * H) * per;
    const int b = at / per * 2 * H, r = at % per / H * 4, c = at % H;
    float y[4] = {};
    if (active) {
        four_rows<H, ld>(y, &L[b + H + r][b], &A[b][b + c]);
        for (int i = 0; i < 4; i++) L[b + r + i][b + H + c] = y[i];
    }
    __syncthreads();
    if (active) {
        for (int i = 0; i < 4; i++) y[i] = 0.0f;
        four_rows<H, ld>(y, &A[b + H + r][b + H], &L[b][b + H + c]);
        for (int i = 0; i < 4; i++) A[b + H + r + i][b + c] = -y[i];
    }
    __syncthreads();
}
