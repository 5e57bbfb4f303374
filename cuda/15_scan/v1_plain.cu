// v1_plain.cu -- the scan's products in fp32 on fp32 units, one thread per column.
// Book: chapter 15, "Code: kernels".
#include "scan.cuh"

enum { ROWS = 16, THREADS = 256 };

// Bound: 2 K fp32 flops per element of `out`. The right operand R is read from L2 once
// per 16 rows. A block computes 16 whole rows of `out`. `out` may be the left operand's
// map, because a barrier separates the reads of this map (X_L) from the first store.
static __global__ void multiply(const struct product x)
{
    __shared__ float X[ROWS][KMAX], D[ROWS];
    const struct factors f = factors_of(x, blockIdx.x, blockIdx.y);
    const int K = x.K, V = x.V, W = V + K, row0 = blockIdx.z * ROWS;
    const int rows = K - row0 < ROWS ? K - row0 : ROWS;
    for (int j = threadIdx.x; j < ROWS * K; j += blockDim.x) {
        const int r = j / K, p = j % K;
        X[r][p] = r < rows ? f.L[(int64_t)(row0 + r) * W + V + p] : 0.0f;
    }
    if (threadIdx.x < rows) D[threadIdx.x] = f.D[row0 + threadIdx.x];
    __syncthreads();
    if (f.E && threadIdx.x < rows)
        f.D[row0 + threadIdx.x] = D[threadIdx.x] * f.E[row0 + threadIdx.x];
    for (int c = threadIdx.x; c < f.columns; c += blockDim.x) {
        const float E = scale_of(f, V, c);
        float y[ROWS] = {};
        //> kernel-multiply
        #pragma unroll 4
        for (int p = 0; p < K; p++) {
            const float R = f.R[(int64_t)p * f.ldR + c];
            #pragma unroll
            for (int r = 0; r < ROWS; r++) y[r] += X[r][p] * R;
        }
        for (int r = 0; r < rows; r++) {
            const int64_t i = row0 + r;
            const float R = D[r] * f.R[i * f.ldR + c];
            f.out[i * f.ldO + c] = f.L[i * W + c] * E + (R + y[r]);
        }
        //< kernel-multiply
    }
}

static int plain(const struct product *x, struct CUstream_st *stream)
{
    const dim3 grid(blocks_of(x), x->HV, (x->K + ROWS - 1) / ROWS);
    multiply<<<grid, threads_for(columns_of(x), THREADS), 0, stream>>>(*x);
    return launched();
}

static const struct scan_kernel kernel = { { "v1_plain", "v1_plain_f32" }, plain,
                                           { 256, 7500, 0.03f } };

KCP_VARIANT_PAIR(scan_v1_plain, "15_scan", "v1_plain",
    "three passes per tile; fp32, one thread per column", "K, V up to 256",
    [](void *args) { return scan_run<X>(args, kernel); },
    [](const void *args) { return scan_work<X>(args, kernel); });
