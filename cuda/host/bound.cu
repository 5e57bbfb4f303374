// bound.cu -- upper bound on how much of a state each segment keeps.
// Book: chapter 20, "A tolerance".
// Checked by: tests/20_clusters/bound_gpu.c, against ref/20_bound.c.
// Next: ../../ref/core/bounded.c, which gives the bounds to the wire.
//
// Bound: memory, one read of k_raw and g_raw. A block computes one chunk of a head, a
// warp one token at a time, a lane every 32nd channel. Sums are in double precision.
// Each token adds a margin for its float rounding, so the result is a true upper bound.
// The barrier makes all warps' sums visible before these sums are added. A second
// kernel adds the chunks of a segment, with one block per segment.
#include "cuda/tile/device.cuh"
#include "core/narrowing.h"

enum { WARPS = 4, HEAD_THREADS = 128 };

static __device__ float warp_sum(float x)
{
    for (int b = 16; b; b /= 2) x += __shfl_xor_sync(~0u, x, b);
    return x;
}

static __device__ float warp_max(float x)
{
    for (int b = 16; b; b /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, b));
    return x;
}

static __device__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

// Returns the natural logarithm of alpha of one channel.
static __device__ float log_decay(const struct kcp_forward &a, int n, int i, float x)
{
    const float *A_log = (const float *)a.A_log, *dt = (const float *)a.dt_bias;
    const float expA = A_log ? expf(A_log[n]) : 1.0f;
    const float y = x + (dt ? dt[n * a.KG + i] : 0.0f);
    if (a.gate == KCP_GATE_SOFTPLUS)
        return -expA * (fmaxf(y, 0.0f) + log1pf(expf(-fabsf(y))));
    if (a.gate == KCP_GATE_BOUNDED) return (float)a.lower_bound * sigmoid(expA * y);
    return x;
}

static __device__ float beta_of(const struct kcp_forward &a, float raw)
{
    if (a.beta_form == KCP_BETA_RAW) return raw;
    return (a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f) * sigmoid(raw);
}

// Returns log2 of a bound on |A_t|_2 of token t, head n. The bound is the slowest
// channel's decay times the eigenvalue 1 - beta |k|^2 of the reflection.
template <class X>
static __device__ double step_bound(const struct kcp_forward &a, int64_t t, int n)
{
    const int lane = threadIdx.x % 32;
    const X *k = in<X>(a.k_raw, t, a.H, n / (a.HV / a.H), a.K);
    const X *g = in<X>(a.g_raw, t, a.HV, n, a.KG);
    float square = 0.0f, slowest = -INFINITY;
    for (int i = lane; i < a.K; i += 32) square += (float)k[i] * (float)k[i];
    for (int i = lane; i < a.KG; i += 32)
        slowest = fmaxf(slowest, log_decay(a, n, i, (float)g[i]));
    square = warp_sum(square);
    slowest = warp_max(slowest);
    const double length = a.l2norm ? square / (square + 1e-6) : square;
    const double beta = beta_of(a, (float)((const X *)a.beta_raw)[t * a.HV + n]);
    const double margin = 4e-6 + 1e-6 * fabs((double)slowest);
    return 1.4426950408889634 * slowest + margin +
           log2(fmax(1.0, fabs(1.0 - beta * length) * (1.0 + 4e-6)));
}

// Stores the log2 bounds of the chunks in of_chunk [NC,HV].
template <class X>
static __global__ void bound_chunks(const struct kcp_forward a, double *of_chunk)
{
    __shared__ double of_warp[WARPS];
    const int c = blockIdx.x, n = blockIdx.y, warp = threadIdx.x / 32;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    double sum = 0.0;
    for (int64_t t = z.t + warp; t < z.t + z.len; t += WARPS)
        sum += step_bound<X>(a, t, n);
    if (threadIdx.x % 32 == 0) of_warp[warp] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < WARPS; w++) sum += of_warp[w];
    of_chunk[(int64_t)c * a.HV + n] = sum;
}

// Stores the maximum of each segment's bounds over the heads in bound [NS]. The
// barriers separate the writes of each step of the reduction from the reads of the next
// step.
static __global__ void bound_segments(const struct kcp_forward a,
                                      const double *of_chunk, double *bound)
{
    __shared__ double most[HEAD_THREADS];
    const int s = blockIdx.x, *cn = (const int *)a.cn;
    double x = -INFINITY;
    for (int n = threadIdx.x; n < a.HV; n += HEAD_THREADS) {
        double sum = 0.0;
        for (int64_t c = cn[s]; c < cn[s + 1]; c++) sum += of_chunk[c * a.HV + n];
        x = fmax(x, sum);
    }
    most[threadIdx.x] = x;
    __syncthreads();
    for (int half = HEAD_THREADS / 2; half; half /= 2) {
        if (threadIdx.x < half)
            most[threadIdx.x] = fmax(most[threadIdx.x], most[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) bound[s] = exp2(most[0]);
}

extern "C" int cuda_decay_bound(const struct kcp_forward *a, enum kcp_storage storage,
                                double *bound)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const int64_t numbers = (int64_t)a->NC * a->HV + a->NS;
    double *of_chunk = (double *)a->work, *on = of_chunk + (int64_t)a->NC * a->HV;
    if (!a->NS) return KCP_OK;
    if (cudaStreamIsCapturing(a->stream, &capture) ||
        capture != cudaStreamCaptureStatusNone) return KCP_NA;
    if (a->work_bytes < sizeof(double) * numbers) return KCP_BAD;
    const dim3 chunks(a->NC, a->HV);
    if (a->NC && storage == KCP_BF16)
        bound_chunks<bf16><<<chunks, 32 * WARPS, 0, a->stream>>>(*a, of_chunk);
    if (a->NC && storage != KCP_BF16)
        bound_chunks<float><<<chunks, 32 * WARPS, 0, a->stream>>>(*a, of_chunk);
    bound_segments<<<a->NS, HEAD_THREADS, 0, a->stream>>>(*a, of_chunk, on);
    const int status = launched();
    if (status) return status;
    if (cudaMemcpyAsync(bound, on, sizeof *bound * a->NS, cudaMemcpyDeviceToHost,
                        a->stream) ||
        cudaStreamSynchronize(a->stream)) return KCP_CUDA;
    return KCP_OK;
}
