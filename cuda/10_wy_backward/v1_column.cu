// v1_column.cu -- dq, dk, dv, dbeta, dg: one block per chunk and query/key head.
// Book: chapter 10, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/stages_v1.cuh"

// Bound: reads through the cache, and about C exponentials per token, head and column.
// A block processes the value heads of a query/key head one after another, so no sum
// crosses blocks. Thread d computes column d of the gradients of q, k and G. Sums over
// columns use the workspace [T,HV,V+2K] (fp32). Row (t, n) holds V terms of dbeta, then
// dw [K], then GDN's dG [K]. Later, K more terms of dbeta overwrite dw. A barrier
// precedes each phase that reads what other threads wrote.

template <class Args>
static __device__ __forceinline__ float *sums(const Args &a, int64_t t, int n)
{
    return (float *)a.work + (t * a.HV + n) * (a.V + 2 * a.K);
}

template <class Args>
static __device__ __forceinline__ float beta_of(const Args &a, int64_t t, int n)
{
    return in<float>(a.beta, t, 1, 0, a.HV)[n];
}

template <class X, class Y>
static __device__ float dot(const X *x, const Y *y, int D)
{
    float s = 0.0f;
    for (int p = 0; p < D; p++) s += (float)x[p] * (float)y[p];
    return s;
}

// Computes dw = -dU h^T, and stores dw in the workspace.
template <class X>
static __device__ void state_products(const struct kcp_wy_backward &a,
                                      struct token_range z, int n, const X *h)
{
    for (int d = threadIdx.x; d < a.K; d += blockDim.x)
        for (int64_t t = z.t; t < z.t + z.len; t++)
            sums(a, t, n)[a.V + d] =
                -dot(in<X>(a.dU, t, a.HV, n, a.V), h + d * a.V, a.V);
}

// Computes dA = tril((dU v^T + dw k~^T) diag(beta), -1), where k~ = exp2(G) k.
template <class X>
static __device__ void factors(const struct kcp_wy_backward &a, struct token_range z,
                               int n, float (*dA)[CMAX])
{
    for (int at = threadIdx.x; at < z.len * z.len; at += blockDim.x) {
        const int i = at / z.len, j = at % z.len;
        if (j >= i) continue;
        const int64_t ti = z.t + i, tj = z.t + j;
        const X *k = in<X>(a.k, tj, a.H, n / (a.HV / a.H), a.K);
        const float *dw = sums(a, ti, n) + a.V;
        float s = dot(in<X>(a.dU, ti, a.HV, n, a.V), in<X>(a.v, tj, a.HV, n, a.V), a.V);
        for (int d = 0; d < a.K; d++)
            s += dw[d] * exp2f(gate(a, tj, n, d)) * (float)k[d];
        dA[i][j] = s * beta_of(a, tj, n);
    }
}

// Computes the gradient through A = (I + L)^-1: X = dA A^T, then dL = -tril(A^T X, -1)
// in place of dA.
template <class X>
static __device__ void inverse(const struct kcp_wy_backward &a, struct token_range z,
                               int n, float (*dA)[CMAX], float (*AX)[CMAX])
{
    for (int at = threadIdx.x; at < z.len * z.len; at += blockDim.x) {
        const int i = at / z.len, j = at % z.len;
        const X *A = in<X>(a.A, z.t + j, a.HV, n, a.C);
        float s = 0.0f;
        for (int p = 0; p <= j && j < i; p++) s += dA[i][p] * (float)A[p];
        AX[i][j] = s;
    }
    __syncthreads();
    for (int at = threadIdx.x; at < z.len * z.len; at += blockDim.x) {
        const int i = at / z.len, j = at % z.len;
        float s = 0.0f;
        for (int p = i; p < z.len && j < i; p++)
            s -= (float)in<X>(a.A, z.t + p, a.HV, n, a.C)[i] * AX[p][j];
        dA[i][j] = s;
    }
}

