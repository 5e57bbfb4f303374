// triangle_inverse.cuh -- blocks of a chunk's pairs; (I + L)^-1, block by block.
// Book: chapter 03, "Tensor cores".
// Checked by: every variant that includes it.
// Next: ../03_wy/v2_halves_pairs.cuh.
#ifndef KCP_TILE_TRIANGLE_INVERSE_CUH
#define KCP_TILE_TRIANGLE_INVERSE_CUH

#include "decay.cuh"

// Rows of a block: the r-th row and column of all blocks of size s, and their anchor.
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

// The four blocks of 16 on the diagonal: thread (b, j) owns column j of block b. The
// rows of L that it reads are the same for 16 threads.
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

// Four rows of a product: y_r = sum_p x_rp A_p over p < H, rows of x aligned.
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

// Two neighbouring blocks of size H become one of 2 H: with A_0, A_1 their inverses,
// the block below the diagonal is -A_1 (L A_0). The inner product waits in L above the
// diagonal, which nobody reads. Two barriers: it is whole; so is the result.
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

#endif
