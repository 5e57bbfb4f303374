// v1_pairs.cu -- the WY form: one block per chunk and head, one thread per pair.
// Book: chapter 03, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/stages_v1.cuh"

// Bound: C^2 K/2 exponentials per chunk and head. The factor exp2(G_i - G_j) is
// computed per pair, so no exponent is above 0 and no gate overflows. Loads of q, k and
// G go through the cache. L and A [C,C] are in shared memory (32 KiB).

// Computes Aqk_ij = scale sum_d q_i k_j exp2(G_i - G_j), i >= j, and L_ij = beta_i
// sum_d k_i k_j exp2(G_i - G_j), i > j. A thread computes one pair (i, j).
template <class X>
static __device__ void pairs(const struct kcp_wy &a, struct token_range z, int n,
                             float (*L)[CMAX])
{
    const int m = n / (a.HV / a.H);
    for (int at = threadIdx.x; at < z.len * a.C; at += blockDim.x) {
        const int i = at / a.C, j = at % a.C;
        const int64_t ti = z.t + i, tj = z.t + j;
        float qk = 0.0f, kk = 0.0f;
        //> kernel-pair
        if (j <= i) {
            const X *q = in<X>(a.q, ti, a.H, m, a.K), *ki = in<X>(a.k, ti, a.H, m, a.K);
            const X *kj = in<X>(a.k, tj, a.H, m, a.K);
            for (int d = 0; d < a.K; d++) {
                const float D = exp2f(gate(a, ti, n, d) - gate(a, tj, n, d));
                qk += (float)q[d] * (float)kj[d] * D;
                kk += (float)ki[d] * (float)kj[d] * D;
            }
        }
        //< kernel-pair
        out<X>(a.Aqk, ti, a.HV, n, a.C)[j] = (float)a.scale * qk;
        L[i][j] = j < i ? in<float>(a.beta, ti, 1, 0, a.HV)[n] * kk : 0.0f;
    }
}

// Computes A = (I + L)^-1 by forward substitution. Thread j computes column j and reads
// no other column, so no barrier is needed.
template <class X>
static __device__ void inverse(const struct kcp_wy &a, struct token_range z, int n,
                               const float (*L)[CMAX], float (*A)[CMAX])
{
    for (int j = threadIdx.x; j < a.C; j += blockDim.x)
        for (int i = 0; i < z.len; i++) {
            float x = i == j;
            for (int p = j; p < i; p++) x -= L[i][p] * A[p][j];
            A[i][j] = x;
            out<X>(a.A, z.t + i, a.HV, n, a.C)[j] = x;
        }
}

// Computes u = A (beta v) and w = A (beta exp2(G) k), with one thread per column.
template <class X>
static __device__ void columns(const struct kcp_wy &a, struct token_range z, int n,
                               const float (*A)[CMAX])
{
    const int m = n / (a.HV / a.H);
    float x[CMAX];

    for (int v = threadIdx.x; v < a.V; v += blockDim.x) {
        for (int p = 0; p < z.len; p++)
            x[p] = in<float>(a.beta, z.t + p, 1, 0, a.HV)[n]
                 * (float)in<X>(a.v, z.t + p, a.HV, n, a.V)[v];
        for (int i = 0; i < z.len; i++) {
            float u = 0.0f;
            for (int p = 0; p <= i; p++) u += A[i][p] * x[p];
            out<X>(a.u, z.t + i, a.HV, n, a.V)[v] = u;
        }
    }
    for (int d = threadIdx.x; d < a.K; d += blockDim.x) {
        for (int p = 0; p < z.len; p++)
            x[p] = in<float>(a.beta, z.t + p, 1, 0, a.HV)[n]
                 * exp2f(gate(a, z.t + p, n, d))
                 * (float)in<X>(a.k, z.t + p, a.H, m, a.K)[d];
        for (int i = 0; i < z.len; i++) {
            float w = 0.0f;
            for (int p = 0; p <= i; p++) w += A[i][p] * x[p];
            out<X>(a.w, z.t + i, a.HV, n, a.K)[d] = w;
        }
    }
}

// KDA only: computes kg = exp2(G_last - G) k and qg = exp2(G) q.
template <class X>
static __device__ void gated_rows(const struct kcp_wy &a, struct token_range z, int n)
{
    const int m = n / (a.HV / a.H);
    const int64_t last = z.t + z.len - 1;
    for (int at = threadIdx.x; at < z.len * a.K; at += blockDim.x) {
        const int64_t t = z.t + at / a.K;
        const int d = at % a.K;
        const float G = gate(a, t, n, d);
        out<X>(a.qg, t, a.HV, n, a.K)[d] =
            exp2f(G) * (float)in<X>(a.q, t, a.H, m, a.K)[d];
        out<X>(a.kg, t, a.HV, n, a.K)[d] =
            exp2f(gate(a, last, n, d) - G) * (float)in<X>(a.k, t, a.H, m, a.K)[d];
    }
}

// The kernel has two barriers: L must be complete before the inversion, and A before
// the products.
template <class X>
static __global__ void wy(const struct kcp_wy a)
{
    __shared__ float L[CMAX][CMAX], A[CMAX][CMAX];
    const int c = blockIdx.x, n = blockIdx.y;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);

    pairs<X>(a, z, n, L);
    __syncthreads();
    inverse<X>(a, z, n, L, A);
    __syncthreads();
    columns<X>(a, z, n, A);
    if (a.model == KCP_KDA) gated_rows<X>(a, z, n);
}

template <class X>
int v1_wy(void *args)
{
    const struct kcp_wy *a = (const struct kcp_wy *)args;
    if (!v1_takes((const struct kcp_call *)a)) return KCP_NA;
    if (a->NC) wy<X><<<dim3(a->NC, a->HV), 256, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(wy_v1_pairs, "03_wy", "v1_pairs",
    "one block per chunk and head, one thread per pair", "K, V up to 256, C up to 64",
    v1_wy<X>);
