// v1_form.cuh -- u, w, kg, qg, Aqk (form) of any model, one block per chunk and head.
// Book: chapter 16, "Code: kernels".
#pragma once

#include "workspace.cuh"
#include "cuda/tile/math.cuh"

// Returns G of token t, channel d. All rows of a token have the same G.
static __device__ __forceinline__ float G_of(const struct family &x, int64_t t, int n,
                                             int d)
{
    return x.G[(t * x.m * x.a.HV + n) * x.a.K + d];
}

template <class X>
static __device__ __forceinline__ float query(const struct family &x, int64_t t, int n,
                                              int d)
{
    return (float)in<X>(x.a.q, t, x.a.H, n / (x.a.HV / x.a.H), x.a.K)[d];
}

template <class X>
static __device__ __forceinline__ float key(const struct family &x, int64_t t, int n,
                                            int d)
{
    return (float)in<X>(x.a.k, t, x.a.H, n / (x.a.HV / x.a.H), x.a.K)[d];
}

template <class X>
static __device__ __forceinline__ float gate_b(const struct family &x, int64_t t, int n,
                                               int d)
{
    return (float)in<X>(x.a.b, t, x.a.HV, n, x.a.K)[d];
}

// Returns the vector with which a token reads the state: DPLR's a, or GDN-2's b k.
template <class X>
static __device__ __forceinline__ float look(const struct family &x, int64_t t, int n,
                                             int d)
{
    if (x.m == 2) return (float)in<X>(x.a.a, t, x.a.HV, n, x.a.K)[d];
    return gate_b<X>(x, t, n, d) * key<X>(x, t, n, d);
}

// Returns the key along which row r of a token writes. DPLR's two rows write along b
// and k. Rows of other models write along k.
template <class X>
static __device__ __forceinline__ float along(const struct family &x, int64_t t, int n,
                                              int r, int d)
{
    return r < x.m - 1 ? gate_b<X>(x, t, n, d) : key<X>(x, t, n, d);
}

// Computes G, the chunk's running sum of gates, in base 2, with one thread per channel.
// Gates below -750 are replaced by -750.
static __global__ void family_gate(const struct family x)
{
    const struct token_range s = tokens(x, blockIdx.x);
    const int n = blockIdx.y, d = threadIdx.x;
    float G = 0.0f;
    for (int64_t t = s.t; t < s.t + s.len; t++) {
        const float g = in<float>(x.a.g, t, x.a.HV, n, x.a.K)[d];
        G += max_or_nan(g, -750.0f) * 1.4426950408889634f;
        for (int r = 0; r < x.m; r++) x.G[((t * x.m + r) * x.a.HV + n) * x.a.K + d] = G;
    }
}

// Computes Aqk and the matrices of the triangular systems, with one thread per pair (i,
// j). No exponent is above 0. Bound: C^2 K / 2 exponentials per score. If a token reads
// the state before the decay (DPLR), the read uses G of the previous token.
template <class X>
static __global__ void family_scores(const struct family x)
{
    const struct token_range s = tokens(x, blockIdx.x);
    const int n = blockIdx.y, HV = x.a.HV, K = x.a.K, m = x.m;
    for (int at = threadIdx.x; at < s.len * x.C; at += blockDim.x) {
        const int i = at / x.C, j = at % x.C;
        const int64_t ti = s.t + i, tj = s.t + j, te = m == 2 ? ti - 1 : ti;
        float qk[2] = { 0.0f, 0.0f }, L = 0.0f, B = 0.0f;
        //> kernel-scores
        for (int d = 0; d < K && j <= i; d++) {
            const float D = query<X>(x, ti, n, d) *
                            exp2f(G_of(x, ti, n, d) - G_of(x, tj, n, d));
            for (int r = 0; r < m; r++) qk[r] += D * along<X>(x, tj, n, r, d);
            if (j == i || x.a.model == KCP_GLA) continue;
            const float E = look<X>(x, ti, n, d) *
                            exp2f(G_of(x, te, n, d) - G_of(x, tj, n, d));
            L += E * along<X>(x, tj, n, 0, d);
            B += E * key<X>(x, tj, n, d);
        }
        //< kernel-scores
        X *Aqk = out<X>(x.Aqk, (ti + 1) * m - 1, HV, n, x.C * m) + j * m;
        for (int r = 0; r < m; r++) Aqk[r] = (float)x.a.scale * qk[r];
        x.L[(ti * HV + n) * x.C + j] = m == 2 ? -L : L;      // for x = r - L x
        x.B[(ti * HV + n) * x.C + j] = B;
    }
}

// Computes column d of w, kg and qg.
template <class X>
static __device__ void key_column(const struct family &x, struct token_range s, int n,
                                  int d)
{
    const int HV = x.a.HV, K = x.a.K, m = x.m;
    const float last = G_of(x, s.t + s.len - 1, n, d);
    float w[CMAX];
    for (int i = 0; i < s.len; i++) {
        const int64_t t = s.t + i, e = t * m;
        const float G = G_of(x, t, n, d);
        float faded = 1.0f;
        if (m == 1) faded = exp2f(G);
        else if (i) faded = exp2f(G_of(x, t - 1, n, d));
        w[i] = x.a.model == KCP_GLA ? 0.0f : faded * look<X>(x, t, n, d);
        if (m == 2) w[i] = -w[i];                            // the form has u - w S
        for (int j = 0; j < i && x.a.model != KCP_GLA; j++)
            w[i] -= x.L[(t * HV + n) * x.C + j] * w[j];
        out<X>(x.w, e, HV, n, K)[d] = w[i];
        for (int r = 0; r < m; r++)
            out<X>(x.kg, e + r, HV, n, K)[d] =
                exp2f(last - G) * along<X>(x, t, n, r, d);
        out<X>(x.qg, e + m - 1, HV, n, K)[d] = exp2f(G) * query<X>(x, t, n, d);
    }
}

// Computes column v of u.
template <class X>
static __device__ void value_column(const struct family &x, struct token_range s, int n,
                                    int v)
{
    const int HV = x.a.HV, V = x.a.V, m = x.m;
    float u[CMAX];
    for (int i = 0; i < s.len; i++) {
        const int64_t t = s.t + i;
        const float value = in<X>(x.a.v, t, HV, n, V)[v];
        u[i] = m == 2 ? 0.0f : value;
        if (x.a.model == KCP_GDN2) u[i] *= (float)in<X>(x.a.omega, t, HV, n, V)[v];
        for (int j = 0; j < i && x.a.model != KCP_GLA; j++) {
            const int64_t ij = (t * HV + n) * x.C + j;
            u[i] -= x.L[ij] * u[j];
            if (m == 2) u[i] += x.B[ij] * (float)in<X>(x.a.v, s.t + j, HV, n, V)[v];
        }
        out<X>(x.u, t * m, HV, n, V)[v] = u[i];
        if (m == 2) out<X>(x.u, t * m + 1, HV, n, V)[v] = value;
    }
}

// A thread computes one column of w or u by solving the triangular system from the
// first row to the last, independently of other columns.
template <class X>
static __global__ void family_columns(const struct family x)
{
    const struct token_range s = tokens(x, blockIdx.x);
    const int n = blockIdx.y, col = threadIdx.x;
    if (col < x.a.K) key_column<X>(x, s, n, col);
    else value_column<X>(x, s, n, col - x.a.K);
}
