// ladder_wgmma.cuh -- a chunk's two products on a warpgroup, for rungs 7 and 8.
// Book: chapter 17, "A warpgroup".
#pragma once

#include "ladder.cuh"
#include "cuda/tile/warpgroup_scan.cuh"

//> wgmma-products
// Issues y^T [64,64] = S^T w^T. Rows of w are columns of B, 16 channels per step.
static __device__ __forceinline__ void wgmma_times_w(float (*y)[4], uint32_t (*a)[4],
                                                     const float (*S)[4],
                                                     const bf16 *w)
{
    #pragma unroll
    for (int i = 0; i < DIM / 16; i++) pack_a(a[i], S + 2 * i);
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < DIM / 16; i++)
        wgmma_m64n64k16_rs<0>(y, a[i],
                              smem_desc_k_major(w) + i / 4 * DESC_NEXT_TILE
                                  + i % 4 * DESC_STEP_K_MAJOR, i);
    wgmma_commit();
}

// Issues S^T [64,128] += x^T kg. Rows of kg are rows of B, 16 tokens per step.
static __device__ __forceinline__ void wgmma_add_kg(float (*S)[4], uint32_t (*a)[4],
                                                    const float (*x)[4],
                                                    const bf16 *kg)
{
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) pack_a(a[c], x + 2 * c);
    wgmma_fence();
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++)
        wgmma_m64n128k16_rs<1>(S, a[c],
                               smem_desc_mn_major(kg) + c * DESC_STEP_MN_MAJOR);
    wgmma_commit();
}
//< wgmma-products
