// mapops.cu -- applies a map or composes two maps, for all exchange algorithms.
// Book: chapter 07, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/tile/warp_scan.cuh"
#include "cuda/host/stages_v3.cuh"
#include "cuda/host/split_sequence_fold.cuh"

enum { COLS = 16, ROWS = 16 };

// Returns element (i, p) of op(M), for a map [K,V+K].
static __device__ __forceinline__ float M_of(const float *map, int K, int V,
                                             int backward, int i, int p)
{
    return backward ? map[(int64_t)p * (V + K) + V + i]
                    : map[(int64_t)i * (V + K) + V + p];
}

// Computes S_out = op(M) S_in + h in fp32, where op(M) is M in forward and M^T in
// backward. A column takes 2 K^2 flops. Bound: memory, 4 (K^2 + 3 K V) bytes per head,
// if the blocks of a head share M through the cache. A block computes 16 columns of one
// head. S_in and S_out may be the same array, because a barrier separates the copy of
// S_in to shared memory from the first store to S_out.
static __global__ void apply_map(int K, int V, const float *maps, int backward,
                                 int first, int v0, int Vb, const float *S_in,
                                 int ld_in, float *S_out, int ld_out)
{
    __shared__ float S[KMAX][COLS];
    const int n = blockIdx.x, v = blockIdx.y * COLS + threadIdx.x;
    const float *map = maps + (int64_t)n * K * (V + K);

    if (!first && v < Vb)
        for (int p = threadIdx.y; p < K; p += ROWS)
            S[p][threadIdx.x] = S_in[((int64_t)n * K + p) * ld_in + v];
    __syncthreads();
    if (v >= Vb) return;
    //> kernel-apply
    for (int i = threadIdx.y; i < K; i += ROWS) {
        float x = map[(int64_t)i * (V + K) + v0 + v];
        for (int p = 0; p < K && !first; p++)
            x += M_of(map, K, V, backward, i, p) * S[p][threadIdx.x];
        S_out[((int64_t)n * K + i) * ld_out + v] = x;
    }
    //< kernel-apply
}

// Applies a map of K = 64 or 128, with rows of M and columns of S in shared memory.
// This kernel takes less time than the tensor-core fold (v2) needs to prepare one step.
template <int K, int back>
static int apply_once(int HV, int V, const void *map, int v0, int Vb, const void *S_in,
                      int ld_in, void *S_out, int ld_out, struct CUstream_st *stream)
{
    const size_t bytes = sizeof(struct fold<K, COLS>);
    if (!HV || !Vb) return KCP_OK;
    return launch_shared(fold_once<K, COLS, back>, dim3(HV, (Vb + COLS - 1) / COLS),
                         FOLD_THREADS, bytes, stream, V, (const float *)map, v0, Vb,
                         (const float *)S_in, ld_in, (float *)S_out, ld_out);
}

// Selects the kernel by the shape of the whole state, not by the columns of one call,
// because the algorithm `pipeline` calls `apply` once per block of columns. So all
// exchange algorithms that apply the maps in token order give the same bits.
static int apply(int HV, int K, int V, const void *map, int backward, int first, int v0,
                 int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *stream)
{
    if (K > KMAX) return KCP_NA;
    if (!first && (K == 64 || K == 128) && V % COLS == 0 && is_aligned_16(map)) {
        auto launch = backward ? apply_once<64, 1> : apply_once<64, 0>;
        if (K == 128) launch = backward ? apply_once<128, 1> : apply_once<128, 0>;
        return launch(HV, V, map, v0, Vb, S_in, ld_in, S_out, ld_out, stream);
    }
    if (HV && Vb)
        apply_map<<<dim3(HV, (Vb + COLS - 1) / COLS), dim3(COLS, ROWS), 0, stream>>>(
            K, V, (const float *)map, backward, first, v0, Vb, (const float *)S_in,
            ld_in, (float *)S_out, ld_out);
    return launched();
}

// Composes map b after map a: h = op(M_b) h_a + h_b; M = M_b M_a (backward: M_a M_b). A
// block computes row i of a head's map, and a thread computes one column of row i. All
// threads read the same row of the left factor and different columns of the right one.
static __global__ void compose_maps(int K, int V, const float *b_, const float *a_,
                                    int backward, int a_first, float *out_)
{
    const int n = blockIdx.x, i = blockIdx.y, col = threadIdx.x, VK = V + K;
    const float *a = a_ + (int64_t)n * K * VK, *b = b_ + (int64_t)n * K * VK;
    float x = 0.0f;

    if (col < V) {
        x = b[i * VK + col];
        for (int p = 0; p < K; p++)
            x += M_of(b, K, V, backward, i, p) * a[p * VK + col];
    } else if (!a_first) {
        const float *left = backward ? a : b, *right = backward ? b : a;
        for (int p = 0; p < K; p++) x += left[i * VK + V + p] * right[p * VK + col];
    } else {
        return;
    }
    out_[((int64_t)n * K + i) * VK + col] = x;
}

static int compose(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *stream)
{
    if (V + K > 1024) return KCP_NA;      // threads of a block
#ifdef KCP_HOPPER
    const int status = v2_compose(HV, K, V, b, a, backward, a_first, out, stream);
    if (status != KCP_NA) return status;
#endif
    if (HV)
        compose_maps<<<dim3(HV, K), V + K, 0, stream>>>(
            K, V, (const float *)b, (const float *)a, backward, a_first, (float *)out);
    return launched();
}

static int copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t rows, struct CUstream_st *stream)
{
    if (!width || !rows) return KCP_OK;
    cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault,
                      stream);
    return launched();
}

const struct kcp_mapops cuda_mapops = { "cuda", sizeof(float), apply, compose, copy,
                                        NULL, 0 };
