// stages_v2.cuh -- the tensor-core kernels of the stages, for 08 and 13.
// Book: chapters 08 and 13, "Code: kernels".
// Checked by: tests/08_forward/checks.c, tests/13_backward/checks.c.
// Next: ../08_forward/v2_stages.cu.
#ifndef KCP_STAGES_V2_CUH
#define KCP_STAGES_V2_CUH

#include "cuda/tile/device.cuh"
#include "stages_v1.cuh"
#include "stages_v3.cuh"

// Each takes its stage's args struct, bf16, and returns kcp_status: KCP_NA for shapes
// that it leaves to v1.
int v2_gate(void *args);
int v2_wy(void *args);
int v2_chunk(void *args);
int v2_affine(void *args);
int v2_chunk_backward(void *args);
int v2_merge_backward(void *args);
int v3_wy_backward(void *args);
size_t v3_wy_backward_work(const void *args);

template <int (*best)(void *), int (*any)(void *)>
static int first_of(void *args)
{
    const int status = best(args);
    return status == KCP_NA ? any(args) : status;
}

static inline size_t wy_backward_work(const void *args)
{
    const size_t best = v3_wy_backward_work(args), any = v1_wy_backward_work(args);
    return best > any ? best : any;
}

static inline struct stages stages_v2(const char *name)
{
    struct stages t = stages_v1<bf16>(name);
    t.gate = first_of<v2_gate, v1_gate<bf16>>;
    t.wy = first_of<v2_wy, v1_wy<bf16>>;
    t.chunk = first_of<v2_chunk, v1_chunk<bf16>>;
    t.affine = first_of<v2_affine, v1_affine<bf16>>;
    t.chunk_backward = first_of<v2_chunk_backward, v1_chunk_backward<bf16>>;
    t.merge_backward = first_of<v2_merge_backward, v1_merge_backward<bf16>>;
    t.wy_backward = first_of<v3_wy_backward, v1_wy_backward<bf16>>;
    t.wy_backward_work = wy_backward_work;
#ifdef KCP_HOPPER
    t.chunk = first_of<v4_chunk,
                       first_of<v3_chunk, first_of<v2_chunk, v1_chunk<bf16>>>>;
    t.chunk_backward = first_of<
        v3_chunk_backward, first_of<v2_chunk_backward, v1_chunk_backward<bf16>>>;
    t.affine = first_of<v3_affine, first_of<v2_affine, v1_affine<bf16>>>;
    t.merge_backward = first_of<v3_merge_backward,
                                first_of<v2_merge_backward, v1_merge_backward<bf16>>>;
#endif
    return t;
}

#endif
