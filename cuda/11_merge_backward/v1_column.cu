// v1_column.cu -- the map for gradients, with one thread per column of [dh_ext | N].
// Book: chapter 11, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/stages_v1.cuh"

// Runs chapter 09's reverse scan on the augmented gradient [dh_ext | N], which starts
// from [dh_end | I]. Columns of N have no dv_local and no dO, so the scan ends with N =
// M^T. The kernel stores M. Bound: latency of sequential chunks. All sums are in fp32.

// Processes one chunk for one column y of the augmented gradient: x = kg y + dv_local,
// then y <- Lambda y + scale qg^T dO - w^T x.
template <class X>
static __device__ void back_chunk(const struct kcp_merge_backward &a,
                                  struct token_range z, int n, int col, float *y,
                                  float *x)
{
    const int64_t last = z.t + z.len - 1;
    const int of_h = col < a.V;
    for (int i = 0; i < z.len; i++) {
        const struct gated<X> k = gated_k<X>(a, z.t + i, n, last);
        float s = 0.0f;
        for (int p = 0; p < a.K; p++) s += (float)k.x[p] * y[p];
        x[i] = k.e * s;
        if (of_h) x[i] += (float)in<X>(a.dv_local, z.t + i, a.HV, n, a.V)[col];
    }
    for (int i = 0; i < a.K; i++) y[i] *= exp2f(gate(a, last, n, i));
    for (int j = 0; j < z.len; j++) {
        const struct gated<X> q = gated_q<X>(a, z.t + j, n);
        const X *w = in<X>(a.w, z.t + j, a.HV, n, a.K);
        const float dO = of_h ? (float)a.scale * q.e
                              * (float)in<X>(a.do_, z.t + j, a.HV, n, a.V)[col] : 0.0f;
        for (int i = 0; i < a.K; i++) y[i] += (float)q.x[i] * dO - (float)w[i] * x[j];
    }
}

template <class X>
static __global__ void merge_backward(const struct kcp_merge_backward a)
{
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, col = threadIdx.x, VK = a.V + a.K;
    const int of_h = col < a.V, want = ((const int *)a.want)[s];
    const float *dh_end = (const float *)a.dh_end;
    const int64_t state = ((int64_t)s * a.HV + n) * a.K;
    float *dmap = (float *)a.dmap + state * VK, y[KMAX], x[CMAX];

    if (of_h ? !(want & KCP_WANT_H) : !(want & KCP_WANT_M) || a.reuse_M) return;
    for (int i = 0; i < a.K; i++) {
        float end;
        if (!of_h) end = i == col - a.V;
        else end = dh_end ? dh_end[(state + i) * a.V + col] : 0.0f;
        y[i] = end;
    }
    for (int c = cn[s + 1] - 1; c >= cn[s]; c--)
        back_chunk<X>(a, chunk_tokens(a, s, c), n, col, y, x);
    for (int i = 0; i < a.K; i++)
        dmap[of_h ? i * VK + col : (col - a.V) * VK + a.V + i] = y[i];
}

template <class X>
int v1_merge_backward(void *args)
{
    const struct kcp_merge_backward *a = (const struct kcp_merge_backward *)args;
    if (!v1_takes((const struct kcp_call *)a)) return KCP_NA;
    if (a->NS) merge_backward<X><<<dim3(a->NS, a->HV), a->V + a->K, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(merge_backward_v1_column, "11_merge_backward", "v1_column",
    "one thread per column of [dh_ext | N]", "K, V up to 256, C up to 64",
    v1_merge_backward<X>);
