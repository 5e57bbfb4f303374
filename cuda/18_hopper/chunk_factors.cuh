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

// Of chapter 03's factors prepare leaves out u and w: with k~ = exp2(G) k,
//     v_new = u - w S = A beta (v - k~ S),
// so the scan needs k~ and A beta and the raw v, which prepare then never touches.
//
//   prepare  reads q, k, g: 6K;  writes k~, qg, kg, A beta, Aqk: 6K + 2.5C
//   scan     reads the record and v: 6K + 2.5C + 2V;  writes o: 2V
//
// 3152 bytes a token-head at K = V = 128 with decay: 0.58 ms for case A at 4.3 TB/s.
//
// A record is contiguous, in panels (group.cuh) and triangles, four parts that a scan
// waits for one by one; each comes on chip as a few bulk copies. A map needs the first
// two alone.
enum { TILE_BYTES = 2 * SWIZZLE128_TILE };

// A beta and Aqk are lower triangular, and memory has only what is not zero: by columns
// of squares of 16, column J with the rows 16 J .., 32 bytes each, in the order of the
// tensor core's 32-byte rows. 5 KiB instead of 8; on chip there are zeros above. Byte
// of (row i, 8 columns of piece):
enum { TRIANGLE_BYTES = 10 * 512 };

static __device__ __forceinline__ int triangle_column(int J)
{
    return 2048 * J - 256 * J * (J - 1);
}

static __device__ __forceinline__ int triangle_offset(int i, int piece)
{
    const int J = piece / 2, row = i - 16 * J;
    return triangle_column(J) + row * 32 + ((piece ^ row / 4) % 2 << 4);
}

template <int K>
struct chunk_factors {
    unsigned char k[K / 64][TILE_BYTES]; // -k~, columns 64 j .. in panel j
    unsigned char Ab[TRIANGLE_BYTES];    // A diag(beta)
    unsigned char kg[K / 64][TILE_BYTES];
    unsigned char q[K / 64][TILE_BYTES]; // scale qg
    unsigned char Aqk[TRIANGLE_BYTES];
    float decay[K]; // exp2(G_last): with the second part
};

// One gate a head: decay stays outside the products, and so do the norms. k and q
// [64,K] as they came, in panels, are a query/key head's; a value head has its
// matrices and factors of rows.
template <int K>
struct gdn_qk_rows {
    unsigned char k[K / 64][TILE_BYTES], q[K / 64][TILE_BYTES];
};

// F = exp2(G) / |k|, B = exp2(G_last - G) / |k|, Q = scale exp2(G) / |q|, 0 past the
// chunk's end; decay = exp2(G_last). Q is o's alone, and comes with the rows of q.
struct gdn_row_factors {
    float F[CHUNK], B[CHUNK], decay[8], Q[CHUNK];
};
enum { ROW_FACTORS_BYTES = offsetof(struct gdn_row_factors, Q) };

struct gdn_head_factors {
    unsigned char Ab[TRIANGLE_BYTES], Aqk[TRIANGLE_BYTES];
    struct gdn_row_factors f;
};

// What the kernels are given: the layer's call, and where things lie. Stretch s begins
// with state from[s] of h_in, laid out as h_layout says, and ends with row to[s] of ht,
// -1: nowhere; its map with state own[s] of h_own, -1: 0. order: the stretches, long
// ones first. to13: what the saved block keeps (NULL: nothing is kept).
struct forward_params {
    struct kcp_forward a;
    void *factors, *qk_rows; // [NC][HV]; GDN: and [NC][H]
    const void *h_in;
    enum kcp_layout h_layout;
    const void *h_own;
    const int *from, *to, *own, *order, *want; // [NS]
    void *maps;                                // chapter 05's, where a map is wanted
    int kept;                                  // rows of h_kept
    int first, count; // a stretch's chunks of this launch: a window
    void *carry;      // [HV,K,V] from one window to the next
    struct {
        void *q, *k, *rstd_q, *rstd_k, *beta, *Aqk, *A, *h_kept;
    } saved;
};

// Does a launch keep anything for backward?
static inline int saves_any(const struct forward_params &x)
{
    return x.saved.q || x.saved.beta || x.saved.Aqk || x.saved.A;
}

static __host__ __device__ inline int launched_chunks(const struct forward_params &x)
{
    return x.count < x.a.NC - x.first ? x.count : x.a.NC - x.first;
}

// A scan leaves processors idle when chains are few. So a long stretch goes in windows,
// and the next window's prepare runs beside the scan of the one before: it is launched
// when every block of the scan has begun. Its last block ends after the scan, so that
// whoever waits for the one has waited for both. pair: 2, neighbours along z are a
// cluster.
template <class Kernel, class... More>
static int launch_clusters(Kernel kernel, size_t bytes, dim3 blocks, int threads,
                           int pair, const struct forward_params *x, More... more)
{
    cudaLaunchAttribute how[2] = {};
    how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how[0].val.programmaticStreamSerializationAllowed = 1;
    how[1].id = cudaLaunchAttributeClusterDimension;
    how[1].val.clusterDim.x = how[1].val.clusterDim.y = 1;
    how[1].val.clusterDim.z = pair;
    cudaLaunchConfig_t c = {};
    c.gridDim = blocks, c.blockDim = dim3(threads), c.dynamicSmemBytes = bytes;
    c.stream = x->a.stream, c.attrs = how, c.numAttrs = pair;
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

static __device__ __forceinline__ struct gdn_head_factors *
gdn_head_factors_of(const struct forward_params &x, int c, int n)
{
    return (struct gdn_head_factors *)x.factors + ((int64_t)c * x.a.HV + n);
}

template <int K>
static __device__ __forceinline__ struct gdn_qk_rows<K> *gdn_qk_rows_of(
    const struct forward_params &x, int c, int m)
{
    return (struct gdn_qk_rows<K> *)x.qk_rows + ((int64_t)c * x.a.H + m);
}

// To memory 32 bytes of a row at once: a lane's two neighbours of either half of 16,
// changed for those of the lane beside it, are four neighbours of one half.
static __device__ __forceinline__ uint2
exchange_halves(uint32_t left, uint32_t right)
{
    const int odd = threadIdx.x % 2;
    const uint32_t other = __shfl_xor_sync(~0u, odd ? left : right, 1);
    return odd ? make_uint2(other, right) : make_uint2(left, other);
}

// The kernels, each an object of its own. They launch on x's stream and return an error
// or KCP_OK. processors: how many SMs the device has.
int kda_chunk_prepare(const struct forward_params *x, int processors);
int gdn_chunk_prepare(const struct forward_params *x);
int forward_scan(const struct forward_params *x, int processors);
int forward_maps(const struct forward_params *x);

#endif
