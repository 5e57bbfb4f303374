// v2_mma.cu -- the scan's products on tensor cores, each as three tf32 products.
// Book: chapter 15, "Code: kernels".
#include "scan.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/launch_shared.cuh"
#include "cuda/tile/mma_tf32.cuh"

// Bound: memory. Composing reads two maps and writes one: 12 K (K+V) bytes for 2 K^2
// (K+V) flops. This is K / 6 flops per byte, or 21 at K = 128, while tf32x3 could
// sustain 50. Therefore a block computes a whole product and reads the right operand R
// once. `out` may be the left operand's map, because a barrier separates the product's
// reads of this map (X_L) from the first store. A warp computes a 32 x 64 tile of
// `out`, with 64 accumulators per thread. Slices of 32 values of the summation index p
// are copied asynchronously into two buffers, with barriers between reads and writes.
enum { DEPTH = 32, PITCH = DEPTH + 4, TALL = 32, WIDE = 64 };

// Copies slice p0 to p0+31: columns of X_L to [K,PITCH], and rows of R to
// [32,columns+8].
template <int K, int columns>
static __device__ __forceinline__ void fetch_slice(const struct factors &f, int V,
                                                   int p0, float *L, float *R)
{
    for (int j = threadIdx.x; j < K * DEPTH / 4; j += blockDim.x) {
        const int i = j / (DEPTH / 4), p = j % (DEPTH / 4) * 4;
        cp_async_16(L + i * PITCH + p, f.L + (int64_t)i * (V + K) + V + p0 + p, 1);
    }
    for (int j = threadIdx.x; j < DEPTH * columns / 4; j += blockDim.x) {
        const int p = j / (columns / 4), c = j % (columns / 4) * 4;
        cp_async_16(R + p * (columns + 8) + c, f.R + (int64_t)(p0 + p) * f.ldR + c, 1);
    }
    cp_async_commit();
}

// Computes y [32,64] += rows of L times columns of R, 8 values of p at a time. Each
// fp32 operand is split into two tf32 parts. Of the four products of parts, the
// smallest (relative size 2^-22) is omitted.
template <int columns>
static __device__ __forceinline__ void add_slice(float (*y)[8][4], const float *L,
                                                 const float *R)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4;
    //> kernel-tf32x3
    #pragma unroll 1
    for (int p = 0; p < DEPTH; p += 8) {
        uint32_t a[2][4], rest[2][4];
        #pragma unroll
        for (int m = 0; m < 2; m++)
            #pragma unroll
            for (int j = 0; j < 4; j++)
                split_tf32(L[(m * 16 + j % 2 * 8 + g) * PITCH + p + j / 2 * 4 + e],
                           &a[m][j],
                      &rest[m][j]);
        #pragma unroll
        for (int c = 0; c < 8; c++) {
            uint32_t b[2], small[2];
            for (int j = 0; j < 2; j++)
                split_tf32(R[(p + j * 4 + e) * (columns + 8) + c * 8 + g], &b[j],
                           &small[j]);
            #pragma unroll
            for (int m = 0; m < 2; m++) {
                mma_m16n8k8_tf32(y[m][c], rest[m], b);
                mma_m16n8k8_tf32(y[m][c], a[m], small);
                mma_m16n8k8_tf32(y[m][c], a[m], b);
            }
        }
    }
    //< kernel-tf32x3
}

template <int K, int columns>
static __global__ void __launch_bounds__(K / TALL * (columns / WIDE) * 32)
multiply(const struct product x)
{
    extern __shared__ float4 shared[];
    const struct factors f = factors_of(x, blockIdx.x, blockIdx.y);
    const int V = x.V, W = V + K;
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const int warp = threadIdx.x / 32, row0 = warp % (K / TALL) * TALL;
    const int col0 = warp / (K / TALL) * WIDE;
    enum { SLICE = K * PITCH + DEPTH * (columns + 8) };
    float *L = (float *)shared, *R = L + K * PITCH, y[2][8][4] = {};

    fetch_slice<K, columns>(f, V, 0, L, R);
    for (int p = 0, at = 0; p < K; p += DEPTH, at = SLICE - at) {
        const int next = SLICE - at;
        if (p + DEPTH < K) {
            fetch_slice<K, columns>(f, V, p + DEPTH, L + next, R + next);
            cp_async_wait<1>();
        } else cp_async_wait<0>();
        __syncthreads();
        add_slice<columns>(y, L + at + row0 * PITCH, R + at + col0);
        __syncthreads();
    }
    const float *E = f.E && col0 >= V ? f.E + col0 - V : NULL;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = row0 + j * 8 + g;
        const float D = f.D[i], *l = f.L + (int64_t)i * W + col0 + e;
        const float *r = f.R + (int64_t)i * f.ldR + col0 + e;
        float *out = f.out + (int64_t)i * f.ldO + col0 + e;
        #pragma unroll
        for (int c = 0; c < 8; c++) {
            const float *sum = &y[j / 2][c][j % 2 * 2];
            const float2 one = { 1.0f, 1.0f }, a = *(const float2 *)(l + c * 8);
            const float2 s = E ? *(const float2 *)(E + c * 8 + e) : one;
            const float2 b = *(const float2 *)(r + c * 8);
            *(float2 *)(out + c * 8) = { a.x * s.x + (D * b.x + sum[0]),
                                         a.y * s.y + (D * b.y + sum[1]) };
        }
    }
    if (!f.E) return;
    __syncthreads();
    for (int i = threadIdx.x; i < K; i += blockDim.x) f.D[i] *= f.E[i];
}

template <int K, int columns>
static int scan_v2_mma_launch(const struct product *x, struct CUstream_st *stream)
{
    const size_t bytes = 2 * sizeof(float) * (K * PITCH + DEPTH * (columns + 8));
    const int threads = K / TALL * (columns / WIDE) * 32;
    return launch_shared(multiply<K, columns>, dim3(blocks_of(x), x->HV), threads,
                         bytes, stream, *x);
}

static int tensor_cores(const struct product *x, struct CUstream_st *stream)
{
    const int columns = columns_of(x);
    if (x->K == 64 && columns == 64) return scan_v2_mma_launch<64, 64>(x, stream);
    if (x->K == 64 && columns == 128) return scan_v2_mma_launch<64, 128>(x, stream);
    if (x->K == 64) return scan_v2_mma_launch<64, 192>(x, stream);
    if (columns == 64) return scan_v2_mma_launch<128, 64>(x, stream);
    if (columns == 128) return scan_v2_mma_launch<128, 128>(x, stream);
    if (columns == 192) return scan_v2_mma_launch<128, 192>(x, stream);
    return scan_v2_mma_launch<128, 256>(x, stream);
}

static const struct scan_kernel kernel = { { "v2_mma", "v2_mma_f32" }, tensor_cores,
                                           { 315, 10500, 0.015f } };

KCP_VARIANT_PAIR(scan_v2_mma, "15_scan", "v2_mma",
    "tensor cores: three tf32 products per fp32 product", "K and V of 64 or 128",
    [](void *args) { return scan_run<X>(args, kernel); },
    [](const void *args) { return scan_work<X>(args, kernel); });