// Computes dvb = A^T dU, dv = beta dvb, and the V terms of dbeta per row, with one
// thread per column.
template <class X>
static __device__ void values(const struct kcp_wy_backward &a, struct token_range z,
                              int n)
{
    for (int v = threadIdx.x; v < a.V; v += blockDim.x)
        for (int j = 0; j < z.len; j++) {
            const int64_t t = z.t + j;
            float dvb = 0.0f;
            for (int i = j; i < z.len; i++)
                dvb += (float)in<X>(a.A, z.t + i, a.HV, n, a.C)[j]
                     * (float)in<X>(a.dU, z.t + i, a.HV, n, a.V)[v];
            out<X>(a.dv, t, a.HV, n, a.V)[v] = beta_of(a, t, n) * dvb;
            sums(a, t, n)[v] = dvb * (float)in<X>(a.v, t, a.HV, n, a.V)[v];
        }
}

// Accumulators of column d, one per row. `dq` and `dk` sum over a group of value heads.
struct column { float dq[CMAX], dk[CMAX], dq2[CMAX], dk2[CMAX], dkt[CMAX]; };

// Computes dq2*_i = sum_{j<i} dAqk_ij k_j D_ij, dk2_i = sum_{j<i} dL_ij k_j D_ij and
// dkt*_j = sum_{i>j} (dAqk_ij q_i + dL_ij beta_i k_i) D_ij, with D_ij = exp2(G_i - G_j)
// <= 1. The sums dq2* and dkt* omit i = j: these terms would cancel in dG.
template <class X>
static __device__ void pairs(const struct kcp_wy_backward &a, struct token_range z,
                             int n, int d, const float (*dL)[CMAX], struct column *x)
{
    const int m = n / (a.HV / a.H);
    for (int i = 0; i < z.len; i++) x->dq2[i] = x->dk2[i] = x->dkt[i] = 0.0f;
    //> kernel-starred
    for (int i = 1; i < z.len; i++) {
        const X *dAqk = in<X>(a.dAqk, z.t + i, a.HV, n, a.C);
        const float q = in<X>(a.q, z.t + i, a.H, m, a.K)[d];
        const float k = in<X>(a.k, z.t + i, a.H, m, a.K)[d];
        const float beta = beta_of(a, z.t + i, n);
        for (int j = 0; j < i; j++) {
            const float D = exp2f(gate(a, z.t + i, n, d) - gate(a, z.t + j, n, d));
            const float kj = in<X>(a.k, z.t + j, a.H, m, a.K)[d];
            x->dq2[i] += (float)dAqk[j] * kj * D;
            x->dk2[i] += dL[i][j] * kj * D;
            x->dkt[j] += ((float)dAqk[j] * q + dL[i][j] * beta * k) * D;
        }
    }
    //< kernel-starred
}

// Computes column d of the gradients as the sum over all paths of the chain rule. For
// KDA, stores dg_t, the sum of dG from row t to the last. For GDN, stores dG in the
// workspace. Let dk_s be the part of dk that comes from dS. In the last row, dG also
// contains exp2(G_last) sum_v h dS and the sum of k dk_s over all earlier rows.
template <class X>
static __device__ void combine_paths(const struct kcp_wy_backward &a,
                                     struct token_range z, int n, int d, const X *h,
                                     const X *dS, struct column *x)
{
    const int m = n / (a.HV / a.H), kda = a.KG > 1;
    const int64_t last = z.t + z.len - 1;
    const float G_last = gate(a, last, n, d);
    float dG_last = exp2f(G_last) * dot(h, dS, a.V);

    for (int i = 0; i < z.len; i++) {
        const int64_t t = z.t + i;
        const float q = in<X>(a.q, t, a.H, m, a.K)[d], G = gate(a, t, n, d);
        const float k = in<X>(a.k, t, a.H, m, a.K)[d], beta = beta_of(a, t, n);
        const float E = exp2f(G), dAqk_ii = in<X>(a.dAqk, t, a.HV, n, a.C)[i];
        const float dq1 = (float)a.scale * E
                        * dot(in<X>(a.do_, t, a.HV, n, a.V), h, a.V);
        const float dk_s = exp2f(G_last - G)
                         * dot(in<X>(a.v_new, t, a.HV, n, a.V), dS, a.V);
        float dkgb = 0.0f;
        for (int p = i; p < z.len; p++)
            dkgb += (float)in<X>(a.A, z.t + p, a.HV, n, a.C)[i]
                  * sums(a, z.t + p, n)[a.V + d];
        const float dk_b = E * dkgb + x->dk2[i], dk_s_star = t < last ? dk_s : 0.0f;

        x->dq[i] += dq1 + x->dq2[i] + dAqk_ii * k;
        x->dk[i] += dk_s + beta * dk_b + x->dkt[i] + dAqk_ii * q;
        dG_last += k * dk_s_star;
        const float dG = q * (dq1 + x->dq2[i]) - k * dk_s_star
                       + k * (beta * dk_b - x->dkt[i]) + (t == last ? dG_last : 0.0f);
        sums(a, t, n)[a.V + d] = dk_b * k;     // row i of dw is not read again
        if (kda) out<float>(a.dg, t, a.HV, n, a.K)[d] = dG;
        else sums(a, t, n)[a.V + a.K + d] = dG;
    }
    if (!kda) return;
    float dg = 0.0f;
    for (int64_t t = last; t >= z.t; t--) {
        float *dG = out<float>(a.dg, t, a.HV, n, a.K) + d;
        *dG = dg += *dG;
    }
}

