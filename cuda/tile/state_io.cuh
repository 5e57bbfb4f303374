// state_io.cuh -- rows and states between global memory, shared memory and registers.
// Book: chapter 17, "The tensor core" and "ldmatrix".
#pragma once

#include "mma.cuh"

// A chunk has 64 tokens, in four subchunks of 16. PAD extra elements per row of shared
// memory avoid bank conflicts.
enum { CHUNK = 64, SUBCHUNK = 16, SUBCHUNKS = CHUNK / SUBCHUNK, PAD = 8 };

// Copies len rows of a tensor, `stride` elements apart, to shared memory
// [rows,width+PAD]. Rows >= len become 0.
template <int width, int rows = CHUNK>
static __device__ __forceinline__ void cp_async_rows(bf16 *to, const bf16 *from,
                                                     int64_t stride, int len)
{
    for (int at = threadIdx.x; at < rows * width / 8; at += blockDim.x) {
        const int i = at / (width / 8), d = at % (width / 8) * 8;
        cp_async_16(to + i * (width + PAD) + d, from + (i < len ? i : 0) * stride + d,
                    i < len);
    }
}

// Loads y^T [16,rows] from the 16 columns at X of a matrix [rows,ld] in shared memory.
template <int rows = CHUNK>
static __device__ __forceinline__ void from_rows(float (*y)[4], const bf16 *X, int ld)
{
    const bf16 *row = X + ldmatrix_offset_b(threadIdx.x % 32, ld);
    #pragma unroll
    for (int c = 0; c < rows / 16; c++) {
        uint32_t r[4];
        ldmatrix_x4_trans(r, row + c * 16 * ld);
        #pragma unroll
        for (int j = 0; j < 8; j++)
            y[2 * c + j / 4][j % 4] =
                __uint_as_float(j % 2 ? r[j / 2] & 0xffff0000u : r[j / 2] << 16);
    }
}

// Stores D tiles of y^T (rows v, columns i) to rows i < len of a tensor with row stride
// `stride`. The tiles are transposed in registers so that the 16 columns of a row are
// stored together.
template <int tiles>
static __device__ __forceinline__ void store_rows(bf16 *to, int64_t stride, int len,
                                                  const float (*y)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const uint32_t low = movmatrix_trans(pack_bf16x2(y[i][0], y[i][1]));
        const uint32_t high = movmatrix_trans(pack_bf16x2(y[i][2], y[i][3]));
        if (i * 8 + g >= len) continue;
        *(uint32_t *)(to + (i * 8 + g) * stride + e) = low;
        *(uint32_t *)(to + (i * 8 + g) * stride + 8 + e) = high;
    }
}

// Loads S^T [16,K] from an fp32 state: element (v, i) is x[v * dv + i * di]. If x is
// NULL, sets S to zero.
template <int K>
static __device__ __forceinline__ void load_state(float (*S)[4], const float *x,
                                                  int64_t dv, int64_t di)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < K / 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            S[i][j] = x ? x[(g + j / 2 * 8) * dv + (i * 8 + e + j % 2) * di] : 0.0f;
}

// Sets S to columns `first` to `first` + 15 of the identity.
template <int K>
static __device__ __forceinline__ void set_identity(float (*S)[4], int first)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < K / 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            S[i][j] = first + g + j / 2 * 8 == i * 8 + e + j % 2;
}

template <int K>
static __device__ __forceinline__ void store_state(float *x, int64_t dv, int64_t di,
                                                   const float (*S)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < K / 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            x[(g + j / 2 * 8) * dv + (i * 8 + e + j % 2) * di] = S[i][j];
}

// Returns 1 if p is a multiple of 16, as 16-byte copies require.
static inline int is_aligned_16(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}
