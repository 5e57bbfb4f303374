/* narrowing.h -- conversion to bf16, and norms, for a lossy communicator.
 *
 * Book: chapter 20.
 * Checked by: tests/20_clusters/wire.c, tests/20_clusters/narrow_gpu.c.
 * Next: ../../comm/narrow.c, which rounds messages. */
#ifndef KCP_NARROWING_H
#define KCP_NARROWING_H

#include "kcp.h"
#include "stages.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(hidden)

/* `narrow` rounds to bf16, to nearest, ties to even; `widen` converts back. Numbers are
 * doubles in host memory or floats on a GPU. On a GPU, calls return once the kernels
 * are on the stream. */
struct narrowing {
    int (*narrow)(uint16_t *to, const void *from, size_t numbers, struct CUstream_st *);
    int (*widen)(void *to, const uint16_t *from, size_t numbers, struct CUstream_st *);
    /* Sets *norm to the square root of the sum of squares. Waits for the stream. */
    int (*norm)(const void *of, size_t numbers, double *norm, struct CUstream_st *);
};
extern const struct narrowing host_narrowing;              /* comm/narrow.c */
/* Defined in cuda/host/narrow.cu; the address is NULL in a build without CUDA. */
extern const struct narrowing cuda_narrowing __attribute__((weak));

/* Computes bound [NS] as kcp_decay_bound does, from the raw inputs of stage 08 or 13 on
 * a GPU. Waits for the stream; uses a->work as scratch. Returns KCP_NA if a graph
 * captures the stream, KCP_BAD if work is too short. Defined in cuda/host/bound.cu. */
int cuda_decay_bound(const struct kcp_forward *a, enum kcp_storage storage,
                     double *bound) __attribute__((weak));

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
