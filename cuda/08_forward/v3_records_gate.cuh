// v3_records_gate.cuh -- prepare: a chunk's four spans of 16 rows, and what a gate is.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
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
static __device__ __forceinline__ struct span span_of(const struct kcp_forward &a,
                                                      int c)
{
    int t = c * CHUNK, end = (int)a.T;
    if (a.NS != 1) {
        const struct span z = chunk_span(a, ((const int *)a.sc)[c], c);
        t = (int)z.t, end = t + z.len;
    }
    return { (uint32_t)t, min(end - t, (int)CHUNK) };    // half of t needs no register
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
        return __fdividef(f.top, 1.0f + exp2_fast(fmaf(f.times, x, f.plus)));
    const float y = x + f.plus, e = __expf(-fabsf(y));
    const float small = e * (1.0f - e * (0.5f - e * (1.0f / 3.0f)));
    return fmaxf(f.times * (fmaxf(y, 0.0f) + (e < 0.01f ? small : __logf(1.0f + e))),
                 -1000.0f);
}

#endif
