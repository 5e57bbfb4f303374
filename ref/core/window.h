/* window.h -- the layout of a rank's window: flags, counts, pieces of states.
 *
 * Book: chapter 20, "Code: kernels".  Checked by: the chain over NCCL, bit for bit.
 * Next: ../../cuda/07_merge/hop.cuh, which reads and writes it.
 *
 * Rank r keeps for every other rank o and piece b of a state: how often o has filled
 * the piece here (full, written by o), how often o has emptied what r put there (empty,
 * written by o), and its own counts of both. Message i of a piece is in slot i % 2:
 * so o may be one message ahead, and waits before it writes a second one over it. The
 * counts live on the device, so that a graph that is replayed goes on counting. */
#ifndef KCP_WINDOW_H
#define KCP_WINDOW_H

#include "kcp.h"

enum { KCP_PIECE_COLUMNS = 16, KCP_PIECE_ROWS = 256, KCP_PIECE_PLACES = 2 };
#define KCP_PIECE_BYTES                                                               \
    ((size_t)KCP_PIECE_COLUMNS * KCP_PIECE_ROWS * KCP_PIECE_PLACES * sizeof(float))

/* Numbers for each other rank and piece, [4][R][blocks], in front of the pieces. */
enum kcp_window_count { KCP_FULL, KCP_EMPTY, KCP_FILLED, KCP_TAKEN };

/* Over windows, as one kernel, from >= 0: S <- what rank `from` has put there. to >= 0:
 * op(M) S + h is put into rank to's window; first: h alone. S [HV,K,V]. */
struct kcp_hops {
    const struct kcp_mapops *of;       /* whose arithmetic and memory it is */
    int (*hop)(int HV, int K, int V, const void *map, int backward, int first, void *S,
               const struct kcp_window *w, int from, int to, struct CUstream_st *);
    int (*blocks)(int HV, int K, int V);       /* pieces of a state; 0: not this one */
};
#ifdef __cplusplus
extern "C" {
#endif
/* Of programs with CUDA alone: cuda/07_merge/hops.cu. */
extern const struct kcp_hops cuda_hops __attribute__((weak));
#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#define KCP_ANYWHERE static __host__ __device__ inline
#else
#define KCP_ANYWHERE static inline
#endif

KCP_ANYWHERE size_t kcp_window_counts(int R, int blocks)
{
    return (sizeof(uint32_t) * 4 * (size_t)R * (size_t)blocks + 255) / 256 * 256;
}

KCP_ANYWHERE size_t kcp_window_bytes(int R, int blocks)
{
    return kcp_window_counts(R, blocks) + (size_t)R * (size_t)blocks * KCP_PIECE_BYTES;
}

KCP_ANYWHERE uint32_t *kcp_window_count(const struct kcp_window *w, int of,
                                        enum kcp_window_count what, int other, int b)
{
    return (uint32_t *)w->at[of] + ((size_t)what * w->R + other) * w->blocks + b;
}

/* The piece that rank `from` fills in the window of rank `of`, its places. */
KCP_ANYWHERE float *kcp_window_piece(const struct kcp_window *w, int of, int from,
                                     int b, uint32_t place)
{
    const size_t at = ((size_t)from * w->blocks + b) * KCP_PIECE_BYTES;
    return (float *)((char *)w->at[of] + kcp_window_counts(w->R, w->blocks) + at)
         + place % KCP_PIECE_PLACES * (KCP_PIECE_COLUMNS * KCP_PIECE_ROWS);
}

#endif
