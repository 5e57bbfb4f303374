// v1_column.cu -- the fold of gathered maps, with one thread per column of S.
// Book: chapter 07, "Code: kernels".
#include "cuda/tile/device.cuh"

// Bound: latency of K^2 multiply-adds per thread and map, because maps are sequential.
// Column v of M S + h depends only on column v of S, so no barrier is needed. All
// threads read the same M.
static __global__ void merge(const struct kcp_merge a)
{
    const int *range = (const int *)a.range;
    const int n = blockIdx.x, v = threadIdx.x, VK = a.V + a.K;
    const int backward = a.pass == KCP_BACKWARD, j0 = range[0], j1 = range[1];
    float S[KMAX], next[KMAX];

    for (int i = 0; i < a.K; i++) S[i] = 0.0f;
    for (int j = j0; j < j1; j++) {
        const int at = backward ? j0 + j1 - 1 - j : j, first = j == j0;
        const float *map = (const float *)a.maps + ((int64_t)at * a.HV + n) * a.K * VK;
        //> kernel-fold
        for (int i = 0; i < a.K; i++) {
            next[i] = map[i * VK + v];
            for (int p = 0; p < a.K && !first; p++)
                next[i] += map[backward ? p * VK + a.V + i : i * VK + a.V + p] * S[p];
        }
        //< kernel-fold
        for (int i = 0; i < a.K; i++) S[i] = next[i];
    }
    for (int i = 0; i < a.K; i++) out<float>(a.S, n, a.K, i, a.V)[v] = S[i];
}

static int merge_v1_column_run(void *args)
{
    const struct kcp_merge *a = (const struct kcp_merge *)args;
    if (a->K > KMAX || a->V > KMAX) return KCP_NA;
    merge<<<a->HV, a->V, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(merge_v1_column, "07_merge", "v1_column",
    "one block per head, one thread per column of S", "K, V up to 256",
    merge_v1_column_run);
