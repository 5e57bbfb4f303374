// step_record.cuh -- what the one-kernel forward saves per step for its backward.
// Book: chapter 18c, "One kernel".
#pragma once

#include "core/records.h"

static_assert(KCP_ODD_RECORD + sizeof(struct step_record) <= KCP_CHUNK_SLOT
                  && KCP_ODD_RECORD + offsetof(struct step_record, w)
                         == sizeof(struct step_record),
              "the parts of a chunk's two records must not overlap");

// Returns the byte offset of element (i, v). `i`: key row of `state`, or token of `w`.
static __device__ __forceinline__ int core_offset(int i, int v)
{
    return ((i / 8 * 16 + v / 8) * 8 + v % 8) * 16 + i % 8 * 2;
}

// Returns the record of step `step` (2 c + j) of value head n. In format "by_head" the
// member `state` of odd steps is not there: see step_state_at.
template <int by_head>
static __device__ __forceinline__ unsigned char *step_record_at(const void *records,
                                                                int step, int HV, int n)
{
    if (!by_head)
        return (unsigned char *)((struct step_record *)records
                                 + ((int64_t)step * HV + n));
    const unsigned chunk = (unsigned)step / 2, odd = (unsigned)step % 2;
    return (unsigned char *)records + (int64_t)(chunk * HV + n) * KCP_CHUNK_SLOT
           + odd * KCP_ODD_RECORD;
}

// Returns the state of a step, with `states` of format "by_head".
template <int by_head>
static __device__ __forceinline__ unsigned char *step_state_at(const void *records,
                                                               const void *states,
                                                               int step, int HV, int n)
{
    if (by_head && step & 1)
        return (unsigned char *)states + (int64_t)((unsigned)step / 2 * HV + n) * 32768;
    return step_record_at<by_head>(records, step, HV, n);
}

// Returns the byte offset, in a triangle, of row i, columns 8 * piece to 8 * piece + 7.
static __device__ __forceinline__ int triangle64_offset(int i, int piece)
{
    return i * 64 + ((piece ^ (i >> 1 & 3)) << 4);
}
