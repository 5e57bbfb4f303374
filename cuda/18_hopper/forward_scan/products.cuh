// products.cuh -- a consumer's products with chunk factors, for the scan and the maps.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: scan_sm90.cu.
#ifndef KCP_SCAN_PRODUCTS_CUH
#define KCP_SCAN_PRODUCTS_CUH

#include "pipeline.cuh"

// A consumer warpgroup has 64 columns of the state, transposed: S^T [64,K] is an
// accumulator, and so are y^T and o^T [64,CHUNK]. Operand A of every product is one of
// them in registers, rounded to bf16; operand B lies in shared memory.

// v^T of a chunk, as pairs of bf16.
static __device__ __forceinline__ void ldmatrix_v(uint32_t (*r)[4], const bf16 *v,
                                                  int ld)
{
    v += threadIdx.x / 32 * 16 + ldmatrix_offset_b(threadIdx.x % 32, ld);
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) ldmatrix_x4_trans(r[c], v + c * 16 * ld);
}

// y^T <- v^T - y^T, the columns of y^T times F. v is 0 past the chunk's end.
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

// An accumulator, rounded to bf16, as operand A of the next product.
template <int tiles>
static __device__ __forceinline__ void pack_accumulator(uint32_t (*a)[4],
                                                        const float (*d)[4])
{
    #pragma unroll
    for (int i = 0; i < tiles * 2; i++)
        a[i / 4][i % 4] = pack_bf16x2(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
}

// d [64,64] = a X^T, or += with add. X [64,16 steps] lies in swizzle128 tiles.
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

// The descriptor of a triangle: K-major in wgmma's 32-byte swizzle. A step is 16 of its
// columns; the next step is 2048 bytes on.
static __device__ __forceinline__ uint64_t smem_desc_triangle(const unsigned char *X)
{
    return 3ull << 62 | 16ull << 32 | 1ull << 16 | (smem_addr(X) >> 4 & 0x3fff);
}

// d [64,64] = a X^T, or += with add. X [64,64] is a triangle.
static __device__ __forceinline__ void wgmma_times_triangle(
    float (*d)[4], const uint32_t (*a)[4], const unsigned char *X, int add)
{
    #pragma unroll
    for (int J = 0; J < 4; J++)
        wgmma_m64n64k16_rs<0>(d, a[J], smem_desc_triangle(X) + 128 * J, add || J);
}

// d [64,64] = a X, or += with add: the triangle transposed. Rows of X are summed over;
// a step is 16 of them, 512 bytes; eight columns of squares lie 2048 bytes apart.
static __device__ __forceinline__ void wgmma_times_triangle_transposed(
    float (*d)[4], const uint32_t (*a)[4], const unsigned char *X, int add)
{
    const uint64_t at =
        3ull << 62 | 16ull << 32 | 128ull << 16 | (smem_addr(X) >> 4 & 0x3fff);
    #pragma unroll
    for (int I = 0; I < 4; I++)
        wgmma_m64n64k16_rs<1>(d, a[I], at + 32 * I, add || I);
}

// An accumulator, its columns times factors, rounded, as operand A.
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

// Where a state lies: its column v of key row 0, the distance of columns, of key rows.
struct state_view { float *p; int64_t dv, di; };

template <class Call>
static __device__ __forceinline__ struct state_view state_view_of(
    const Call &a, const void *x, int layout, int64_t row, int n, int v)
{
    const int64_t at = (row * a.HV + n) * a.K * a.V, kv = layout == KCP_KV;
    const int64_t dv = kv ? 1 : a.K, di = kv ? a.V : 1;
    return { x ? (float *)x + at + v * dv : NULL, dv, di };
}

// S^T [64,K] += a X. X [64,K] lies in tiles; one instruction takes all of K.
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

#endif
