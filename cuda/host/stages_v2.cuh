// stages_v2.cuh -- the tensor-core kernels of the stages, by name.
// Book: chapters 08 and 13, "Code: kernels".
#pragma once

#include "cuda/tile/device.cuh"
#include "stages_v1.cuh"
#include "stages_v3.cuh"

// Each function takes its stage's args struct and returns a kcp_status, which is KCP_NA
// for unsupported shapes. The storage type is bf16.
int v2_gate(void *args);
int v2_wy(void *args);
int v2_chunk(void *args);
int v2_affine(void *args);
int v2_chunk_backward(void *args);
int v2_merge_backward(void *args);
int v3_wy_backward(void *args);
size_t v3_wy_backward_work(const void *args);

static const struct stage_kernel stage_kernels[] = {
    { "02", "v2_vector", v2_gate, v1_gate_work },
    { "03", "v2_halves", v2_wy, NULL },
    { "04", "v2_warp", v2_chunk, NULL },
    { "05", "v2_pieces", v2_affine, NULL },
    { "09", "v2_warp", v2_chunk_backward, NULL },
    { "10", "v3_split", v3_wy_backward, v3_wy_backward_work },
    { "10", "v1_column", v1_wy_backward<bf16>, v1_wy_backward_work },
    { "11", "v2_pieces", v2_merge_backward, NULL },
#ifdef KCP_HOPPER
    { "04", "v4_rows_sm90", v4_chunk, NULL },
    { "04", "v5_wide_sm90", v5_chunk, NULL },
    { "05", "v3_group_sm90", v3_affine, NULL },
    { "05", "v4_wide_sm90", v4_affine, NULL },
    { "09", "v3_rows_sm90", v3_chunk_backward, NULL },
    { "09", "v4_wide_sm90", v4_chunk_backward, NULL },
    { "11", "v3_group_sm90", v3_merge_backward, NULL },
    { "11", "v4_wide_sm90", v4_merge_backward, NULL },
#endif
};

// The kernels of storage float.
int v2_wy_f32(void *args);
int v2_chunk_f32(void *args);
int v2_affine_f32(void *args);
int v2_chunk_backward_f32(void *args);
int v2_wy_backward_f32(void *args);
int v2_merge_backward_f32(void *args);

static inline struct stages stages_v2_f32(const char *stage, const void *args)
{
    static const struct stage_kernel list[] = {
        { "02", "v1_walk_f32", v1_gate<float>, v1_gate_work },
        { "03", "v2_tiles_f32", v2_wy_f32, NULL },
        { "04", "v2_tiles_f32", v2_chunk_f32, NULL },
        { "05", "v2_tiles_f32", v2_affine_f32, NULL },
        { "09", "v2_tiles_f32", v2_chunk_backward_f32, NULL },
        { "10", "v2_tiles_f32", v2_wy_backward_f32, NULL },
        { "11", "v2_tiles_f32", v2_merge_backward_f32, NULL },
    };
    return stages_of_row(stage, "v2_stages_f32", KCP_F32, args, list);
}

static inline struct stages stages_v2(const char *stage, const char *kernel,
                                      const void *args)
{
    return stages_of_row(stage, kernel, KCP_BF16, args, stage_kernels);
}
