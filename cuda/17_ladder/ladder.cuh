// ladder.cuh -- shared by the rungs (the kernels v1 to v8): sizes, state, operand A.
// Book: chapter 17.
#pragma once

#include "cuda/tile/pipeline.cuh"

// Returns whether rungs 2 to 8 support the call: aligned arrays, and K = V = DIM and
// CHUNK tokens per chunk, so that the compiler can keep a state in registers.
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

//> pack-a
// Rounds two adjacent D fragments to bf16, and packs them as a 16 x 16 operand A.
static __device__ __forceinline__ void pack_a(uint32_t *a, const float (*d)[4])
{
    a[0] = pack_bf16x2(d[0][0], d[0][1]);
    a[1] = pack_bf16x2(d[0][2], d[0][3]);
    a[2] = pack_bf16x2(d[1][0], d[1][1]);
    a[3] = pack_bf16x2(d[1][2], d[1][3]);
}
//< pack-a
