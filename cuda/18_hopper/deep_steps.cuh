// deep_steps.cuh -- reads which heads of a sequence have deep steps.
// Book: chapter 18b.
#ifndef KCP_DEEP_STEPS_CUH
#define KCP_DEEP_STEPS_CUH

#include "chunk_factors.cuh"

// Returns 1 if a step of head n in chunks `from` to `to` - 1 is deep (v7_by_head). All
// threads of the block call this function. Loads are from L2, because an L1 may hold
// bytes of an earlier call.
static __device__ __forceinline__ int has_deep_step(const struct forward_params &x,
                                                    int n, int from, int to)
{
    const unsigned char *at = x.deep + (int64_t)n * 2 * x.a.NC;
    int deep = 0;
    for (int i = 2 * from + threadIdx.x; i < 2 * to; i += blockDim.x)
        deep |= __ldcg(at + i);
    return __syncthreads_or(deep);
}

#endif
