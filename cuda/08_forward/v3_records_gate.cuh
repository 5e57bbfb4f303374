// v3_records_gate.cuh -- prepare, first part: gates summed in spans of 16 rows, norms.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_inverse.cuh.
#ifndef KCP_V3_RECORDS_GATE_CUH
#define KCP_V3_RECORDS_GATE_CUH

#include "v3_records.cuh"

enum { SPAN = 16, SPANS = 4 };

// A chunk's shared memory in prepare. Warp I owns span I, rows 16 I .. of the chunk.
// G is summed within its span alone; fac holds, a channel each, exp2 of whole spans.
template <int K>
struct prepare {
    float G[SPANS][SPAN][K + 4];
    float fac[15][K];                    // see span_factors
    uint4 col[2][6][2][32];              // k for other spans' rows, as B fragments
    uint4 L[6][2][32], A[SPANS][2][32];  // fragments: bf16 and its rest
    float square[SPANS][SPAN][SPAN + 4];
    float beta[CHUNK], own[CHUNK];       // own: Aqk_ii
    float nq[CHUNK], nk[CHUNK];          // scale / |q|, 1 / |k|
    struct span rows;                    // these two here, so that no registers
    int deep;                            // hold them meanwhile
};

// Where square (I, J) of the strict lower triangle lies in a list of six.
static __device__ __forceinline__ int square_of(int I, int J)
{
    return I * (I - 1) / 2 + J;
}

// Base 2 decay of one token and channel from the raw gate, form by form; 2^-1000 is 0,
// and differences of sums stay numbers.
struct gate_of { float times, plus, top; };

