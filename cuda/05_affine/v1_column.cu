// v1_column.cu -- (M, h_ext) of a token range, one thread per column of [h_ext | M].
// Book: chapter 05, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/stages_v1.cuh"

// A token range maps its first state S to M S + h_ext. Runs chapter 04's scan on the
// V+K columns of [h_ext | M], from [h_start | I] (if h_start is NULL: [0 | I]). For M,
// u is 0. Bound: latency, as in chapter 04. A chunk costs 4 C K (K+V) flops in fp32.
template <class X>
static __global__ void affine(const struct kcp_affine a)
{
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, col = threadIdx.x, VK = a.V + a.K;
    const int of_h = col < a.V, want = ((const int *)a.want)[s];
    const float *h0 = (const float *)a.h_start;
    const int64_t state = ((int64_t)s * a.HV + n) * a.K;
    float S[KMAX], x[CMAX];

    if (!(want & (of_h ? KCP_WANT_H : KCP_WANT_M))) return;
    for (int i = 0; i < a.K; i++) {
        float s0;
        if (!of_h) s0 = i == col - a.V;
        else s0 = h0 ? h0[(state + i) * a.V + col] : 0.0f;
        S[i] = s0;
    }

    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const int64_t last = z.t + z.len - 1;
        //> kernel-augmented
        for (int i = 0; i < z.len; i++) {
            const X *w = in<X>(a.w, z.t + i, a.HV, n, a.K);
            x[i] = of_h ? (float)in<X>(a.u, z.t + i, a.HV, n, a.V)[col] : 0.0f;
            for (int p = 0; p < a.K; p++) x[i] -= (float)w[p] * S[p];
        }
        for (int i = 0; i < a.K; i++) S[i] *= exp2f(gate(a, last, n, i));
        for (int j = 0; j < z.len; j++) {
            const struct gated<X> k = gated_k<X>(a, z.t + j, n, last);
            for (int i = 0; i < a.K; i++) S[i] += (float)k.x[i] * (k.e * x[j]);
        }
        //< kernel-augmented
    }
    for (int i = 0; i < a.K; i++) ((float *)a.map)[(state + i) * VK + col] = S[i];
}

template <class X>
int v1_affine(void *args)
{
    const struct kcp_affine *a = (const struct kcp_affine *)args;
    if (!v1_takes((const struct kcp_call *)a)) return KCP_NA;
    if (a->NS) affine<X><<<dim3(a->NS, a->HV), a->V + a->K, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(affine_v1_column, "05_affine", "v1_column",
    "one thread per column of [h_ext | M]", "K, V up to 256, C up to 64", v1_affine<X>);
