/* window.h -- the layout of a window, which is GPU memory that other ranks write.
 *
 * Book: chapter 20, "Code: kernels".
 *
 * In the window of rank r, every other rank o fills separate pieces b (parts of a
 * state). Per o and b, rank o writes the first two counts and rank r the last two:
 *   KCP_FULL     how often o has filled o's piece b in r's window
 *   KCP_EMPTY    how often o has emptied r's piece b in o's window
 *   KCP_FILLED   how often r has filled r's piece b in o's window
 *   KCP_TAKEN    how often r has emptied o's piece b in r's window
 *
 * A piece has two slots (buffers). Message i uses slot i % 2, so the sender may be one
 * message ahead. The counts are in GPU memory, so that graph replays go on counting. */
#ifndef KCP_WINDOW_H
#define KCP_WINDOW_H

#include "kcp.h"

enum { KCP_PIECE_COLUMNS = 16, KCP_PIECE_ROWS = 256, KCP_PIECE_PLACES = 2 };
#define KCP_PIECE_BYTES                                                               \
    ((size_t)KCP_PIECE_COLUMNS * KCP_PIECE_ROWS * KCP_PIECE_PLACES * sizeof(float))

/* Indices of the counts [4][R][blocks], which are stored before the pieces. */
enum kcp_window_count { KCP_FULL, KCP_EMPTY, KCP_FILLED, KCP_TAKEN };

/* `hop` launches one kernel. If from >= 0, the kernel sets S [HV,K,V] to the message of
 * rank `from`. If to >= 0, the kernel writes M S + h_ext (backward: M^T S + h_ext), or
 * h_ext if `first` is 1, into the window of rank `to`. `map` is [h_ext | M]. */
struct kcp_hops {
    const struct kcp_mapops *of;       /* the map operations that `hop` uses */
    int (*hop)(int HV, int K, int V, const void *map, int backward, int first, void *S,
               const struct kcp_window *w, int from, int to, struct CUstream_st *);
    int (*blocks)(int HV, int K, int V);       /* pieces; 0: not supported */
};

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

/* Returns piece b of rank `of`'s window, the part that rank number `from` fills. */
KCP_ANYWHERE float *kcp_window_piece(const struct kcp_window *w, int of, int from,
                                     int b, uint32_t place)
{
    const size_t at = ((size_t)from * w->blocks + b) * KCP_PIECE_BYTES;
    return (float *)((char *)w->at[of] + kcp_window_counts(w->R, w->blocks) + at)
         + place % KCP_PIECE_PLACES * (KCP_PIECE_COLUMNS * KCP_PIECE_ROWS);
}

#endif
