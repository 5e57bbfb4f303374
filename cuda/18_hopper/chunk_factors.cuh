// chunk_factors.cuh -- chunk factors, which chunk_prepare writes and the scan reads.
// Book: chapter 18.
#pragma once

#include "cuda/tile/cluster.cuh"
#include "cuda/tile/launch.cuh"
#include "cuda/tile/registers.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warp.cuh"
#include "cuda/tile/wgmma.cuh"
#include "cuda/tile/warp_scan.cuh"

// The forward has two kernels. `chunk_prepare` converts a chunk's rows into factors.
// The scan reads the factors of a head chunk by chunk, and keeps the state S in
// registers. With G, the sum of log2 decays from the chunk's start to a row,
//     k~ = exp2(G) k, qg = exp2(G) q, kg = exp2(G_last - G) k, A = (I + L)^-1,
//     L_ij = beta_i k~_i . exp2(-G_j) k_j for j < i, v_new = A beta (v - k~ S),
//     Aqk_ij = scale qg_i . exp2(-G_j) k_j for j <= i.
// v_new is u - w S of chapter 03, but chunk_prepare neither reads v nor stores u and w.
// With KDA (one gate per channel), the kernels move these bytes per token and head:
//
//   chunk_prepare  reads q, k, g: 6K;  writes k~, qg, kg, A beta, Aqk: 6K + 2.5C
//   scan           reads the factors and v: 6K + 2.5C + 2V;  writes o: 2V
//
// With 8K / C for the decay, the sum is 3152 bytes at K = V = 128. For 8192 tokens of
// 96 heads this traffic takes 0.58 ms at 4.3 TB/s.
//
// A chunk's factors, swizzle128 tiles (cuda/tile/swizzle.cuh) and the triangles A beta
// and Aqk, are contiguous and in wgmma's byte order, so that few bulk copies load a
// chunk. Global memory holds only the ten 16x16 blocks on and below a triangle's
// diagonal (5 KiB instead of 8), by block columns. Block column J has rows 16 J to 63,
// 32 bytes each, in wgmma's 32-byte swizzle. In shared memory the other blocks are 0.
enum { TRIANGLE_BYTES = 10 * 512 };

static __device__ __forceinline__ int triangle_column(int J)
{
    return 2048 * J - 256 * J * (J - 1);
}

// Returns the byte offset, in a triangle, of row i, columns 8 * piece to 8 * piece + 7.
static __device__ __forceinline__ int triangle_offset(int i, int piece)
{
    const int J = piece / 2, row = i - 16 * J;
    return triangle_column(J) + row * 32 + ((piece ^ row / 4) % 2 << 4);
}

template <int K>
struct chunk_factors {
    unsigned char k[K / 64][TILE_BYTES]; // -k~, columns 64 j to 64 j + 63 in tile j
    unsigned char Ab[TRIANGLE_BYTES];    // A diag(beta)
    unsigned char kg[K / 64][TILE_BYTES];
    unsigned char q[K / 64][TILE_BYTES]; // scale qg
    unsigned char Aqk[TRIANGLE_BYTES];
    float decay[K];                      // exp2(G_last)
};

// GDN has one gate per head, so the decay is one factor per row. This factor and the
// norms scale accumulators. The value heads of a query/key head share the raw rows of k
// and q [64,K], in tiles. Each value head has its own triangles and row factors.
template <int K>
struct gdn_qk_rows { unsigned char k[K / 64][TILE_BYTES], q[K / 64][TILE_BYTES]; };

// F = exp2(G) / |k|, B = exp2(G_last - G) / |k| and Q = scale exp2(G) / |q| are 0 past
// the chunk's end. The decay is exp2(G_last). Q and the rows of q are needed only for
// the output o, so Q and these rows are copied together.
struct gdn_row_factors { float F[CHUNK], B[CHUNK], decay[8], Q[CHUNK]; };
enum { ROW_FACTORS_BYTES = offsetof(struct gdn_row_factors, Q) };

struct gdn_head_factors {
    unsigned char Ab[TRIANGLE_BYTES], Aqk[TRIANGLE_BYTES];
    struct gdn_row_factors f;
};

static_assert(sizeof(struct chunk_factors<64>) == 388 * 64 + 10240
                  && sizeof(struct chunk_factors<128>) == 388 * 128 + 10240
                  && sizeof(struct gdn_head_factors) == 11040
                  && sizeof(struct gdn_qk_rows<64>) == 256 * 64,
              "sizes must match ref/core/saved.def");