template <int form>
static __device__ __forceinline__ struct gate_of gate_of(const struct kcp_forward &a,
                                                         int n, int i)
{
    const float base_2 = 1.44269504088896341f;
    const float dt = a.dt_bias ? ((const float *)a.dt_bias)[n * a.KG + i] : 0.0f;
    const float e = a.A_log ? expf(((const float *)a.A_log)[n]) : 1.0f;
    if (form == KCP_GATE_BOUNDED)        // lb / (1 + 2^(times x + plus))
        return { -e * base_2, -e * base_2 * dt, (float)a.lower_bound * base_2 };
    return { -e * base_2, dt, base_2 };
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

// The raw gate of W neighbouring channels, as pairs (KDA), or the head's one in both.
template <int W>
static __device__ __forceinline__ void load_gate(uint32_t *x, const bf16 *row, int kda)
{
    if (!kda) x[0] = x[W / 2 - 1] = *(const unsigned short *)row * 0x10001u;
    else if (W == 4) *(uint2 *)x = *(const uint2 *)row;
    else x[0] = *(const uint32_t *)row;
}

// G of a span: a lane walks 16 rows of K / 32 channels (KDA), or all lanes the one gate.
// Past the chunk's end nothing is added.
template <int K, int form>
static __device__ __forceinline__ void span_sums(const struct kcp_forward &a,
                                                 struct span z, int n, int I,
                                                 struct prepare<K> &s)
{
    const int lane = threadIdx.x % 32, W = K / 32, kda = a.KG > 1;
    const int len = min(max(z.len - I * SPAN, 0), SPAN);
    const int64_t step = (int64_t)a.HV * a.KG;
    const bf16 *row = in<bf16>(a.g_raw, z.t + (len ? I * SPAN : 0), a.HV, n, a.KG) +
                      (kda ? lane * W : 0);
    uint32_t x[SPAN][W / 2];
    #pragma unroll
    for (int r = 0; r < SPAN; r++) {
        load_gate<W>(x[r], row, kda);
        if (r + 1 < len) row += step;
    }
    struct gate_of f[W];
    #pragma unroll
    for (int j = 0; j < W; j++) f[j] = gate_of<form>(a, n, kda ? lane * W + j : 0);
    float sum[W] = {};
    #pragma unroll
    for (int r = 0; r < SPAN; r++) {
        #pragma unroll
        for (int j = 0; j < W; j++) {
            const float v = j % 2 ? high(x[r][j / 2]) : low(x[r][j / 2]);
            const float g = decay_of<form>(f[j], v);
            if (r < len) sum[j] += g;
        }
        float *to = &s.G[I][r][lane * W];
        if (W == 4) *(float4 *)to = make_float4(sum[0], sum[1], sum[2], sum[3]);
        else *(float2 *)to = make_float2(sum[0], sum[1]);
    }
}

// exp2 of whole spans, D_I, and their products. What leads from span I's own anchor to
// the chunk's start is P_I, to its end E_I; U_I = 1 / D_I, 0 where a span is deep: forgets
// so much that U_I leaves the range of bf16.
enum { P, E = 4, U = 8, D1 = 12, D2, D12, FACTORS };

// True if a span is deep.
template <int K>
static __device__ __forceinline__ int span_factors(struct prepare<K> &s, float *decay)
{
    int deep = 0;
    for (int i = threadIdx.x; i < K; i += blockDim.x) {
        float D[SPANS];
        #pragma unroll
        for (int I = 0; I < SPANS; I++) {
            const float sum = s.G[I][SPAN - 1][i];
            deep |= sum < -118.0f;
            D[I] = exp2_fast(sum);
            s.fac[U + I][i] = sum < -118.0f ? 0.0f : exp2_fast(-sum);
        }
        s.fac[P][i] = s.fac[E + 3][i] = 1.0f;
        s.fac[P + 1][i] = D[0], s.fac[E + 2][i] = D[3];
        s.fac[P + 2][i] = D[0] * D[1], s.fac[E + 1][i] = D[2] * D[3];
        s.fac[P + 3][i] = D[0] * D[1] * D[2], s.fac[E][i] = D[1] * D[2] * D[3];
        s.fac[D1][i] = D[1], s.fac[D2][i] = D[2], s.fac[D12][i] = D[1] * D[2];
        decay[i] = D[0] * s.fac[E][i];
    }
    return __syncthreads_or(deep);
}

// A lane's two rows of its span, g and g + 8: where in q and k they lie, from channel
// 8 (lane % 4) on, the second so far behind the first; 1 / |q|, 1 / |k|, 0 past the end.
struct lane_rows {
    int64_t at;
    int next;
    float nq[2], nk[2];
};

static __device__ __forceinline__ uint4 eight(const bf16 *x)
{
    return *(const uint4 *)x;
}

// The rows' squares are the diagonals of q q^T and k k^T, which the tensor core makes of
// the numbers as they are; so is q k^T's, which needs no decay and no rounding. A lane
// that holds an element of the diagonal is the one that holds it in every square.
template <int K>
static __device__ __forceinline__ void rows_of_lane(const struct kcp_forward &a,
                                                    struct span z, int m, int I,
                                                    struct prepare<K> &to,
                                                    struct lane_rows &y)
{
    const int g = threadIdx.x % 32 / 4, at = threadIdx.x % 4 * 8;
    float d[3][2][4] = {};
    const int i = I * SPAN + g, t = i < z.len ? i : 0;
    y.at = ((z.t + t) * a.H + m) * K + at, y.next = i + 8 < z.len ? 8 * a.H * K : 0;
    const bf16 *qs = (const bf16 *)a.q_raw + y.at, *ks = (const bf16 *)a.k_raw + y.at;
    #pragma unroll
    for (int s = 0; s < K; s += 32) {
        const uint4 q0 = eight(qs + s), q1 = eight(qs + y.next + s);
        const uint4 k0 = eight(ks + s), k1 = eight(ks + y.next + s);
        const uint32_t q[2][4] = { { q0.x, q1.x, q0.y, q1.y }, { q0.z, q1.z, q0.w, q1.w } };
        const uint32_t k[2][4] = { { k0.x, k1.x, k0.y, k1.y }, { k0.z, k1.z, k0.w, k1.w } };
        #pragma unroll
        for (int p = 0; p < 2; p++) {
            mma(d[0][0], q[p], q[p][0], q[p][2]), mma(d[0][1], q[p], q[p][1], q[p][3]);
            mma(d[1][0], k[p], k[p][0], k[p][2]), mma(d[1][1], k[p], k[p][1], k[p][3]);
            mma(d[2][0], q[p], k[p][0], k[p][2]), mma(d[2][1], q[p], k[p][1], k[p][3]);
        }
    }
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        float x[3];
        for (int j = 0; j < 3; j++) x[j] = g % 2 ? d[j][h][2 * h + 1] : d[j][h][2 * h];
        const int i = I * SPAN + g + 8 * h, there = i < z.len;
        const float qq = __shfl_sync(~0u, x[0], g * 4 + g / 2);
        const float kk = __shfl_sync(~0u, x[1], g * 4 + g / 2);
        y.nq[h] = !there ? 0.0f : a.l2norm ? rsqrtf(qq + 1e-6f) : 1.0f;
        y.nk[h] = !there ? 0.0f : a.l2norm ? rsqrtf(kk + 1e-6f) : 1.0f;
        if (threadIdx.x % 4 != g / 2) continue;
        to.nq[i] = y.nq[h] * (float)a.scale, to.nk[i] = y.nk[h];
        to.own[i] = x[2] * to.nq[i] * to.nk[i];
    }
}

#endif
