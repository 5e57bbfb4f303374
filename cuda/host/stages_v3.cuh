// stages_v3.cuh -- the warpgroup kernels of the stages (sm_90a).
// Book: chapter 08, "Code: kernels".
#pragma once

#include "cuda/tile/launch_shared.cuh"

// These bf16 functions return KCP_NA for shapes that only v2 supports.
int v3_affine(void *args);
int v4_affine(void *args);
int v3_merge_backward(void *args);
int v4_merge_backward(void *args);
int v4_chunk(void *args);
int v5_chunk(void *args);
int v3_chunk_backward(void *args);
int v4_chunk_backward(void *args);

// Implements `compose` of struct kcp_mapops. Returns KCP_NA for unsupported shapes.
int v2_compose(int HV, int K, int V, const void *b, const void *a, int backward,
               int a_first, void *out, struct CUstream_st *stream);