// A thread per row computes dbeta = sum_v dvb v + sum_d (dkgb k~ + dk2 k), where dkgb =
// A^T dw. For GDN, also sums dG over d, and over rows t to the last (dg_t).
static __device__ void row_sums(const struct kcp_wy_backward &a, struct token_range z,
                                int n, float *dG)
{
    for (int i = threadIdx.x; i < z.len; i += blockDim.x) {
        const float *x = sums(a, z.t + i, n);
        float s = 0.0f;
        for (int p = 0; p < a.V + a.K; p++) s += x[p];
        out<float>(a.dbeta, z.t + i, 1, 0, a.HV)[n] = s;
        dG[i] = 0.0f;
        for (int d = 0; d < a.K && a.KG == 1; d++) dG[i] += x[a.V + a.K + d];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < z.len && a.KG == 1; i += blockDim.x) {
        float s = 0.0f;
        for (int p = z.len - 1; p >= i; p--) s += dG[p];
        out<float>(a.dg, z.t + i, a.HV, n, 1)[0] = s;
    }
}

template <class X>
static __global__ void wy_backward(const struct kcp_wy_backward a)
{
    __shared__ float dA[CMAX][CMAX], AX[CMAX][CMAX];
    const int c = blockIdx.x, m = blockIdx.y, group = a.HV / a.H, d = threadIdx.x;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    struct column x;
    for (int i = 0; i < z.len; i++) x.dq[i] = x.dk[i] = 0.0f;
    for (int n = m * group; n < (m + 1) * group; n++) {
        const int64_t state = ((int64_t)c * a.HV + n) * a.K * a.V;
        const X *h = (const X *)a.h + state, *dS = (const X *)a.dh + state;
        state_products<X>(a, z, n, h);
        __syncthreads();
        factors<X>(a, z, n, dA);
        __syncthreads();
        inverse<X>(a, z, n, dA, AX);
        __syncthreads();
        values<X>(a, z, n);
        if (d < a.K) {
            pairs<X>(a, z, n, d, dA, &x);
            combine_paths<X>(a, z, n, d, h + d * a.V, dS + d * a.V, &x);
        }
        __syncthreads();
        row_sums(a, z, n, AX[0]);
    }
    for (int i = 0; i < z.len && d < a.K; i++) {
        out<X>(a.dq, z.t + i, a.H, m, a.K)[d] = x.dq[i];
        out<X>(a.dk, z.t + i, a.H, m, a.K)[d] = x.dk[i];
    }
}

size_t v1_wy_backward_work(const void *args)
{
    const struct kcp_wy_backward *a = (const struct kcp_wy_backward *)args;
    return sizeof(float) * a->T * a->HV * (a->V + 2 * a->K);
}

template <class X>
int v1_wy_backward(void *args)
{
    const struct kcp_wy_backward *a = (const struct kcp_wy_backward *)args;
    if (!v1_takes((const struct kcp_call *)a)) return KCP_NA;
    if (a->work_bytes < v1_wy_backward_work(args)) return KCP_BAD;
    if (a->NC) wy_backward<X><<<dim3(a->NC, a->H), KMAX, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(wy_backward_v1_column, "10_wy_backward", "v1_column",
    "one block per chunk and query/key head, one thread per column",
    "K, V up to 256, C up to 64", v1_wy_backward<X>, v1_wy_backward_work);
