// v1_back.cuh -- backward of u, w, kg, qg, Aqk (form), one block per chunk and head.
// Book: chapter 16, "Code: kernels".
#pragma once

#include "v1_form.cuh"

// Solves z = (I + L)^-T dU from the last row to the first, with one thread per value
// column. Then computes dv and domega.
template <class X>
static __global__ void family_solve_back(const struct family x)
{
    const struct token_range s = tokens(x, blockIdx.x);
    const int n = blockIdx.y, v = threadIdx.x, HV = x.a.HV, V = x.a.V, m = x.m;
    float z[CMAX];
    for (int j = s.len - 1; j >= 0; j--) {
        const int64_t t = s.t + j, at = (t * HV + n) * V + v;
        float dv = 0.0f;
        z[j] = in<X>(x.dU, t * m, HV, n, V)[v];
        if (m == 2) dv = in<X>(x.dU, t * m + 1, HV, n, V)[v];
        for (int i = j + 1; i < s.len && x.a.model != KCP_GLA; i++) {
            const int64_t ij = ((s.t + i) * HV + n) * x.C + j;
            z[j] -= x.L[ij] * z[i];
            if (m == 2) dv += x.B[ij] * z[i];
        }
        x.z[at] = z[j];
        if (x.a.model == KCP_GDN2) {
            ((X *)x.a.domega)[at] = z[j] * (float)((const X *)x.a.v)[at];
            dv = z[j] * (float)((const X *)x.a.omega)[at];
        }
        ((X *)x.a.dv)[at] = x.a.model == KCP_GLA ? z[j] : dv;
    }
}

// Computes dL_ij = z_i v_new_j and dB_ij = z_i v_j, the gradients of the scores in the
// triangular systems, with one thread per pair. For DPLR, the system is v_new = r + L
// v_new. For GDN-2, the system is v_new = r - L v_new, so dL is negated.
template <class X>
static __global__ void family_pairs_back(const struct family x)
{
    const struct token_range s = tokens(x, blockIdx.x);
    const int n = blockIdx.y, HV = x.a.HV, V = x.a.V, m = x.m;
    for (int at = threadIdx.x; at < s.len * x.C; at += blockDim.x) {
        const int i = at / x.C, j = at % x.C;
        const float *z = x.z + ((s.t + i) * HV + n) * V;
        float dL = 0.0f, dB = 0.0f;
        for (int v = 0; v < V && j < i; v++) {
            dL += z[v] * (float)in<X>(x.v_new, (s.t + j) * m, HV, n, V)[v];
            dB += z[v] * (float)in<X>(x.a.v, s.t + j, HV, n, V)[v];
        }
        x.dL[((s.t + i) * HV + n) * x.C + j] = m == 2 ? dL : -dL;
        x.dB[((s.t + i) * HV + n) * x.C + j] = dB;
    }
}

// Gradients of one channel in one chunk. `q`, `k` are sums over a group of value heads.
struct channel { float q[CMAX], k[CMAX], b[CMAX], look[CMAX], G[CMAX]; };

// Adds the gradients that come through the states before and after the chunk.
template <class X>
static __device__ void states_back(const struct family &x, struct token_range s, int c,
                                   int n, int d, struct channel &y)
{
    const int HV = x.a.HV, V = x.a.V, m = x.m, last = s.len - 1;
    const X *h = in<X>(x.h, c, HV, n, x.a.K * V) + (int64_t)d * V;
    const X *dh = in<X>(x.dh, c, HV, n, x.a.K * V) + (int64_t)d * V;
    const float G_last = G_of(x, s.t + last, n, d);
    float decay = 0.0f;
    for (int v = 0; v < V; v++) decay += (float)h[v] * (float)dh[v];
    for (int i = 0; i < s.len; i++) {
        const int64_t t = s.t + i;
        const X *dO = in<X>(x.a.do_, t, HV, n, V);
        const float G = G_of(x, t, n, d), *z = x.z + (t * HV + n) * V;
        float dO_h = 0.0f, of_look = 0.0f;
        for (int v = 0; v < V; v++) {
            dO_h += (float)dO[v] * (float)h[v];
            of_look += z[v] * (float)h[v];
        }
        dO_h *= (float)x.a.scale * exp2f(G);
        y.q[i] += dO_h;
        y.G[i] += dO_h * query<X>(x, t, n, d);
        for (int r = 0; r < m; r++) {
            const X *v_new = in<X>(x.v_new, t * m + r, HV, n, V);
            float of_key = 0.0f;
            for (int v = 0; v < V; v++) of_key += (float)v_new[v] * (float)dh[v];
            of_key *= exp2f(G_last - G);
            (r < m - 1 ? y.b : y.k)[i] += of_key;
            if (i < last) {
                of_key *= along<X>(x, t, n, r, d);
                y.G[i] -= of_key;
                y.G[last] += of_key;
            }
        }
        if (x.a.model == KCP_GLA) continue;
        const int e = m == 2 ? i - 1 : i;
        of_look *= (m == 2 ? 1.0f : -1.0f) * (e < 0 ? 1.0f
                                                    : exp2f(G_of(x, s.t + e, n, d)));
        y.look[i] += of_look;
        if (e >= 0) y.G[e] += of_look * look<X>(x, t, n, d);
    }
    y.G[last] += exp2f(G_last) * decay;
}

