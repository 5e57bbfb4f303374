// v3_records_gate.cuh -- prepare: a chunk's four spans of 16 rows, and what gates are.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_inverse.cuh.
#ifndef KCP_V3_RECORDS_GATE_CUH
#define KCP_V3_RECORDS_GATE_CUH

#include "v3_records.cuh"

enum { SPAN = 16, SPANS = 4 };

// Eight warps: warp (I, h) owns rows 8 h .. of span I, which is rows 16 I .. of the
// chunk.
struct role { int I, h; };

// Where square (I, J) of the lower triangle lies in a list of ten.
static __device__ __forceinline__ int square_of(int I, int J)
{
    return I * (I + 1) / 2 + J;
}

// Chunk c of this rank. One stretch needs no look into its tables.
static __device__ __forceinline__ struct token_range span_of(
    const struct kcp_forward &a, int c)
{
    int t = c * CHUNK, end = (int)a.T;
    if (a.NS != 1) {
        const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
        t = (int)z.t, end = t + z.len;
    }
    return { (uint32_t)t, min(end - t, (int)CHUNK) };    // half of t needs no register
}

static __device__ __forceinline__ float beta_of(const struct records &x, float raw)
{
    const float top = x.a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f;
    return x.a.beta_form == KCP_BETA_RAW ? raw
                                         : __fdividef(top, 1.0f + __expf(-raw));
}

// Base 2 decay of one token and channel from the raw gate, form by form; 2^-1000 is 0,
// and differences of sums stay numbers.
struct gate_of { float times, plus, top; };

template <int form>
static __device__ __forceinline__ struct gate_of gate_from(const struct kcp_forward &a,
                                                           float e, float dt)
{
    const float base_2 = 1.44269504088896341f;
    if (form == KCP_GATE_BOUNDED)        // lb / (1 + 2^(times x + plus))
        return { -e * base_2, -e * base_2 * dt, (float)a.lower_bound * base_2 };
    return { -e * base_2, dt, base_2 };
}

template <int form>
static __device__ __forceinline__ struct gate_of gate_of(const struct kcp_forward &a,
                                                         int n, int i)
{
    const float dt = a.dt_bias ? ((const float *)a.dt_bias)[n * a.KG + i] : 0.0f;
    const float e = a.A_log ? expf(((const float *)a.A_log)[n]) : 1.0f;
    return gate_from<form>(a, e, dt);
}

template <int form>
static __device__ __forceinline__ float decay_of(struct gate_of f, float x)
{
    if (form == KCP_GATE_RAW) return fmaxf(f.top * x, -1000.0f);
    if (form == KCP_GATE_BOUNDED)
        return __fdividef(f.top, 1.0f + ex2_approx(fmaf(f.times, x, f.plus)));
    const float y = x + f.plus, e = __expf(-fabsf(y));
    const float small = e * (1.0f - e * (0.5f - e * (1.0f / 3.0f)));
    return fmaxf(f.times * (fmaxf(y, 0.0f) + (e < 0.01f ? small : __logf(1.0f + e))),
                 -1000.0f);
}

// One gate a head: base 2 decay of two rows from their raw gates; not below 2^-200,
// which is 0 as fp32, so that sums of it keep their digits.
template <int form>
static __device__ __forceinline__ void decays(const struct records &x, int n, float *g)
{
    const struct gate_of f = gate_of<form>(x.a, n, 0);
    #pragma unroll
    for (int h = 0; h < 2; h++) g[h] = fmaxf(decay_of<form>(f, g[h]), -200.0f);
}

// G and beta of a value head, by a warp: a lane has rows lane and lane + 32. Past the
// end there is no decay, and beta is 0.
static __device__ __forceinline__ void head_sums(const struct records &x,
                                                 struct token_range z, int n, float *G,
                                                 float *beta)
{
    const int lane = threadIdx.x % 32;
    float g[2], b[2], before = 0.0f;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int64_t at = (z.t + min(lane + 32 * h, z.len - 1)) * x.a.HV + n;
        g[h] = (float)((const bf16 *)x.a.g_raw)[at];
        b[h] = (float)((const bf16 *)x.a.beta_raw)[at];
    }
    if (x.a.gate == KCP_GATE_BOUNDED) decays<KCP_GATE_BOUNDED>(x, n, g);
    else if (x.a.gate == KCP_GATE_RAW) decays<KCP_GATE_RAW>(x, n, g);
    else decays<KCP_GATE_SOFTPLUS>(x, n, g);
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = lane + 32 * h, there = i < z.len;
        float sum = there ? g[h] : 0.0f;
        for (int d = 1; d < 32; d *= 2) {
            const float y = __shfl_up_sync(~0u, sum, d, 32);
            if (lane >= d) sum += y;
        }
        G[i] = sum += before;
        before = __shfl_sync(~0u, sum, 31);
        beta[i] = there ? beta_of(x, b[h]) : 0.0f;
        if (there && x.to13.beta)
            ((float *)x.to13.beta)[(z.t + i) * x.a.HV + n] = beta[i];
    }
}

#endif
