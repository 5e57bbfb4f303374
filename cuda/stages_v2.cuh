// stages_v2.cuh -- the tensor-core kernels of the stages, for 08 and 13.
// Book: chapters 08 and 13, "Code: kernels".
// Checked by: tests/08_forward.c, tests/13_backward.c.
// Next: 08_forward/v2_stages.cu.
#ifndef KCP_STAGES_V2_CUH
#define KCP_STAGES_V2_CUH

// Each takes its stage's args struct, bf16, and returns kcp_status: KCP_NA for shapes
// that it leaves to v1.
int v2_wy(void *args);
int v2_chunk(void *args);
int v2_affine(void *args);
int v2_chunk_backward(void *args);
int v2_merge_backward(void *args);

#endif
