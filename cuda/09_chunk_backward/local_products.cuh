// local_products.cuh -- the products of the chunk-local part, by warps.
// Book: chapter T, "Whole rows".
#pragma once

#include "cuda/tile/warp_scan.cuh"

// Shared memory for V columns of dO and v_new of a chunk.
template <int V>
struct locals {
    bf16 dO[CHUNK][V + PAD], v_new[CHUNK][V + PAD], Aqk[CHUNK][CHUNK + PAD];
};

// Computes d [16,16 N], the part of tril(Aqk)^T dO that starts at row j0 and column v0,
// as sums over rows i >= j0.
template <int V, int N>
static __device__ void inner(const struct locals<V> &s, int j0, int v0, float (*d)[4])
{
    const int lane = threadIdx.x % 32;
    for (int i = j0; i < CHUNK; i += 16) {
        uint32_t a[4], b[4];
        ldmatrix_x4_trans(a, &s.Aqk[i][j0] + ldmatrix_offset_b(lane, CHUNK + PAD));
        #pragma unroll
        for (int v = 0; v < N; v++) {
            ldmatrix_x4_trans(b,
                              &s.dO[i][v0 + v * 16] + ldmatrix_offset_a(lane, V + PAD));
            mma_m16n16k16(d + 2 * v, a, b);
        }
    }
}

// Adds to d [16,16 N] the part of dO v_new^T from row i0 and column j0 (0 if j0 > i0).
template <int V, int N>
static __device__ void outer(const struct locals<V> &s, int i0, int j0, float (*d)[4])
{
    const int lane = threadIdx.x % 32;
    for (int v = 0; v < V && j0 <= i0; v += 16) {
        uint32_t a[4], b[4];
        ldmatrix_x4(a, &s.dO[i0][v] + ldmatrix_offset_a(lane, V + PAD));
        #pragma unroll
        for (int j = 0; j < N; j++) {
            ldmatrix_x4(b, &s.v_new[j0 + j * 16][v] + ldmatrix_offset_b(lane, V + PAD));
            mma_m16n16k16(d + 2 * j, a, b);
        }
    }
}
