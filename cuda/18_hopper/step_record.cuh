// step_record.cuh -- what the one-kernel forward saves per step for its backward.
// Book: chapter 18c, "One kernel".
#ifndef KCP_STEP_RECORD_CUH
#define KCP_STEP_RECORD_CUH

#include "core/records.h"

// Returns the byte offset of element (i, v). `i`: key row of `state`, or token of `w`.
static __device__ __forceinline__ int core_offset(int i, int v)
{
    return ((i / 8 * 16 + v / 8) * 8 + v % 8) * 16 + i % 8 * 2;
}

// Returns the byte offset, in a triangle, of row i, columns 8 * piece to 8 * piece + 7.
static __device__ __forceinline__ int triangle64_offset(int i, int piece)
{
    return i * 64 + ((piece ^ (i >> 1 & 3)) << 4);
}

#endif
