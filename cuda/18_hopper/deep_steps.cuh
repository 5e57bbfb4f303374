// deep_steps.cuh -- which heads of a sequence the kernels of chunks compute.
// Book: chapter 18b.
#pragma once

#include "cuda/tile/launch.cuh"

// Returns 1 if value head n of the rank's sequence s is deep (v7_by_head): a value head
// of its query/key head has a deep step, because backward sums dq and dk over these
// heads, or more than a quarter of the query/key heads have one, because then both
// groups of kernels together take longer than the kernels of chunks alone. `x` has the
// call `a` and the bytes `deep`. All threads of the block call this function. Loads are
// from L2, because an L1 may hold bytes of an earlier call.
template <class Params>
static __device__ __forceinline__ int is_deep(const Params &x, int s, int n)
{
    const int H = x.a.H;
    const int head = n / (x.a.HV / H);
    const unsigned char *of = x.deep + (int64_t)s * H;
    int count = 0;
    for (int i = 0; i < H; i += blockDim.x)
        count += __syncthreads_count(i + (int)threadIdx.x < H
                                     && __ldcg(of + i + threadIdx.x));
    return 4 * count > H || __ldcg(of + head);
}

// The last block of each dependent kernel waits for the preceding kernel, so a kernel
// that waits for its predecessor waits for all earlier kernels, too.
static __device__ __forceinline__ void last_block_waits(void)
{
    if (blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y)
        griddepcontrol_wait();
}
