// token.cuh -- one token of Spike-KDA on the device: gates, state updates, output.
// Book: chapter 15, "Code: kernels".
#pragma once

#include "tree.cuh"

// A tile of n tokens, starting at t0, and the tile's arrays: gates [C,HV,K] and [C,HV],
// maps [C,HV,K,V+K] and their decays [C,HV,K], states [C,HV,K,V] before and after each
// token. `fade` is 1 - alpha, accurate even if alpha is close to 1. A token that is
// dropped, or inactive in a head, has alpha = 1, `fade` = 0 and beta = 0. `dO` [T,HV,V]
// is do_ plus the gradients of repeated outputs.
struct tile {
    struct kcp_scan a;
    int64_t t0;
    int n;
    float *alpha, *fade, *beta, *beta_slope, *node, *decay, *before, *after;
    const float *dO;
};

static __device__ __forceinline__ int dropped(const struct kcp_scan &a, int64_t t)
{
    return a.drop ? ((const int *)a.drop)[t] : 0;
}

// Returns the token of the tree's leaf e. If `back` is set, leaf 0 is the last token.
static __device__ __forceinline__ int token_of(const struct tile &x, int e, int back)
{
    return back ? x.n - 1 - e : e;
}

static __device__ __forceinline__ float sigma(float y)
{
    return 1.0f / (1.0f + expf(-y));
}

// Computes a tile's alpha and beta: a block per token and head, a thread per channel.
template <class X>
static __global__ void gates(const struct tile x)
{
    const struct kcp_scan &a = x.a;
    const int e = blockIdx.x, n = blockIdx.y, K = a.K, D = a.D;
    const int64_t t = x.t0 + e, row = t * a.HV + n, at = (int64_t)e * a.HV + n;
    const int acts = !dropped(a, t) && (!a.active || ((const int *)a.active)[row]);
    const X *spike = in<X>(a.spike, t, a.HV, n, D);
    for (int i = threadIdx.x; i < K; i += blockDim.x) {
        const float *W = (const float *)a.W_alpha + ((int64_t)n * K + i) * D;
        float y = in<X>(a.alpha_base, t, a.HV, n, K)[i];
        for (int d = 0; d < D; d++) y += W[d] * (float)spike[d];
        x.alpha[at * K + i] = acts ? sigma(y) : 1.0f;
        x.fade[at * K + i] = acts ? sigma(-y) : 0.0f;
    }
    if (threadIdx.x) return;
    float y = ((const X *)a.beta_base)[row];
    for (int d = 0; d < D; d++)
        y += ((const float *)a.w_beta)[n * D + d] * (float)spike[d];
    x.beta[at] = acts ? sigma(y) : 0.0f;
    x.beta_slope[at] = acts ? sigma(y) * sigma(-y) : 0.0f;
}

static __device__ __forceinline__ float warp_sum(float y)
{
    for (int m = 16; m; m /= 2) y += __shfl_xor_sync(0xffffffffu, y, m);
    return y;
}

// Loads k, q and alpha into shared memory. The caller must then call __syncthreads.
template <class X>
static __device__ __forceinline__ void load_token(const struct tile &x, int at, int n,
                                                  float *k, float *q, float *alpha)
{
    const struct kcp_scan &a = x.a;
    const int m = n / (a.HV / a.H);
    jitter();
    for (int i = threadIdx.x; i < a.K; i += blockDim.x) {
        k[i] = in<X>(a.k, x.t0 + at, a.H, m, a.K)[i];
        q[i] = in<X>(a.q, x.t0 + at, a.H, m, a.K)[i];
        alpha[i] = x.alpha[((int64_t)at * a.HV + n) * a.K + i];
    }
}

// Pass 1 computes the leaves, the maps of single tokens. With A = diag(alpha) - beta k
// (alpha k)^T, leaf e is [beta k v^T | A - diag(alpha)] with decay alpha. In backward,
// leaf e is [A^T q dO^T | A^T - diag(alpha)]. Bound: memory, 4 K (K+V) bytes written
// per leaf. A block computes one leaf of one head, and a thread computes one column.
// The barrier separates the load of the vectors from the products.
template <class X>
static __global__ void updates(const struct tile x, int back)
{
    __shared__ float k[KMAX], q[KMAX], alpha[KMAX];
    const struct kcp_scan &a = x.a;
    const int n = blockIdx.y, K = a.K, V = a.V, at = token_of(x, blockIdx.x, back);
    const int64_t t = x.t0 + at, row = (int64_t)at * a.HV + n;
    const float beta = x.beta[row];
    float *map = x.node + ((int64_t)blockIdx.x * a.HV + n) * K * (V + K), qk = 0.0f;
    load_token<X>(x, at, n, k, q, alpha);
    __syncthreads();
    for (int i = threadIdx.x; i < K; i += blockDim.x)
        x.decay[((int64_t)blockIdx.x * a.HV + n) * K + i] = alpha[i];
    for (int i = 0; i < K && back; i++) qk += q[i] * k[i];
    for (int c = threadIdx.x; c < V + K; c += blockDim.x) {
        const int p = c - V;
        float value;
        if (p >= 0) value = back ? k[p] : alpha[p] * k[p];
        else if (!back) value = (float)in<X>(a.v, t, a.HV, n, V)[c];
        else value = dropped(a, t) ? 0.0f : x.dO[(t * a.HV + n) * V + c];
        //> kernel-updates
        for (int i = 0; i < K; i++) {
            const float b = beta * k[i], h = back ? alpha[i] * (q[i] - b * qk) : b;
            const float erased = back ? alpha[i] * b : b;
            map[(int64_t)i * (V + K) + c] = p < 0 ? h * value : -erased * value;
        }
        //< kernel-updates
    }
}

// Pass 3 computes o = S'^T q from the state S before the token, and stores S' of the
// last token in S_last. With S_d = diag(alpha) S and e = v - S_d^T k, S' equals S_d +
// beta k e^T. So a thread computes an element of o = S_d^T q + beta (k q) e without S'.
template <class X>
static __global__ void emit(const struct tile x, float *S_last)
{
    __shared__ float k[KMAX], q[KMAX], alpha[KMAX];
    const struct kcp_scan &a = x.a;
    const int e = blockIdx.x, n = blockIdx.y, K = a.K, V = a.V;
    const int64_t t = x.t0 + e, row = (int64_t)e * a.HV + n;
    const float *S = x.before + row * K * V, beta = x.beta[row];
    load_token<X>(x, e, n, k, q, alpha);
    __syncthreads();
    const int v = threadIdx.x;
    if (v >= V) return;
    float o = 0.0f, kq = 0.0f, err = in<X>(a.v, t, a.HV, n, V)[v];
    //> kernel-emit
    for (int i = 0; i < K; i++) {
        const float Sd = alpha[i] * S[(int64_t)i * V + v];
        err -= Sd * k[i];
        o += Sd * q[i];
        kq += k[i] * q[i];
    }
    if (!dropped(a, t)) out<X>(a.o, t, a.HV, n, V)[v] = o + beta * kq * err;
    //< kernel-emit
    if (e != x.n - 1) return;
    for (int i = 0; i < K; i++) {
        const int64_t iv = (int64_t)i * V + v;
        S_last[(int64_t)n * K * V + iv] = alpha[i] * S[iv] + beta * k[i] * err;
    }
}
