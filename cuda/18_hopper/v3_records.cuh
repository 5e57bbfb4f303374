// v3_records.cuh -- the record of a chunk: what prepare makes and the scan consumes.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_gate.cuh.
#ifndef KCP_V3_RECORDS_CUH
#define KCP_V3_RECORDS_CUH

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
enum { BYTES = 2 * SWIZZLE128_TILE };

// A beta and Aqk are lower triangular, and memory has only what is not zero: by columns
// of squares of 16, column J with the rows 16 J .., 32 bytes each, in the order of the
// tensor core's 32-byte rows. 5 KiB instead of 8; on chip there are zeros above. Byte
// of (row i, 8 columns of piece):
enum { TRIANGLE = 10 * 512 };

static __device__ __forceinline__ int column_at(int J)
{
    return 2048 * J - 256 * J * (J - 1);
}

static __device__ __forceinline__ int in_triangle(int i, int piece)
{
    const int J = piece / 2, row = i - 16 * J;
    return column_at(J) + row * 32 + ((piece ^ row / 4) % 2 << 4);
}

template <int K>
struct record {
    unsigned char k[K / 64][BYTES];      // -k~, columns 64 j .. in panel j
    unsigned char Ab[TRIANGLE];          // A diag(beta)
    unsigned char kg[K / 64][BYTES];
    unsigned char q[K / 64][BYTES];      // scale qg
    unsigned char Aqk[TRIANGLE];
    float decay[K];                      // exp2(G_last): with the second part
};

// One gate a head: decay stays outside the products, and so do the norms. k and q
// [64,K] as they came, in panels, are a query/key head's; a value head has its
// matrices and factors of rows.
template <int K>
struct shared_rows { unsigned char k[K / 64][BYTES], q[K / 64][BYTES]; };

// F = exp2(G) / |k|, B = exp2(G_last - G) / |k|, Q = scale exp2(G) / |q|, 0 past the
// chunk's end; decay = exp2(G_last). Q is o's alone, and comes with the rows of q.
struct row_factors { float F[CHUNK], B[CHUNK], decay[8], Q[CHUNK]; };
enum { FACTORS_S = offsetof(struct row_factors, Q) };

struct head_record {
    unsigned char Ab[TRIANGLE], Aqk[TRIANGLE];
    struct row_factors f;
};

// What the kernels are given: the layer's call, and where things lie. Stretch s begins
// with state from[s] of h_in, laid out as h_layout says, and ends with row to[s] of ht,
// -1: nowhere; its map with state own[s] of h_own, -1: 0. order: the stretches, long
// ones first. to13: what the saved block keeps (NULL: nothing is kept).
struct records {
    struct kcp_forward a;
    void *record, *rows;                 // [NC][HV]; GDN: and [NC][H]
    const void *h_in;
    enum kcp_layout h_layout;
    const void *h_own;
    const int *from, *to, *own, *order, *want;   // [NS]
    void *maps;                          // chapter 05's, where a map is wanted
    int kept;                            // rows of h_kept
    int first, count;                    // a stretch's chunks of this launch: a window
    void *carry;                         // [HV,K,V] from one window to the next
    struct { void *q, *k, *rstd_q, *rstd_k, *beta, *Aqk, *A, *h_kept; } to13;
};

// Does a launch keep anything for backward?
static inline int keeps_any(const struct records &x)
{
    return x.to13.q || x.to13.beta || x.to13.Aqk || x.to13.A;
}

static __host__ __device__ inline int chunks_of(const struct records &x)
{
    return x.count < x.a.NC - x.first ? x.count : x.a.NC - x.first;
}

// A scan leaves processors idle when chains are few. So a long stretch goes in windows,
// and the next window's prepare runs beside the scan of the one before: it is launched
// when every block of the scan has begun. Its last block ends after the scan, so that
// whoever waits for the one has waited for both. pair: 2, neighbours along z are a cluster.
template <class Kernel, class... More>
static int launch_pairs(Kernel kernel, size_t bytes, dim3 blocks, int threads, int pair,
                        const struct records *x, More... more)
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
static int launch_beside(Kernel kernel, size_t bytes, dim3 blocks, int threads,
                         const struct records *x, More... more)
{
    return launch_pairs(kernel, bytes, blocks, threads, 1, x, more...);
}

template <int K>
static __device__ __forceinline__ struct record<K> *record_of(const struct records &x,
                                                              int c, int n)
{
    return (struct record<K> *)x.record + ((int64_t)c * x.a.HV + n);
}

static __device__ __forceinline__ struct head_record *head_of(const struct records &x,
                                                              int c, int n)
{
    return (struct head_record *)x.record + ((int64_t)c * x.a.HV + n);
}

template <int K>
static __device__ __forceinline__ struct shared_rows<K> *rows_of_head(
    const struct records &x, int c, int m)
{
    return (struct shared_rows<K> *)x.rows + ((int64_t)c * x.a.H + m);
}

// To memory 32 bytes of a row at once: a lane's two neighbours of either half of 16,
// changed for those of the lane beside it, are four neighbours of one half.
static __device__ __forceinline__ uint2 four_of(uint32_t left, uint32_t right)
{
    const int odd = threadIdx.x % 2;
    const uint32_t other = __shfl_xor_sync(~0u, odd ? left : right, 1);
    return odd ? make_uint2(other, right) : make_uint2(left, other);
}

static __device__ __forceinline__ float low(uint32_t x)
{
    return __uint_as_float(x << 16);
}
static __device__ __forceinline__ float high(uint32_t x)
{
    return __uint_as_float(x & 0xffff0000u);
}

#endif
