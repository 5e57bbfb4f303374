// hop.cuh -- a step of the exchange algorithm `chain`: waits, applies a map, sends.
// Book: chapter 20, "Code: kernels".
#ifndef KCP_HOP_CUH
#define KCP_HOP_CUH

#include "cuda/host/split_sequence_fold.cuh"
#include "cuda/tile/peer_flag.cuh"
#include "core/window.h"

// One step of the exchange algorithm `chain` on one rank. State S comes from rank
// `from` (-1: S is local). Rank `to` (-1: none) receives op(M) S + h, or h if `first`
// is set, where op(M) is M in forward and M^T in backward.
struct hop {
    int K, V, backward, first, from, to;
    const float *maps;
    float *S;
    struct kcp_window w;
};

// Returns the address of a counter of this block's piece: 16 columns of a head's state.
// Blocks do not synchronize, so one piece can be in flight while another is computed.
static __device__ __forceinline__ uint32_t *hop_count(const struct hop &x, int of,
                                                      enum kcp_window_count what,
                                                      int other)
{
    const int b = blockIdx.y * gridDim.x + blockIdx.x;
    return kcp_window_count(&x.w, of, what, other, b);
}

static __device__ __forceinline__ float *hop_piece(const struct hop &x, int of,
                                                   int from, uint32_t place)
{
    const int b = blockIdx.y * gridDim.x + blockIdx.x;
    return kcp_window_piece(&x.w, of, from, b, place);
}

// Waits for piece number `taken` (16 columns of a head). Returns the piece's address,
// or NULL if the exchange was aborted.
static __device__ __forceinline__ const float *hop_wait(const struct hop &x,
                                                        uint32_t taken)
{
    __shared__ int here;
    if (threadIdx.x == 0)
        here = peer_flag_wait(hop_count(x, x.w.r, KCP_FULL, x.from), taken + 1,
                              x.w.lost);
    __syncthreads();
    return here ? hop_piece(x, x.w.r, x.from, taken) : NULL;
}

// Reports that all threads have read 16 columns, which rank `from` may then overwrite.
static __device__ __forceinline__ void hop_taken(const struct hop &x, uint32_t taken)
{
    __syncthreads();
    if (threadIdx.x) return;
    *hop_count(x, x.w.r, KCP_TAKEN, x.from) = taken + 1;
    peer_flag_raise(hop_count(x, x.from, KCP_EMPTY, x.w.r), taken + 1);
}

// Waits until the next rank has read the earlier piece that uses the same bytes as
// piece number `filled`. Returns the address of these bytes in the next rank's window
// (memory that this rank may write), or NULL if the exchange was aborted.
static __device__ __forceinline__ float *hop_place(const struct hop &x, uint32_t filled)
{
    __shared__ int free;
    if (threadIdx.x == 0)
        free = peer_flag_wait(hop_count(x, x.w.r, KCP_EMPTY, x.to),
                              filled + 1 - KCP_PIECE_PLACES, x.w.lost);
    __syncthreads();
    return free ? hop_piece(x, x.to, x.w.r, filled) : NULL;
}

static __device__ __forceinline__ void hop_filled(const struct hop &x, uint32_t filled)
{
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence_system();
    *hop_count(x, x.w.r, KCP_FILLED, x.to) = filled + 1;
    peer_flag_raise(hop_count(x, x.to, KCP_FULL, x.w.r), filled + 1);
}

// Loads n numbers of a row, 16 bytes at a time. If `ldcg` is 1, the load bypasses L1,
// because another GPU wrote the numbers.
template <int n, int ldcg>
static __device__ __forceinline__ void hop_load(float *x, const float *from)
{
    #pragma unroll
    for (int c = 0; c < n; c += 4) {
        const float4 *at = (const float4 *)(from + c);
        const float4 y = ldcg ? __ldcg(at) : *at;
        x[c] = y.x;
        x[c + 1] = y.y;
        x[c + 2] = y.z;
        x[c + 3] = y.w;
    }
}

template <int n>
static __device__ __forceinline__ void hop_store(float *to, const float *x)
{
    #pragma unroll
    for (int c = 0; c < n; c += 4)
        *(float4 *)(to + c) = make_float4(x[c], x[c + 1], x[c + 2], x[c + 3]);
}

// Stores a piece [K,COLS] from shared memory to the next rank's window (receive
// buffer). Each warp stores 512 contiguous bytes.
template <int K, int COLS>
static __device__ __forceinline__ void hop_put(float *to, struct fold<K, COLS> &s)
{
    __syncthreads();
    #pragma unroll
    for (int at = threadIdx.x; at < K * COLS / 4; at += FOLD_THREADS) {
        const float *row = fold_row(s, 1, at / (COLS / 4));
        ((float4 *)to)[at] = *(const float4 *)(row + at % (COLS / 4) * 4);
    }
}

