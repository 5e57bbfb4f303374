/* memory.h -- arrays of a trial or of kcp-run: in host memory or in GPU memory.
 * Book: CONTRIBUTING.md, "How the judge works". */
#pragma once

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif

struct memory {
    const char *name;
    void *(*alloc)(size_t);
    void  (*free)(void *);
    int   (*copy)(void *to, const void *from, size_t n);
    int   (*sync)(void);
    int   (*threads_run)(int R, int (*body)(struct kcp_comm *, void *), void *arg,
                         char *why, size_t n);
    const struct kcp_mapops *mapops;
    int   (*gpu)(int i);                      /* selects GPU i for this thread */
    int   (*fill)(void *p, int byte, size_t n);
    struct CUstream_st *(*stream)(void);      /* new non-blocking stream; host: NULL */
    void  (*end_stream)(struct CUstream_st *);
    int   (*fill_soon)(void *p, int byte, size_t n);      /* done at the next sync */
    int   (*copy_soon)(void *to, const void *from, size_t n);
    int   (*copy_ends)(void *to, const void *from, size_t n, size_t apart);
    int   is_far;                             /* 1: a copy is slow to start (GPU) */
};
const struct memory *device_memory(void);     /* NULL without a GPU or without CUDA */

/* If bare_workspaces = 1, memory is not initialized, as initcheck requires. Each array
 * is surrounded by fence_bytes bytes: 256, or 0 with --exact. If bare_workspaces = 1 or
 * fence_bytes = 0, no block is kept for reuse. */
extern int bare_workspaces;
extern size_t fence_bytes;

/* blocks_alloc returns n bytes on the calling thread's GPU, or NULL if out of memory.
 * If is_kept = 1, the bytes may be those of a released block, and contain an earlier
 * array. Before blocks_release, the caller must synchronize with the block's GPU. */
void *blocks_alloc(size_t n, int is_kept);
void blocks_release(void *p);

/* With --in-turn, only one rank uses the GPU at a time. Code that uses the GPU, such as
 * a copy between two ranks, calls turn_begin before and turn_end after. */
extern int ranks_in_turn;
void turn_begin(void);
void turn_end(void);

#ifdef __cplusplus
}
#endif
