// v1_thread.cu -- rung 1: one thread per column of the state.
// Book: chapter 17, "A thread".
#include "cuda/tile/device.cuh"

// Bound: latency. A thread executes 2 C K multiply-adds per chunk. Each multiply-add
// waits for a load. S and x are in local memory instead of registers, because their
// indices are not constants. Each load of w or kg from global memory reads two bytes.
// Threads are independent, because column v of the state depends only on column v of u.
template <class X>
static __global__ void ladder(const struct kcp_ladder a)
{
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x;
    const int64_t state = ((int64_t)s * a.HV + n) * a.K;
    const float *h_in = (const float *)a.h_in;
    float *h_out = (float *)a.h_out;
    float S[KMAX], x[CMAX];

    for (int i = 0; i < a.K; i++) S[i] = h_in ? h_in[(state + i) * a.V + v] : 0.0f;
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const float *decay = (const float *)a.decay + ((int64_t)c * a.HV + n) * a.K;

        for (int j = 0; j < z.len; j++) {
            const X *w = in<X>(a.w, z.t + j, a.HV, n, a.K);
            x[j] = in<X>(a.u, z.t + j, a.HV, n, a.V)[v];
            for (int p = 0; p < a.K; p++) x[j] -= (float)w[p] * S[p];
            out<X>(a.v_new, z.t + j, a.HV, n, a.V)[v] = x[j];
        }

        for (int i = 0; i < a.K; i++) S[i] *= decay[i];
        for (int j = 0; j < z.len; j++) {
            const X *kg = in<X>(a.kg, z.t + j, a.HV, n, a.K);
            for (int i = 0; i < a.K; i++) S[i] += (float)kg[i] * x[j];
        }
    }
    for (int i = 0; i < a.K; i++) h_out[(state + i) * a.V + v] = S[i];
}

template <class X>
int v1_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    if (!v1_takes((const struct kcp_call *)a)) return KCP_NA;
    if (a->NS) ladder<X><<<dim3(a->NS, a->HV), a->V, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(ladder_v1_thread, "17_ladder", "v1_thread",
    "one thread per column of the state", "K, V up to 256, C up to 64", v1_ladder<X>);
