// v3_records_gate.cuh -- prepare, first part: gates summed in spans of 16 rows, norms.
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

// Factors of whole spans, D_I = exp2 of their sums: what leads from span I's own anchor
// to the chunk's start is P_I, to its end E_I. A span is deep if it forgets so much
// that 1 / D_I leaves the range of bf16.
enum { P, E = 4, D1 = 8, D2, D12, FACTORS };

// A chunk's shared memory in prepare. G is summed within its span alone; fac holds, a
// channel each, exp2 of whole spans. The squares take G's place when it has been used.
template <int K>
struct prepare {
    union {
        float G[SPANS][SPAN][K + 4];
        struct {
            uint4 L[10][2][32], A[SPANS][2][32];   // fragments: bf16 and its rest
            float square[SPANS][SPAN][SPAN + 4];
        };
    };
    float fac[FACTORS][K];                    // see span_factors
    uint4 col[2][10][2][32];             // k for a span's rows, as B fragments
    float beta[CHUNK], own[CHUNK];       // own: Aqk_ii
    float2 norm[CHUNK];                  // scale / |q|, 1 / |k|, 0 past the end
    struct span rows;                    // these here, so that no registers hold them:
    int64_t base;                        // where the chunk lies in q and k,
    void *record;
    int deep;
};

// Where square (I, J) of the lower triangle lies in a list of ten.
static __device__ __forceinline__ int square_of(int I, int J)
{
    return I * (I + 1) / 2 + J;
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

// The raw gate of W neighbouring channels, in one register.
template <int W>
static __device__ __forceinline__ uint32_t load_gate(const bf16 *row)
{
    if (W == 2) return *(const uint32_t *)row;
    return *(const unsigned short *)row;
}

// G of a span, half of its channels: a lane walks 16 rows of K / 64 channels. Past the
// chunk's end nothing is added.
template <int K, int form>
static __device__ __forceinline__ void span_sums(const struct kcp_forward &a,
                                                 struct span z, int n, struct role w,
                                                 struct prepare<K> &s)
{
    const int W = K / 64, at = (w.h * 32 + threadIdx.x % 32) * W;
    int len = min(max(z.len - w.I * SPAN, 0), SPAN);
    const bf16 *g = in<bf16>(a.g_raw, z.t + (len ? w.I * SPAN : 0), a.HV, n, K) + at;
    asm volatile("" : "+r"(len));        // no need to work it out for the whole warp
    uint32_t x[SPAN];
    #pragma unroll
    for (int r = 0; r < SPAN; r++)
        x[r] = load_gate<W>(g + min(r, max(len - 1, 0)) * a.HV * K);
    struct gate_of f[W];
    #pragma unroll
    for (int j = 0; j < W; j++) f[j] = gate_of<form>(a, n, at + j);
    float sum[W] = {};
    #pragma unroll
    for (int r = 0; r < SPAN; r++) {
        #pragma unroll
        for (int j = 0; j < W; j++) {
            const float g = decay_of<form>(f[j], j ? high(x[r]) : low(x[r]));
            if (r < len) sum[j] += g;
            s.G[w.I][r][at + j] = sum[j];
        }
    }
}

// Two threads a channel, true if a span is deep.
template <int K>
static __device__ __forceinline__ int span_factors(struct prepare<K> &s, float *decay)
{
    const int i = threadIdx.x % K, part = threadIdx.x / K;
    float D[SPANS], (*f)[K] = s.fac;
    int deep = 0;
    #pragma unroll
    for (int I = 0; I < SPANS; I++) {
        const float sum = s.G[I][SPAN - 1][i];
        deep |= sum < -118.0f;
        D[I] = exp2_fast(sum);
    }
    if (part == 0) {
        f[E + 3][i] = 1.0f, f[E + 2][i] = D[3], f[E + 1][i] = D[2] * D[3];
        f[E][i] = D[1] * D[2] * D[3], decay[i] = D[0] * D[1] * D[2] * D[3];
    } else if (part == 1) {
        f[P][i] = 1.0f, f[P + 1][i] = D[0], f[P + 2][i] = D[0] * D[1];
        f[P + 3][i] = D[0] * D[1] * D[2];
        f[D1][i] = D[1], f[D2][i] = D[2], f[D12][i] = D[1] * D[2];
    }
    return __syncthreads_or(deep);
}

static __device__ __forceinline__ uint4 eight(const bf16 *x)
{
    return *(const uint4 *)x;
}

// A lane's row, and where in q and k it lies from the chunk's on, from channel
// 8 (lane % 4) on.
struct lane_row { int at, i; };

static __device__ __forceinline__ struct lane_row row_of_lane(
    const struct kcp_forward &a, struct span z, struct role w)
{
    const int i = w.I * SPAN + w.h * 8 + threadIdx.x % 32 / 4;
    return { (i < z.len ? i : 0) * a.H * a.K + (int)threadIdx.x % 4 * 8, i };
}

// Eight rows of q and of k, 32 channels of them: a lane has eight of one row.
struct row_of_slice { uint4 q, k; };

static __device__ __forceinline__ struct row_of_slice raw_row(
    const struct kcp_forward &a, int64_t at)
{
    return { eight((const bf16 *)a.q_raw + at), eight((const bf16 *)a.k_raw + at) };
}

template <int K>
static __device__ __forceinline__ void raw_rows(const struct kcp_forward &a, int64_t at,
                                                struct row_of_slice *raw)
{
    #pragma unroll
    for (int s = 0; s < K / 32; s++) raw[s] = raw_row(a, at + 32 * s);
}

// The rows' squares are the diagonals of q q^T and k k^T, which the tensor core makes
// of the numbers as they are; so is q k^T's, which needs no decay and no rounding. A's
// rows are eight of q and the same eight of k.
template <int K>
static __device__ __forceinline__ void norms(const struct kcp_forward &a, struct span z,
                                             const struct row_of_slice *raw,
                                             const struct lane_row &l,
                                             struct prepare<K> &to)
{
    float of_q[4] = {}, of_k[4] = {};
    #pragma unroll
    for (int s = 0; s < K / 32; s++) {
        const uint4 x = raw[s].q, y = raw[s].k;
        const uint32_t one[4] = { x.x, y.x, x.y, y.y }, two[4] = { x.z, y.z, x.w, y.w };
        mma(of_q, one, x.x, x.y), mma(of_k, one, y.x, y.y);
        mma(of_q, two, x.z, x.w), mma(of_k, two, y.z, y.w);
    }
    const int g = threadIdx.x % 32 / 4, there = l.i < z.len;
    if (threadIdx.x % 4 != g / 2) return;
    const float qq = g % 2 ? of_q[1] : of_q[0], qk = g % 2 ? of_k[1] : of_k[0];
    const float kk = g % 2 ? of_k[3] : of_k[2];
    const float nq = !there ? 0.0f : a.l2norm ? rsqrtf(qq + 1e-6f) : 1.0f;
    const float nk = !there ? 0.0f : a.l2norm ? rsqrtf(kk + 1e-6f) : 1.0f;
    to.norm[l.i] = make_float2(nq * (float)a.scale, nk);
    to.own[l.i] = qk * nq * nk * (float)a.scale;
}

#endif
