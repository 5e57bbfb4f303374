/* moves.h -- the tables of functions by which ref/ calls comm/ and cuda/.
 * Book: chapter 07.
 *
 * Constructors of comm/ and cuda/ set the pointers before main() starts, so ref/ names
 * nothing of these folders. If a folder is not linked, its pointer is NULL. Then
 * kcp_begin rejects stages with ranks, or no GPU is found. */
#pragma once

#include "kcp.h"

/* comm.h describes each member NAME but `agree` as kcp_NAME. */
struct moves {
    int (*exchange_run)(const struct kcp_exchange *x);
    size_t (*exchange_work)(const struct kcp_exchange *x);
    size_t (*exchange_kept)(const struct kcp_exchange *x);
    int64_t (*halo_rows)(const struct kcp_halo *h, int r);
    int64_t (*halo_at)(const struct kcp_halo *h, int r, int s);
    int (*halo_run)(const struct kcp_halo *h, const void *x, void *halo);
    int (*halo_states)(const struct kcp_halo *h, void *states);
    int (*parameter_sum)(const struct kcp_call *c, const double *part, int64_t n,
                         double *sum);
    /* comm/agree.c: compares the calls of all ranks. If two ranks' calls differ,
     * returns KCP_MISMATCH on every rank, and kcp_why() names this value. */
    int (*agree)(const struct kcp_stage *stage, const void *args);
};
struct kcp_device;
struct gpu {
    int (*device_here)(struct kcp_device *d);  /* core/paths.h: kcp_device_here */
    const struct kcp_mapops *mapops;
};
struct kcp_launch;
/* cuda/host/split.h describes kcp_launch_of. Programs without a GPU have this function
 * too, because kcp-check --paths prints launches. */
typedef struct kcp_launch gpu_launch(const struct kcp_call *call,
                                     const struct kcp_device *d);

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(hidden)
extern const struct moves *kcp_moves;
extern const struct gpu *kcp_gpu;
extern gpu_launch *kcp_gpu_launch;
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
