// v2_halves_inverse.cuh -- squares of a chunk's pairs; (I + L)^-1, square by square.
// Book: chapter 03, "Tensor cores".
// Checked by: tests/03_wy/checks.c.
// Next: v2_halves.cu.
#ifndef KCP_03_V2_HALVES_INVERSE_CUH
#define KCP_03_V2_HALVES_INVERSE_CUH

#include "cuda/tile/warp_scan.cuh"

enum { LD = CHUNK + 4 };                 // rows aligned to 16 bytes, spread over banks

// Rows of a square: the r-th row and column of all squares of size s, and their anchor.
static __device__ __forceinline__ int row_of(int r, int s)
{
    return (r & ~(s - 1)) * 2 + s + (r & (s - 1));
}
static __device__ __forceinline__ int column_of(int r, int s)
{
    return row_of(r, s) - s;
}
static __device__ __forceinline__ int anchor_of(int r, int s)
{
    return row_of(r & ~(s - 1), s);
}

// x <- x exp2(G_i - G_a), two neighbours.
static __device__ __forceinline__ float2 decay_of(const float *to, const float *from)
{
    const float2 a = *(const float2 *)to, b = *(const float2 *)from;
    return make_float2(ex2_approx(a.x - b.x), ex2_approx(a.y - b.y));
}

static __device__ __forceinline__ uint32_t times(uint32_t x, float2 y)
{
    return pack_bf16x2(__uint_as_float(x << 16) * y.x,
                       __uint_as_float(x & 0xffff0000u) * y.y);
}

// The four squares of 16 on the diagonal: thread (b, j) owns column j of square b. The
// rows of L that it reads are the same for 16 threads.
template <int ld>
static __device__ void invert_squares(const float (*L)[ld], float (*A)[ld])
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

// Two neighbouring squares of size H become one of 2 H: with A_0, A_1 their inverses,
// the square below the diagonal is -A_1 (L A_0). The inner product waits in L above the
// diagonal, which nobody reads. Two barriers: it is whole; so is the result.
template <int H, int ld>
static __device__ void join_squares(float (*L)[ld], float (*A)[ld])
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
