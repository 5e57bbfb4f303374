// products.cuh -- products of a consumer warpgroup with chunk factors.
// Book: chapter 18.
#pragma once

#include "pipeline.cuh"
#include "cuda/tile/typed.cuh"

// A consumer warpgroup holds 64 columns of the state as the accumulator S^T [64,K].
// Other accumulators are y^T and o^T [64,CHUNK]. Operand A of every product is one of
// these accumulators, rounded to bf16 in registers. Operand B is in shared memory.

// Loads v^T of a chunk as pairs of bf16.
static __device__ __forceinline__ void ldmatrix_v(uint32_t (*r)[4], const bf16 *v,
                                                  int ld)
{
    v += threadIdx.x / 32 * 16 + ldmatrix_offset_b(threadIdx.x % 32, ld);
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) ldmatrix_x4_trans(r[c], v + c * 16 * ld);
}

// Loads y^T = v^T of a chunk of fp16, rounded to bf16.
static __device__ __forceinline__ void from_half_rows(float (*y)[4], const bf16 *v,
                                                      int ld)
{
    uint32_t r[CHUNK / 16][4];
    ldmatrix_v(r, v, ld);
    #pragma unroll
    for (int i = 0; i < CHUNK / 4; i++) {
        const uint32_t pair = converted<KCP_TYPE_BF16>(r[i / 4][i % 4]);
        y[i / 2][i % 2 * 2] = bf16x2_low(pair);
        y[i / 2][i % 2 * 2 + 1] = bf16x2_high(pair);
    }
}

// Computes y^T <- v^T - y^T diag(F). Rows `len` and later of v count as 0.
static __device__ __forceinline__ void v_minus_scaled(
    float (*y)[4], const uint32_t (*r)[4], const float *F, int len)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < 32; i++) {
        const int col = i / 4 * 8 + e + i % 2;
        const uint32_t pair = r[i / 8][i % 8 / 2];
        const float v = i % 2 ? bf16x2_high(pair) : bf16x2_low(pair);
        y[i / 4][i % 4] = fmaf(-F[col], y[i / 4][i % 4], col < len ? v : 0.0f);
    }
}

static __device__ __forceinline__ void scale_state(float (*S)[4], int tiles, float by)
{
    #pragma unroll
    for (int i = 0; i < tiles; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) S[i][j] *= by;
}

// Computes d [64,64] = a X^T (+= if `add` is set). X [64, 16 * steps] is in tiles.
template <int steps>
static __device__ __forceinline__ void wgmma_times_tiles(
    float (*d)[4], const uint32_t (*a)[4], const unsigned char *X, int add)
{
    #pragma unroll
    for (int p = 0; p < steps; p++)
        wgmma_m64n64k16_rs<0>(d, a[p],
                              smem_desc_k_major((const bf16 *)(X + p / 4 * TILE_BYTES))
                                  + p % 4 * DESC_STEP_K_MAJOR,
                              add || p);
}

// Returns the K-major descriptor of a triangle (A beta or Aqk). A triangle consists of
// four block columns of 64 rows of 32 bytes. A step along K is one block column.
static __device__ __forceinline__ uint64_t smem_desc_triangle(const unsigned char *X)
{
    return smem_desc(X, SWIZZLE_32_BYTES, 16, 256);
}

// Computes d [64,64] = a X^T (+= if `add` is set). X [64,64] is a triangle.
static __device__ __forceinline__ void wgmma_times_triangle(
    float (*d)[4], const uint32_t (*a)[4], const unsigned char *X, int add)
{
    #pragma unroll
    for (int J = 0; J < 4; J++)
        wgmma_m64n64k16_rs<0>(d, a[J], smem_desc_triangle(X) + 128 * J, add || J);
}

// Computes d [64,64] = a X (+= if `add` is set). The triangle X is read transposed,
// because the product sums over rows of X. A step along K is 16 rows (512 bytes).
// Blocks of 16 columns are 2048 bytes apart.
static __device__ __forceinline__ void wgmma_times_triangle_transposed(
    float (*d)[4], const uint32_t (*a)[4], const unsigned char *X, int add)
{
    const uint64_t at = smem_desc(X, SWIZZLE_32_BYTES, 2048, 256);
    #pragma unroll
    for (int I = 0; I < 4; I++)
        wgmma_m64n64k16_rs<1>(d, a[I], at + 32 * I, add || I);
}

// Multiplies the columns of an accumulator by `factor`. Rounds the result to bf16 as
// operand A.
template <int tiles>
static __device__ __forceinline__ void pack_accumulator_times(
    uint32_t (*a)[4], const float (*d)[4], const float *factor)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const float2 f = *(const float2 *)&factor[i * 8 + e];
        a[i / 2][i % 2 * 2] = pack_bf16x2(d[i][0] * f.x, d[i][1] * f.y);
        a[i / 2][i % 2 * 2 + 1] = pack_bf16x2(d[i][2] * f.x, d[i][3] * f.y);
    }
}

// A view of a state from column `v` on. `p`: the address of element (key row 0, column
// v); `dv`: the distance between columns; `di`: the distance between key rows.
struct state_view { float *p; int64_t dv, di; };

template <class Call>
static __device__ __forceinline__ struct state_view state_view_of(
    const Call &a, const void *x, int layout, int64_t row, int n, int v)
{
    const int64_t at = (row * a.HV + n) * a.K * a.V, kv = layout == KCP_KV;
    const int64_t dv = kv ? 1 : a.K, di = kv ? a.V : 1;
    return { x ? (float *)x + at + v * dv : NULL, dv, di };
}

// Computes S^T [64,K] += a X. X [64,K] is in tiles. A wgmma has N = K.
template <int K>
static __device__ __forceinline__ void wgmma_add_tiles(
    float (*S)[4], const uint32_t (*a)[4], const unsigned char *X)
{
    const uint64_t at = smem_desc_mn_major((const bf16 *)X);
    #pragma unroll
    for (int p = 0; p < CHUNK / 16; p++)
        if constexpr (K == 128)
            wgmma_m64n128k16_rs<1>(S, a[p], at + p * DESC_STEP_MN_MAJOR);
        else wgmma_m64n64k16_rs<1>(S, a[p], at + p * DESC_STEP_MN_MAJOR, 1);
}
