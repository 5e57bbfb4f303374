// precision.cu -- computes M of many chunks on a GPU, in each arithmetic of chapter 19.
//
// Book: chapter 19.  Checked by: the same chunks in double on the host.
// Next: gpu_bench.sh.  Usage: build/kcp-precision > FOLDER/precision.tsv (records.py)
//
// One block processes all chunks; each of its four warps computes a tile of 16 x 16. On
// the host only the rounding of inputs is emulated, because the order of the tensor
// core's additions is not known.
#include "tests/19_precision/rounding.h"

#include <cuda_bf16.h>
#include <mma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

using namespace nvcuda;
typedef wmma::precision::tf32 tf32;
static const char *const unit_name[] = { "fp32", "tf32x3", "tf32", "bf16" };

struct device_chunk { float w[C][K], kg_t[K][C], decay[K]; };

// Computes D [32,32] = A B, one 16 x 16 tile per warp.
__device__ static void product_fp32(const float *A, const float *B, float *D)
{
    for (int e = threadIdx.x; e < 32 * 32; e += blockDim.x) {
        float s = 0;
        for (int p = 0; p < 32; p++) s += A[e / 32 * 32 + p] * B[p * 32 + e % 32];
        D[e] = s;
    }
}

__device__ static void product_tf32(const float *A, const float *B, float *D, int three)
{
    const int row = threadIdx.x / 32 / 2 * 16, col = threadIdx.x / 32 % 2 * 16;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> d;
    wmma::fill_fragment(d, 0.0f);
    for (int p = 0; p < 32; p += 8) {
        wmma::fragment<wmma::matrix_a, 16, 16, 8, tf32, wmma::row_major> a, a2;
        wmma::fragment<wmma::matrix_b, 16, 16, 8, tf32, wmma::row_major> b, b2;
        wmma::load_matrix_sync(a, A + row * 32 + p, 32);
        wmma::load_matrix_sync(b, B + p * 32 + col, 32);
        //> kernel-three
        for (int e = 0; e < a.num_elements; e++) {
            const float x = a.x[e];
            a.x[e] = wmma::__float_to_tf32(x);
            a2.x[e] = wmma::__float_to_tf32(x - a.x[e]);
        }
        for (int e = 0; e < b.num_elements; e++) {
            const float x = b.x[e];
            b.x[e] = wmma::__float_to_tf32(x);
            b2.x[e] = wmma::__float_to_tf32(x - b.x[e]);
        }
        if (three) {
            wmma::mma_sync(d, a2, b, d);
            wmma::mma_sync(d, a, b2, d);
        }
        wmma::mma_sync(d, a, b, d);
        //< kernel-three
    }
    wmma::store_matrix_sync(D + row * 32 + col, d, 32, wmma::mem_row_major);
}

__device__ static void product_bf16(const float *A, const float *B, float *D,
                                    __nv_bfloat16 *staging)
{
    const int row = threadIdx.x / 32 / 2 * 16, col = threadIdx.x / 32 % 2 * 16;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
    for (int e = threadIdx.x; e < 1024; e += blockDim.x) {
        staging[e] = __float2bfloat16_rn(A[e]);
        staging[1024 + e] = __float2bfloat16_rn(B[e]);
    }
    __syncthreads();
    wmma::fill_fragment(d, 0.0f);
    for (int p = 0; p < 32; p += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> b;
        wmma::load_matrix_sync(a, staging + row * 32 + p, 32);
        wmma::load_matrix_sync(b, staging + 1024 + p * 32 + col, 32);
        wmma::mma_sync(d, a, b, d);
    }
    wmma::store_matrix_sync(D + row * 32 + col, d, 32, wmma::mem_row_major);
}

// Applies M <- Lambda M - kg^T (w M) per chunk, and stores M after 1, 2, 4 .. chunks.
__global__ static void chain(const struct device_chunk *c, int n, int unit, float *out)
{
    __shared__ __align__(32) float M[K * K], y[C * K], z[K * K], A[C * K];
    __shared__ __align__(32) __nv_bfloat16 staging[2048];
    for (int e = threadIdx.x; e < K * K; e += blockDim.x) M[e] = e / K == e % K;
    for (int j = 1; j <= n; j++, c++) {
        for (int half = 0; half < 2; half++) {
            __syncthreads();
            for (int e = threadIdx.x; e < C * K; e += blockDim.x)
                A[e] = half ? c->kg_t[e / C][e % C] : c->w[e / K][e % K];
            __syncthreads();
            const float *B = half ? y : M;
            float *D = half ? z : y;
            if (unit == FP32) product_fp32(A, B, D);
            else if (unit == BF16) product_bf16(A, B, D, staging);
            else product_tf32(A, B, D, unit == TF32X3);
        }
        __syncthreads();
        for (int e = threadIdx.x; e < K * K; e += blockDim.x) {
            const float x = c->decay[e / K] * M[e] - z[e];
            M[e] = unit == BF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
        }
        __syncthreads();
        if (!(j & (j - 1))) {
            for (int e = threadIdx.x; e < K * K; e += blockDim.x) out[e] = M[e];
            out += K * K;
        }
    }
}