// Adds the gradients that come through the scores, pair by pair. Terms of dG that
// cancel exactly are omitted.
template <class X>
static __device__ void scores_back(const struct family &x, struct token_range s, int n,
                                   int d, struct channel &y)
{
    const int HV = x.a.HV, m = x.m;
    for (int i = 0; i < s.len; i++) {
        const int64_t ti = s.t + i, row = (ti * HV + n) * x.C;
        const X *dAqk = in<X>(x.dAqk, (ti + 1) * m - 1, HV, n, x.C * m);
        const float q = query<X>(x, ti, n, d), G = G_of(x, ti, n, d);
        const int e = m == 2 ? i - 1 : i;
        for (int j = 0; j <= i; j++) {
            const float Gj = G_of(x, s.t + j, n, d), D = exp2f(G - Gj);
            for (int r = 0; r < m; r++) {
                const float g = (float)dAqk[j * m + r] * D;
                const float k = along<X>(x, s.t + j, n, r, d);
                y.q[i] += g * k;
                (r < m - 1 ? y.b : y.k)[j] += g * q;
                if (j < i) {
                    y.G[i] += g * q * k;
                    y.G[j] -= g * q * k;
                }
            }
            if (j == i || x.a.model == KCP_GLA) continue;
            const float E = exp2f(G_of(x, s.t + e, n, d) - Gj);
            const float a = look<X>(x, ti, n, d), first = along<X>(x, s.t + j, n, 0, d);
            const float gL = x.dL[row + j] * E, gB = m == 2 ? x.dB[row + j] * E : 0.0f;
            const float k = key<X>(x, s.t + j, n, d), both = gL * first + gB * k;
            y.look[i] += both;
            (m == 2 ? y.b : y.k)[j] += gL * a;
            if (m == 2) y.k[j] += gB * a;
            if (e != j) {
                y.G[e] += both * a;
                y.G[j] -= both * a;
            }
        }
    }
}

// A thread processes a channel of a query/key head for all value heads in order, so no
// sum needs several threads. Bound: latency of C^2 sequential pairs in each thread.
template <class X>
static __global__ void family_channels_back(const struct family x)
{
    const struct token_range s = tokens(x, blockIdx.x);
    const int H = x.a.H, HV = x.a.HV, K = x.a.K, group = HV / H, d = threadIdx.x;
    struct channel y;
    for (int i = 0; i < s.len; i++) y.q[i] = y.k[i] = 0.0f;
    for (int n = blockIdx.y * group; n < (int)(blockIdx.y + 1) * group; n++) {
        for (int i = 0; i < s.len; i++) y.b[i] = y.look[i] = y.G[i] = 0.0f;
        states_back<X>(x, s, blockIdx.x, n, d, y);
        scores_back<X>(x, s, n, d, y);
        float dg = 0.0f;
        for (int i = s.len - 1; i >= 0; i--) {
            const int64_t t = s.t + i, at = (t * HV + n) * K + d;
            ((float *)x.a.dg)[at] = dg += y.G[i];
            if (x.a.model == KCP_GDN2) {
                ((X *)x.a.db)[at] = y.look[i] * key<X>(x, t, n, d);
                y.k[i] += y.look[i] * gate_b<X>(x, t, n, d);
            } else if (x.m == 2) {
                ((X *)x.a.da)[at] = y.look[i];
                ((X *)x.a.db)[at] = y.b[i];
            }
        }
    }
    for (int i = 0; i < s.len; i++) {
        out<X>(x.a.dq, s.t + i, H, blockIdx.y, K)[d] = y.q[i];
        out<X>(x.a.dk, s.t + i, H, blockIdx.y, K)[d] = y.k[i];
    }
}
