// v2_halves_inverse.cuh -- (I + L)^-1 of a chunk, square by square.
// Book: chapter 03, "Tensor cores".
// Checked by: tests/03_wy.c.
// Next: v2_halves.cu.
#include "../scan.cuh"

enum { LD = CHUNK + 4 };                 // rows aligned to 16 bytes, spread over banks

// The four squares of 16 on the diagonal: thread (b, j) owns column j of square b. The
// rows of L that it reads are the same for 16 threads.
static __device__ void invert_squares(const float (*L)[LD], float (*A)[LD])
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
template <int H>
static __device__ __forceinline__ void four_rows(float *y, const float *x,
                                                 const float *A)
{
    for (int p = 0; p < H; p += 4) {
        const float a0 = A[p * LD], a1 = A[p * LD + LD];
        const float a2 = A[p * LD + 2 * LD], a3 = A[p * LD + 3 * LD];
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            const float4 v = *(const float4 *)(x + r * LD + p);
            y[r] += v.x * a0 + v.y * a1 + v.z * a2 + v.w * a3;
        }
    }
}

// Two neighbouring squares of size H become one of 2 H: with A_0, A_1 their inverses,
// the square below the diagonal is -A_1 (L A_0). The inner product waits in L above the
// diagonal, which nobody reads. Two barriers: it is whole; so is the result.
template <int H>
static __device__ void join_squares(float (*L)[LD], float (*A)[LD])
{
    const int at = threadIdx.x, per = H * H / 4, active = at < CHUNK / (2 * H) * per;
    const int b = at / per * 2 * H, r = at % per / H * 4, c = at % H;
    float y[4] = {};
    if (active) {
        four_rows<H>(y, &L[b + H + r][b], &A[b][b + c]);
        for (int i = 0; i < 4; i++) L[b + r + i][b + H + c] = y[i];
    }
    __syncthreads();
    if (active) {
        for (int i = 0; i < 4; i++) y[i] = 0.0f;
        four_rows<H>(y, &A[b + H + r][b + H], &L[b][b + H + c]);
        for (int i = 0; i < 4; i++) A[b + H + r + i][b + c] = -y[i];
    }
    __syncthreads();
}