// Computes on the host the rounded chunks, and M in double after 1, 2, 4 .. chunks.
struct truth { double M[9][K * K]; struct device_chunk chunk[CHUNKS]; };

static void draw_all(struct truth *t, int strong, int n)
{
    static double X[K][W];
    static struct chunk c;
    chunk_seed = 7;
    memset(X, 0, sizeof X);
    for (int i = 0; i < K; i++) X[i][V + i] = 1;
    for (int j = 1, at = 0; j <= n; j++) {
        struct device_chunk *to = &t->chunk[j - 1];
        chunk_draw(&c, strong);
        exact(&c, X);
        for (int i = 0; i < K; i++) {
            to->decay[i] = (float)exp2(c.last[i]);
            for (int p = 0; p < C; p++) {
                to->w[p][i] = (float)c.w[p][i];
                to->kg_t[i][p] = (float)c.kg[p][i];
            }
        }
        if (j & (j - 1)) continue;
        for (int e = 0; e < K * K; e++) t->M[at][e] = X[e / K][V + e % K];
        at++;
    }
}

static void print_row(const double *want, const float *got, int kept, int chunks,
                      int strong)
{
    double norm = 0, size = 0;
    for (int e = 0; e < K * K; e++) norm += want[e] * want[e];
    printf("%s\t%d\t%d\t%d\t%.3e", strong ? "strong" : "live", K, C, chunks,
           sqrt(norm / K));
    for (int f = 0; f < UNITS; f++, got += kept * K * K) {
        double off = 0;
        size = 0;
        for (int e = 0; e < K * K; e++) {
            off += (got[e] - want[e]) * (got[e] - want[e]);
            size += (double)got[e] * got[e];
        }
        printf("\t%.1e", sqrt(off / norm));
    }
    printf("\t%+.1f\n", 100 * (sqrt(size / norm) - 1));
}

static int growth(struct truth *t, float *got, int strong)
{
    const int n = strong ? 4 : CHUNKS, kept = strong ? 3 : 9;
    const size_t bytes = sizeof(float) * kept * K * K;
    struct device_chunk *on = NULL;
    float *out = NULL;
    draw_all(t, strong, n);
    int bad = cudaMalloc(&on, sizeof *on * n) || cudaMalloc(&out, bytes) ||
              cudaMemcpy(on, t->chunk, sizeof *on * n, cudaMemcpyHostToDevice);
    for (int f = 0; f < UNITS && !bad; f++) {
        chain<<<1, 128>>>(on, n, f, out);
        bad = cudaMemcpy(got + f * kept * K * K, out, bytes, cudaMemcpyDeviceToHost);
    }
    cudaFree(on);
    cudaFree(out);
    if (bad) return 1;
    for (int at = 0; at < kept; at++)
        print_row(t->M[at], got + at * K * K, kept, 1 << at, strong);
    return 0;
}

int main(void)
{
    struct cudaDeviceProp p;
    struct truth *t = (struct truth *)malloc(sizeof *t);
    float *got = (float *)malloc(sizeof(float) * UNITS * 9 * K * K);
    int bad = !t || !got || cudaGetDeviceProperties(&p, 0);
    if (!bad) {
        fprintf(stderr, "%s: relative error of M, its size over sqrt(K)\n", p.name);
        printf("gate\tK\tC\tchunks\tsize");
        for (int f = 0; f < UNITS; f++) printf("\t%s", unit_name[f]);
        printf("\t%s_size\n", unit_name[UNITS - 1]);
    }
    bad = bad || growth(t, got, 0);
    bad = bad || growth(t, got, 1);
    if (bad)
        fprintf(stderr, "kcp-precision: %s\n", cudaGetErrorString(cudaGetLastError()));
    free(t);
    free(got);
    return bad;
}
