/* narrowing.h -- operations of a lossy wire on numbers in host or GPU memory.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c, narrow_gpu.c.
 * Next: ../../comm/narrow.c, which calls these for what an exchange sends. */
#ifndef KCP_NARROWING_H
#define KCP_NARROWING_H

#include "kcp.h"
#include "stages.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(hidden)

/* Conversions to and from bf16 that round to nearest, ties to even: of doubles in host
 * memory, or of floats on a GPU, where the call returns once the kernels are on the
 * stream. */
struct narrowing {
    int (*narrow)(uint16_t *to, const void *from, size_t numbers, struct CUstream_st *);
    int (*widen)(void *to, const uint16_t *from, size_t numbers, struct CUstream_st *);
    /* Sets *norm to the root of the sum of squares. Waits for the stream. */
    int (*norm)(const void *of, size_t numbers, double *norm, struct CUstream_st *);
};
extern const struct narrowing host_narrowing;              /* comm/narrow.c */
/* cuda/host/narrow.cu; its address is NULL in a build without CUDA. */
extern const struct narrowing cuda_narrowing __attribute__((weak));

/* Computes bound [NS] as kcp_decay_bound does, from the raw inputs of a forward or a
 * backward on a GPU. Waits for the stream; work is scratch. KCP_NA: a graph captures
 * the stream. KCP_BAD: work is too short. cuda/host/bound.cu. */
int cuda_decay_bound(const struct kcp_forward *a, enum kcp_storage storage,
                     double *bound) __attribute__((weak));

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
