// v1_column.cu -- backward of scan and output: one thread per pair, then per column.
// Book: chapter 09, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/stages_v1.cuh"

// Computes dAqk = scale tril(dO v_new^T), with one thread per pair, and dv_local =
// tril(Aqk)^T dO, with one thread per column. Bound: memory; chunks are independent.
template <class X>
static __global__ void local_gradients(const struct kcp_chunk_backward a)
{
    const int c = blockIdx.x, n = blockIdx.y;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);

    for (int at = threadIdx.x; at < z.len * a.C; at += blockDim.x) {
        const int i = at / a.C, j = at % a.C;
        float s = 0.0f;
        if (j <= i) {
            const X *dO = in<X>(a.do_, z.t + i, a.HV, n, a.V);
            const X *v_new = in<X>(a.v_new, z.t + j, a.HV, n, a.V);
            for (int v = 0; v < a.V; v++) s += (float)dO[v] * (float)v_new[v];
        }
        out<X>(a.dAqk, z.t + i, a.HV, n, a.C)[j] = (float)a.scale * s;
    }
    for (int v = threadIdx.x; v < a.V; v += blockDim.x)
        for (int j = 0; j < z.len; j++) {
            float s = 0.0f;
            for (int i = j; i < z.len; i++)
                s += (float)in<X>(a.Aqk, z.t + i, a.HV, n, a.C)[j]
                   * (float)in<X>(a.do_, z.t + i, a.HV, n, a.V)[v];
            out<X>(a.dv_local, z.t + j, a.HV, n, a.V)[v] = s;
        }
}

// Processes column v of one chunk: dU = kg dS + dv_local, then dS <- Lambda dS + scale
// qg^T dO - w^T dU. Argument x [C] receives the column of dU.
template <class X>
static __device__ void reverse_chunk(const struct kcp_chunk_backward &a,
                                     struct token_range z, int n, int v, float *dS,
                                     float *x)
{
    const int64_t last = z.t + z.len - 1;
    //> kernel-reverse
    for (int i = 0; i < z.len; i++) {
        const struct gated<X> k = gated_k<X>(a, z.t + i, n, last);
        float s = 0.0f;
        for (int p = 0; p < a.K; p++) s += (float)k.x[p] * dS[p];
        x[i] = (float)in<X>(a.dv_local, z.t + i, a.HV, n, a.V)[v] + k.e * s;
        out<X>(a.dU, z.t + i, a.HV, n, a.V)[v] = x[i];
    }
    for (int i = 0; i < a.K; i++) dS[i] *= exp2f(gate(a, last, n, i));
    for (int j = 0; j < z.len; j++) {
        const struct gated<X> q = gated_q<X>(a, z.t + j, n);
        const X *w = in<X>(a.w, z.t + j, a.HV, n, a.K);
        const float dO = (float)a.scale * q.e
                       * (float)in<X>(a.do_, z.t + j, a.HV, n, a.V)[v];
        for (int i = 0; i < a.K; i++) dS[i] += (float)q.x[i] * dO - (float)w[i] * x[j];
    }
    //< kernel-reverse
}

// Bound: latency, because chunks are sequential. A block processes one head of one
// stretch (a token range of a sequence). Thread v owns column v of dS and needs no
// barrier.
template <class X>
static __global__ void reverse(const struct kcp_chunk_backward a)
{
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x;
    const float *dh_out = (const float *)a.dh_out;
    const int64_t state = ((int64_t)s * a.HV + n) * a.K;
    float dS[KMAX], x[CMAX];

    for (int i = 0; i < a.K; i++) dS[i] = dh_out ? dh_out[(state + i) * a.V + v] : 0.0f;
    for (int c = cn[s + 1] - 1; c >= cn[s]; c--) {
        for (int i = 0; i < a.K; i++)
            ((X *)a.dh)[(((int64_t)c * a.HV + n) * a.K + i) * a.V + v] = dS[i];
        reverse_chunk<X>(a, chunk_tokens(a, s, c), n, v, dS, x);
    }
    for (int i = 0; i < a.K; i++) ((float *)a.dh_in)[(state + i) * a.V + v] = dS[i];
}

template <class X>
int v1_chunk_backward(void *args)
{
    const struct kcp_chunk_backward *a = (const struct kcp_chunk_backward *)args;
    if (!v1_takes((const struct kcp_call *)a)) return KCP_NA;
    if (!(a->part & (KCP_LOCAL | KCP_REVERSE))) return KCP_BAD;
    if (a->NC && a->part & KCP_LOCAL)
        local_gradients<X><<<dim3(a->NC, a->HV), 256, 0, a->stream>>>(*a);
    if (a->NS && a->part & KCP_REVERSE)
        reverse<X><<<dim3(a->NS, a->HV), a->V, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(chunk_backward_v1_column, "09_chunk_backward", "v1_column",
    "one thread per pair, then one thread per column of dS",
    "K, V up to 256, C up to 64", v1_chunk_backward<X>);