// Bound: 4 K V bytes per head on the link, and the latency of a flag between GPUs. A
// block computes 16 columns of a head. A thread multiplies a part of one row of M by
// these columns, as in fold_once. M and h are loaded before the wait for S. Besides the
// barriers of the waits, there are four: after the received piece is read, after M and
// S are stored, after the sums are stored, and after the next rank's piece is written.
template <int K>
static __global__ __launch_bounds__(FOLD_THREADS) void hop_columns(const struct hop x)
{
    enum { COLS = KCP_PIECE_COLUMNS, PARTS = fold<K, COLS>::PARTS,
           OUT = fold<K, COLS>::OUT };
    extern __shared__ __align__(16) unsigned char of_fold[];
    struct fold<K, COLS> &s = *(struct fold<K, COLS> *)of_fold;
    const int VK = x.V + K, lane = threadIdx.x % 32, rows = 32 / PARTS;
    const int part = lane / rows, row = threadIdx.x / 32 * rows + lane % rows;
    const int v = blockIdx.y * COLS + part * OUT;
    const float *map = x.maps + (int64_t)blockIdx.x * K * VK;
    float *S = x.S + ((int64_t)blockIdx.x * K + row) * x.V + v;
    float4 next[fold<K, COLS>::PIECES];
    float y[OUT] = {}, sum[COLS] = {}, state[OUT];
    uint32_t taken = 0, filled = 0;

    if (x.from >= 0) taken = *hop_count(x, x.w.r, KCP_TAKEN, x.from);
    if (x.to >= 0) {
        filled = *hop_count(x, x.w.r, KCP_FILLED, x.to);
        hop_load<OUT, 0>(y, map + row * VK + v);
        if (!x.first) {
            fold_read<K, COLS>(next, map + x.V, VK);
            fold_put(s, next);
        }
    }
    float *to = x.to >= 0 ? hop_place(x, filled) : NULL;
    if (x.from >= 0) {
        const float *from = hop_wait(x, taken);
        if (!from) return;
        from += row * COLS + part * OUT;
        hop_load<OUT, 1>(state, from);
        hop_store<OUT>(S, state);
        hop_taken(x, taken);
    } else if (!x.first)
        hop_load<OUT, 0>(state, S);
    if (!to) return;
    if (!x.first) {
        for (int c = 0; c < OUT; c++) fold_row(s, 0, row)[part * OUT + c] = state[c];
        __syncthreads();
        if (x.backward) fold_times<K, COLS, 1>(sum, s, 0, row, part);
        else fold_times<K, COLS, 0>(sum, s, 0, row, part);
    }
    for (int c = 0; c < OUT; c++) y[c] += sum[c];
    hop_store<OUT>(fold_row(s, 1, row) + part * OUT, y);
    hop_put(to, s);
    hop_filled(x, filled);
}

// Computes this step of `chain` for any K up to 256 and any V. A thread computes every
// ROWS-th element of one column.
static __global__ __launch_bounds__(FOLD_THREADS) void hop_plain(const struct hop x)
{
    enum { COLS = KCP_PIECE_COLUMNS, ROWS = FOLD_THREADS / COLS };
    __shared__ float s[KCP_PIECE_ROWS][COLS];
    const int c = threadIdx.x % COLS, v = blockIdx.y * COLS + c, VK = x.V + x.K;
    const int first_row = threadIdx.x / COLS, n = blockIdx.x;
    const float *map = x.maps + (int64_t)n * x.K * VK;
    float *S = x.S + (int64_t)n * x.K * x.V + v;
    uint32_t taken = 0, filled = 0;

    if (x.from >= 0) taken = *hop_count(x, x.w.r, KCP_TAKEN, x.from);
    if (x.to >= 0) filled = *hop_count(x, x.w.r, KCP_FILLED, x.to);
    float *to = x.to >= 0 ? hop_place(x, filled) : NULL;
    const float *from = x.from >= 0 ? hop_wait(x, taken) : NULL;
    if (x.from >= 0 && !from) return;
    for (int i = first_row; i < x.K && v < x.V; i += ROWS) {
        if (from) S[i * x.V] = __ldcg(from + i * COLS + c);
        if (!x.first) s[i][c] = S[i * x.V];
    }
    if (from) hop_taken(x, taken);
    __syncthreads();
    if (!to) return;
    for (int i = first_row; i < x.K && v < x.V; i += ROWS) {
        float y = map[i * VK + v];
        for (int p = 0; p < x.K && !x.first; p++)
            y += (x.backward ? map[p * VK + x.V + i] : map[i * VK + x.V + p]) * s[p][c];
        to[i * COLS + c] = y;
    }
    hop_filled(x, filled);
}

static inline int hop_blocks(int HV, int K, int V)
{
    const int columns = (V + KCP_PIECE_COLUMNS - 1) / KCP_PIECE_COLUMNS;
    return K <= KCP_PIECE_ROWS ? HV * columns : 0;
}

template <int K>
static inline int launch_hop(int HV, const struct hop *x, struct CUstream_st *stream)
{
    const size_t bytes = sizeof(struct fold<K, KCP_PIECE_COLUMNS>);
    cudaFuncSetAttribute(hop_columns<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    hop_columns<K><<<dim3(HV, x->V / KCP_PIECE_COLUMNS), FOLD_THREADS, bytes, stream>>>(
        *x);
    return launched();
}

static int hop(int HV, int K, int V, const void *map, int backward, int first, void *S,
               const struct kcp_window *w, int from, int to, struct CUstream_st *stream)
{
    const struct hop x = { K, V, backward, first, from, to, (const float *)map,
                           (float *)S, *w };
    const int fits =
        V % KCP_PIECE_COLUMNS == 0 && is_aligned_16(map) && is_aligned_16(S);
    if (hop_blocks(HV, K, V) > w->blocks) return KCP_NA;
    if (fits && K == 128) return launch_hop<128>(HV, &x, stream);
    if (fits && K == 64) return launch_hop<64>(HV, &x, stream);
    const int columns = (V + KCP_PIECE_COLUMNS - 1) / KCP_PIECE_COLUMNS;
    if (HV && V) hop_plain<<<dim3(HV, columns), FOLD_THREADS, 0, stream>>>(x);
    return launched();
}

#endif
