// gradients.cuh -- all gradients of the tokens of a tile (one chunk).
// Book: chapter 15, "Code: kernels".
#pragma once

#include "token.cuh"

// Computes the gradients of one token and head per block. S is the state before the
// token, S_d = diag(alpha) S, S' is the state after the token, and dS the gradient from
// later tokens. In the first half, a thread computes a column: F = dS + q dO^T, e = v -
// S_d^T k, z = F^T k. In the second half, a warp computes a row, with lanes over v:
//   dq = S' dO      dk = beta (F e - S_d z)      dalpha = sum_v (F - beta k z^T) S
// Bound: memory, because two states are read twice per token. The gradients dq and dk
// of a value head are stored in dq_part and dk_part [C,HV,K]. Three barriers separate
// four phases: the load of the vectors, the columns, the rows, and the gates' input
// gradient.
template <class X>
static __global__ void gradients(const struct tile x, float *dq_part, float *dk_part)
{
    __shared__ float k[KMAX], q[KMAX], alpha[KMAX], dy[KMAX];
    __shared__ float e[KMAX], z[KMAX], dO[KMAX];
    const struct kcp_scan &a = x.a;
    const int at = blockIdx.x, n = blockIdx.y, K = a.K, V = a.V, D = a.D;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int64_t t = x.t0 + at, row = (int64_t)at * a.HV + n, KV = (int64_t)K * V;
    const float *S = x.before + row * KV, beta = x.beta[row];
    const float *dS = x.after + ((int64_t)(x.n - 1 - at) * a.HV + n) * KV;
    load_token<X>(x, at, n, k, q, alpha);
    for (int v = threadIdx.x; v < V; v += blockDim.x)
        dO[v] = dropped(a, t) ? 0.0f : x.dO[(t * a.HV + n) * V + v];
    __syncthreads();
    for (int v = threadIdx.x; v < V; v += blockDim.x) {
        float err = in<X>(a.v, t, a.HV, n, V)[v], sum = 0.0f;
        for (int i = 0; i < K; i++) {
            err -= alpha[i] * S[(int64_t)i * V + v] * k[i];
            sum += k[i] * (dS[(int64_t)i * V + v] + q[i] * dO[v]);
        }
        e[v] = err;
        z[v] = sum;
        out<X>(a.dv, t, a.HV, n, V)[v] = beta * sum;
    }
    __syncthreads();
    for (int i = warp; i < K; i += warps) {
        float dq = 0.0f, dk = 0.0f, da = 0.0f;
        const float b = beta * k[i];
        for (int v = lane; v < V; v += 32) {
            const float s = S[(int64_t)i * V + v], Sd = alpha[i] * s;
            const float F = dS[(int64_t)i * V + v] + q[i] * dO[v];
            dq += (Sd + b * e[v]) * dO[v];
            dk += F * e[v] - Sd * z[v];
            da += (F - b * z[v]) * s;
        }
        dq = warp_sum(dq);
        dk = warp_sum(dk);
        da = warp_sum(da);
        if (lane) continue;
        dq_part[row * K + i] = dq;
        dk_part[row * K + i] = beta * dk;
        dy[i] = da * alpha[i] * x.fade[row * K + i];
        out<float>(a.dalpha_base, t, a.HV, n, K)[i] = dy[i];
    }
    float db = 0.0f;
    for (int v = lane; v < V; v += 32) db += e[v] * z[v];
    db = warp_sum(db) * x.beta_slope[row];
    if (threadIdx.x == 0) ((float *)a.dbeta_base)[t * a.HV + n] = db;
    __syncthreads();
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        const float *W = (const float *)a.W_alpha + (int64_t)n * K * D;
        float ds = db * ((const float *)a.w_beta)[n * D + d];
        for (int i = 0; i < K; i++) ds += dy[i] * W[(int64_t)i * D + d];
        out<float>(a.dspike, t, a.HV, n, D)[d] = ds;
    }
}

// Sums dq and dk, in order, over the value heads of each query/key head.
template <class X>
static __global__ void add_group(const struct tile x, const float *dq_part,
                                 const float *dk_part)
{
    const struct kcp_scan &a = x.a;
    const int m = blockIdx.y, group = a.HV / a.H;
    for (int i = threadIdx.x; i < a.K; i += blockDim.x) {
        float dq = 0.0f, dk = 0.0f;
        for (int n = m * group; n < (m + 1) * group; n++) {
            const int64_t at = ((int64_t)blockIdx.x * a.HV + n) * a.K + i;
            dq += dq_part[at];
            dk += dk_part[at];
        }
        out<X>(a.dq, x.t0 + blockIdx.x, a.H, m, a.K)[i] = dq;
        out<X>(a.dk, x.t0 + blockIdx.x, a.H, m, a.K)[i] = dk;
    }
}

// Stores a chunk's terms of dW_alpha [HV,K,D], then the terms of dw_beta [HV,D].
template <class X>
static __global__ void into_weights(const struct kcp_scan a, float *part)
{
    const int c = blockIdx.x, s = ((const int *)a.sc)[c], K = a.K, D = a.D;
    const struct token_range x = chunk_tokens(a, s, c);
    const int64_t W = (int64_t)a.HV * K * D, all = W + (int64_t)a.HV * D;
    const int64_t j = blockIdx.y * (int64_t)blockDim.x + threadIdx.x;
    if (j >= all) return;
    const int d = j % D, i = j < W ? j / D % K : 0;
    const int n = j < W ? j / D / K : (j - W) / D;
    float sum = 0.0f;
    for (int64_t t = x.t; t < x.t + x.len; t++) {
        const float dy = j < W ? in<float>(a.dalpha_base, t, a.HV, n, K)[i]
                               : ((const float *)a.dbeta_base)[t * a.HV + n];
        sum += dy * (float)in<X>(a.spike, t, a.HV, n, D)[d];
    }
    part[c * all + j] = sum;
}

// Initializes a map to [start | I] if `decay` [HV,K] is NULL. Otherwise initializes the
// map to [start | 0] and `decay` to 1, in the format of tree.cuh.
static __global__ void begin_map(int K, int V, const float *start, float *decay,
                                 float *map)
{
    const int64_t n = blockIdx.x;
    for (int e = threadIdx.x; e < K * (V + K); e += blockDim.x) {
        const int i = e / (V + K), c = e % (V + K);
        float x;
        if (c < V) x = start[(n * K + i) * V + c];
        else x = c - V == i && !decay ? 1.0f : 0.0f;
        map[n * K * (V + K) + e] = x;
    }
    for (int i = threadIdx.x; i < K && decay; i += blockDim.x) decay[n * K + i] = 1.0f;
}

// Converts a map to the exchange's format: adds the decay to the diagonal of M, and
// transposes M if `transpose` is set. One block per head.
static __global__ void end_map(int K, int V, const float *decay, int transpose,
                               float *maps)
{
    float *map = maps + (int64_t)blockIdx.x * K * (V + K);
    for (int e = threadIdx.x; e < K * K; e += blockDim.x) {
        const int i = e / K, p = e % K;
        float *ip = map + (int64_t)i * (V + K) + V + p;
        float *pi = map + (int64_t)p * (V + K) + V + i;
        if (p == i && decay) *ip += decay[(int64_t)blockIdx.x * K + i];
        if (p >= i || !transpose) continue;
        const float M = *ip;
        *ip = *pi;
        *pi = M;
    }
}
