// v1_column.cu -- the recurrence, one block per head and one thread per column of S.
// Book: chapter 01, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "token_decay.cuh"

// Bound: latency, because tokens are sequential. One token of one head costs 7 K V
// flops: K V multiplications (the decay) and 3 K V multiply-adds. Thread v owns column
// v of S [K,V], so no sum needs several threads. Each token has two barriers: one after
// k, q and the decay are stored in shared memory, one before the next token overwrites
// this memory.
template <class X>
static __global__ void step(const struct kcp_step a)
{
    __shared__ float k[KMAX], q[KMAX], decay[KMAX];
    const int64_t *cu = (const int64_t *)a.cu_seqlens;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x;
    const int m = n / (a.HV / a.H), vk = a.layout == KCP_VK;
    const int64_t at = ((int64_t)s * a.HV + n) * a.K * a.V;
    const float *h0 = (const float *)a.h0;
    float S[KMAX];

    for (int i = 0; i < a.K; i++) {
        const int64_t iv = vk ? (int64_t)v * a.K + i : (int64_t)i * a.V + v;
        S[i] = h0 ? h0[at + iv] : 0.0f;
    }
    //> kernel-step
    for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
        __syncthreads();
        for (int i = v; i < a.K; i += a.V) {
            k[i] = in<X>(a.k, t, a.H, m, a.K)[i];
            q[i] = in<X>(a.q, t, a.H, m, a.K)[i];
            decay[i] = token_decay(in<float>(a.g, t, a.HV, n, a.KG)[a.KG == 1 ? 0 : i]);
        }
        __syncthreads();

        float x = in<X>(a.v, t, a.HV, n, a.V)[v], o = 0.0f;
        for (int i = 0; i < a.K; i++) {
            S[i] *= decay[i];
            x -= S[i] * k[i];
        }
        x *= ((const float *)a.beta)[t * a.HV + n];
        for (int i = 0; i < a.K; i++) {
            S[i] += k[i] * x;
            o += S[i] * q[i];
        }
        out<X>(a.o, t, a.HV, n, a.V)[v] = (float)a.scale * o;
    }
    //< kernel-step
    for (int i = 0; i < a.K; i++) {
        const int64_t iv = vk ? (int64_t)v * a.K + i : (int64_t)i * a.V + v;
        ((float *)a.ht)[at + iv] = S[i];
    }
}

template <class X>
static int step_v1_column_run(void *args)
{
    const struct kcp_step *a = (const struct kcp_step *)args;
    if (a->K > KMAX || a->V > KMAX || a->pass != KCP_FORWARD) return KCP_NA;
    if (a->N) step<X><<<dim3(a->N, a->HV), a->V, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(step_v1_column, "01_step", "v1_column",
    "one block per head, one thread per column of S", "forward; K, V up to 256",
    step_v1_column_run<X>);
