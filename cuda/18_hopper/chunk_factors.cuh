// chunk_factors.cuh -- what chunk_prepare leaves for the scan: the factors of a chunk.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: chunk_prepare.cuh.
#ifndef KCP_CHUNK_FACTORS_CUH
#define KCP_CHUNK_FACTORS_CUH

#include "cuda/tile/cluster.cuh"
#include "cuda/tile/launch.cuh"
#include "cuda/tile/registers.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warp.cuh"
#include "cuda/tile/wgmma.cuh"
#include "cuda/tile/warp_scan.cuh"

// Two kernels make a forward. chunk_prepare turns a chunk's rows into its factors; the
// scan walks over the factors of a head, chunk by chunk, with the state in registers.
// Of chapter 03's factors chunk_prepare leaves out u and w: with k~ = exp2(G) k,
//     v_new = u - w S = A beta (v - k~ S),
// so the scan needs k~, A beta and the raw v, and chunk_prepare never reads v. Bytes a
// token-head, for a gate a channel (KDA):
//
//   chunk_prepare  reads q, k, g: 6K;  writes k~, qg, kg, A beta, Aqk: 6K + 2.5C
//   scan           reads the factors and v: 6K + 2.5C + 2V;  writes o: 2V
//
// That is 3152 bytes at K = V = 128, or 0.58 ms for case A at 4.3 TB/s.
//
// The factors of a chunk are contiguous: swizzle128 tiles (cuda/tile/swizzle.cuh) and
// triangles, in the order of bytes in which wgmma reads them. A few bulk copies bring
// them on chip.
// A beta and Aqk are lower triangular. Memory has the ten 16x16 blocks on and below the
// diagonal, 5 KiB instead of 8, block column by block column: column J has the rows
// 16 J .., 32 bytes each, in the order of wgmma's 32-byte swizzle. Shared memory has
// zeros above the diagonal.
enum { TRIANGLE_BYTES = 10 * 512 };

static __device__ __forceinline__ int triangle_column(int J)
{
    return 2048 * J - 256 * J * (J - 1);
}

// Byte of row i, columns 8 piece .. 8 piece + 7.
static __device__ __forceinline__ int triangle_offset(int i, int piece)
{
    const int J = piece / 2, row = i - 16 * J;
    return triangle_column(J) + row * 32 + ((piece ^ row / 4) % 2 << 4);
}

template <int K>
struct chunk_factors {
    unsigned char k[K / 64][TILE_BYTES]; // -k~, columns 64 j .. in tile j
    unsigned char Ab[TRIANGLE_BYTES];    // A diag(beta)
    unsigned char kg[K / 64][TILE_BYTES];
    unsigned char q[K / 64][TILE_BYTES]; // scale qg
    unsigned char Aqk[TRIANGLE_BYTES];
    float decay[K];                      // exp2(G_last)
};

// With one gate a head (GDN) decay and norms are factors of rows, and stay outside the
// products. The value heads of a query/key head share its k and q [64,K] as they came,
// in tiles; each has its own matrices and row factors.
template <int K>
struct gdn_qk_rows { unsigned char k[K / 64][TILE_BYTES], q[K / 64][TILE_BYTES]; };

// F = exp2(G) / |k|, B = exp2(G_last - G) / |k| and Q = scale exp2(G) / |q|, each 0
// past the chunk's end; decay = exp2(G_last). Only o needs Q, so Q comes with the rows
// of q.
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
              "as in ref/core/saved.def");