// Parameters of the forward kernels: the layer's call and the arrays in the workspace.
// A stretch is the token range of one scan: a segment, or a strip (part) of a segment.
// Stretch s starts with state from[s] of h_in, and stores its last state in row to[s]
// of ht (-1: not stored). Stretch s has a map: last state = M (first state) + h_ext.
// The scan for h_ext starts with state own[s] of h_own (-1: zero). A launch covers one
// window of each stretch: `count` chunks from `first` on.
struct forward_params {
    struct kcp_forward a;
    void *factors, *qk_rows;             // factors [NC][HV]; GDN: qk_rows [NC][H]
    const void *h_in;
    enum kcp_layout h_layout;            // of h_in
    const void *h_own;
    const int *from, *to, *own, *order, *want;   // [NS]; order: long stretches first
    void *maps;                          // the map of each stretch s with want[s] set
    int kept;                            // rows of h_kept
    int first, count;
    void *carry;                         // states [HV,K,V] between two windows
    // Parts of the memory block saved for backward that these kernels write, or NULL.
    // `rstd_q`, `rstd_k` and `beta` have 64 rows per chunk and head. Rows past a
    // stretch's end are 0. If a block is saved, `factors` points into the block.
    struct { float *rstd_q, *rstd_k, *beta; void *h_kept; } saved;
    int raw_rows;                        // GDN: the scan reads full chunks of q and k
                                         // from the caller's tensors
    int channels;                        // KDA: of a row of q, k and 16-bit gates. TMA
                                         // sets channels from `channels` to K - 1 to 0
    unsigned char *deep;                 // v7_by_head: [NS,H], 1: has a deep step
};

// Addresses at which KEEPING_SCAN stores h and v_new of every chunk and head, in the
// layout of backward/storage.cuh.
struct chunk_states { void *h, *v_new; };

static __host__ __device__ inline int launched_chunks(const struct forward_params &x)
{
    return x.count < x.a.NC - x.first ? x.count : x.a.NC - x.first;
}

// With few heads the scan leaves SMs idle. In this case a long token range is processed
// in windows (ranges of chunks) with programmatic dependent launches. The next window's
// chunk_prepare starts when every block of this window's scan has started. The last
// block of the next window's chunk_prepare waits for this window's scan. So every
// kernel that waits for that chunk_prepare also waits for this window's scan.

template <int K>
static __device__ __forceinline__ struct chunk_factors<K> *chunk_factors_of(
    const struct forward_params &x, int c, int n)
{
    return (struct chunk_factors<K> *)x.factors + ((int64_t)c * x.a.HV + n);
}

static __device__ __forceinline__ struct gdn_head_factors *gdn_head_factors_of(
    const struct forward_params &x, int c, int n)
{
    return (struct gdn_head_factors *)x.factors + ((int64_t)c * x.a.HV + n);
}

template <int K>
static __device__ __forceinline__ struct gdn_qk_rows<K> *gdn_qk_rows_of(
    const struct forward_params &x, int c, int m)
{
    return (struct gdn_qk_rows<K> *)x.qk_rows + ((int64_t)c * x.a.H + m);
}

// A lane's accumulators hold, per row, two columns of each half of a 16x16 block.
// Exchanges columns with the neighbouring lane, so that each lane has four adjacent
// columns, and a row is stored as 32 contiguous bytes.
static __device__ __forceinline__ uint2 exchange_halves(uint32_t left, uint32_t right)
{
    const int odd = threadIdx.x % 2;
    const uint32_t other = __shfl_xor_sync(~0u, odd ? left : right, 1);
    return odd ? make_uint2(other, right) : make_uint2(left, other);
}

// The launchers. Each launcher is compiled with its kernels in a separate object file,
// launches on the call's stream, and returns KCP_OK or an error. `processors`: the
// number of SMs. `to`: where the scan stores h and v_new, or NULL.
int kda_chunk_prepare(const struct forward_params *x, int processors);
int gdn_chunk_prepare(const struct forward_params *x);
int forward_scan(const struct forward_params *x, const struct chunk_states *to,
                 int columns);
int forward_maps(const struct forward_params *x);
// Extends the map of a rank's only segment over the window (x->first, x->count). Starts
// from map `from` (-1: the identity) and stores the result as map `to`. If only_h is
// set, computes h_ext but not M.
int forward_maps_walk(const struct forward_params *x, int from, int to, int only_h);
