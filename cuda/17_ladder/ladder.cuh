// ladder.cuh -- shared by the rungs (the kernels v1 to v8): sizes and rows of a head.
// Book: chapter 17.  Checked by: every rung.  Next: v1_thread.cu.
#ifndef KCP_LADDER_CUH
#define KCP_LADDER_CUH

#include "cuda/tile/pipeline.cuh"

// Returns whether the shape is supported. Rungs 2 to 8 need K = V = DIM and CHUNK
// tokens per chunk, so that the compiler can keep a state in registers.
static inline int ladder_takes(const struct kcp_ladder *a)
{
    const void *p[] = { a->u, a->w, a->kg, a->decay, a->v_new };
    for (const void *x : p)
        if (!is_aligned_16(x)) return 0;
    return a->K == DIM && a->V == DIM && a->C == CHUNK;
}

// Returns the element offset of the fp32 state [K,V] of stretch s and head n. A stretch
// is a local token range of one sequence.
static __device__ __forceinline__ int64_t state_at(const struct kcp_ladder &a, int s,
                                                   int n)
{
    return ((int64_t)s * a.HV + n) * a.K * a.V;
}

#endif