// The parameters of all kernels: the layer's call, and where things lie. A stretch is
// what a scan runs over without a stop: a sequence, or a piece of one. Stretch s begins
// with state from[s] of h_in. It ends with row to[s] of ht (-1: nowhere). Its map
// begins with state own[s] of h_own (-1: with 0). A launch has a window: count chunks
// of a stretch, from number first on.
struct forward_params {
    struct kcp_forward a;
    void *factors, *qk_rows;             // [NC][HV]; GDN has [NC][H] of rows besides
    const void *h_in;
    enum kcp_layout h_layout;            // of h_in
    const void *h_own;
    const int *from, *to, *own, *order, *want;   // [NS]; order: long stretches first
    void *maps;                          // chapter 05's, where want asks for one
    int kept;                            // rows of h_kept
    int first, count;
    void *carry;                         // [HV,K,V] from one window to the next
    // Of the block for backward what these kernels write; NULL: it is not kept. Norms
    // and beta have 64 rows a chunk and head, 0 past a stretch's end. The factors
    // themselves are made in the block then.
    struct { float *rstd_q, *rstd_k, *beta; void *h_kept; } saved;
    int raw_rows;                        // GDN: the scan reads whole chunks of q and k
};                                       // where the caller has them

// What the scan leaves besides o, for backward: h and v_new of every chunk and head, as
// backward/storage.cuh packs them.
struct chunk_states { void *h, *v_new; };

static __host__ __device__ inline int launched_chunks(const struct forward_params &x)
{
    return x.count < x.a.NC - x.first ? x.count : x.a.NC - x.first;
}

// A scan of few states leaves SMs idle. So a long stretch goes in windows, and launches
// are pipelined: the next window's chunk_prepare begins when every block of this
// window's scan has begun (programmatic dependent launch). Its last block waits for
// that scan, so whoever waits for chunk_prepare has waited for both.
//
// cluster: 2 makes neighbours along z a cluster.
template <class Kernel, class... More>
static int launch_clusters(Kernel kernel, size_t bytes, dim3 blocks, int threads,
                           int cluster, const struct forward_params *x, More... more)
{
    cudaLaunchAttribute how[2] = {};
    how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how[0].val.programmaticStreamSerializationAllowed = 1;
    how[1].id = cudaLaunchAttributeClusterDimension;
    how[1].val.clusterDim.x = how[1].val.clusterDim.y = 1;
    how[1].val.clusterDim.z = cluster;
    cudaLaunchConfig_t c = {};
    c.gridDim = blocks;
    c.blockDim = dim3(threads);
    c.dynamicSmemBytes = bytes;
    c.stream = x->a.stream;
    c.attrs = how;
    c.numAttrs = cluster;                // 1: the first attribute alone
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaLaunchKernelEx(&c, kernel, *x, more...);
    return launched();
}

template <class Kernel, class... More>
static int launch_dependent(Kernel kernel, size_t bytes, dim3 blocks, int threads,
                            const struct forward_params *x, More... more)
{
    return launch_clusters(kernel, bytes, blocks, threads, 1, x, more...);
}

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

// A lane of an accumulator has two neighbouring columns of either half of a 16x16
// block. After this exchange with the lane beside it, it has four neighbours of one
// half, and a row goes to memory 32 bytes at once.
static __device__ __forceinline__ uint2 exchange_halves(uint32_t left, uint32_t right)
{
    const int odd = threadIdx.x % 2;
    const uint32_t other = __shfl_xor_sync(~0u, odd ? left : right, 1);
    return odd ? make_uint2(other, right) : make_uint2(left, other);
}

// The launchers, each with its kernels an object of its own. They launch on the call's
// stream and return KCP_OK or an error. processors: the number of SMs. to: where the
// scan leaves states; NULL: nowhere.
int kda_chunk_prepare(const struct forward_params *x, int processors);
int gdn_chunk_prepare(const struct forward_params *x);
int forward_scan(const struct forward_params *x, const struct chunk_states *to,
                 int processors);
int forward_maps(const struct forward_params *x);
// The maps of a rank's one segment, window by window (x->first, x->count): from map
// `from`, -1: from its beginning, to map `to`, of [h_ext | M] or of h_ext alone.
int forward_maps_walk(const struct forward_params *x, int from, int to, int only_h);

#endif
