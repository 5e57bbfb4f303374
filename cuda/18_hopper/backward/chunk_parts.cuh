// chunk_parts.cuh -- sums the parameters' gradients over the chunks of a segment.
// Book: chapter 18c.
#pragma once

#include "cuda/18_hopper/backward/storage.cuh"
#include "cuda/18_hopper/deep_steps.cuh"

enum { SUM_THREADS = 1024 };

// Sums the terms of a segment's chunks, in an order that depends only on the segment:
// ddt_bias per channel, and dA_log over all channels. A block has one segment and head.
// A thread sums one channel of every (SUM_THREADS / KG)-th chunk. With `by_head`,
// v5_steps has stored the sums of heads that are not deep.
template <int by_head>
static __global__ __launch_bounds__(SUM_THREADS) void add_chunk_parts(
    const struct backward_params x, float *dA_rows, float *ddt_rows)
{
    __shared__ float sum[2][SUM_THREADS];
    const int n = blockIdx.x, s = blockIdx.y, i = threadIdx.x, KG = x.a.KG;
    const int *cn = (const int *)x.a.cn;
    float dA = 0.0f, ddt = 0.0f;
    if (by_head && !is_deep(x, s, n)) return;
    for (int c = cn[s] + i / KG; c < cn[s + 1]; c += SUM_THREADS / KG) {
        const int64_t at = ((int64_t)c * x.a.HV + n) * KG + i % KG;
        dA += x.dA_part[at];
        ddt += x.ddt_part[at];
    }
    sum[0][i] = dA;
    sum[1][i] = ddt;
    for (int half = SUM_THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (i >= half) continue;
        sum[0][i] += sum[0][i + half];
        if (half >= KG) sum[1][i] += sum[1][i + half];
    }
    if (i == 0 && dA_rows) dA_rows[(int64_t)s * x.a.HV + n] = sum[0][0];
    if (i < KG && ddt_rows) ddt_rows[((int64_t)s * x.a.HV + n) * KG + i] = sum[1][i];
}
