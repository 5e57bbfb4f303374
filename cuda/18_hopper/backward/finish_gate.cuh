// finish_gate.cuh -- KDA's finishing kernel: the raw gate's decay and gradient.
// Book: chapter 18c.
#pragma once

#include "finish_producer.cuh"
#include "cuda/tile/softplus.cuh"

// Constants of two channels, with raw gate x and y = x + dt_bias. For a bounded gate,
// `times` is -exp(A_log) log2(e), and g = lower_bound / (1 + 2^u) with u = `times` y.
// For a softplus gate, `times` is -exp(A_log), and the log2 decay is
// `times` log2(1 + 2^u) with u = log2(e) y. `plus` is u at x = 0.
struct finish_gate {
    float times, plus[2];
};

static const __device__ float LOG2_E = 1.44269504088896341f;

template <int K, int form>
static __device__ __forceinline__ struct finish_gate finish_gate_of(
    const struct finish_vectors<K> &of)
{
    const int channel = mma_coords_of_thread().channel;
    const float dt[2] = { of.dt_bias[channel], of.dt_bias[channel + 8] };
    const float e = of.exp_A;
    if (form == KCP_GATE_BOUNDED) {
        const float times = -e * LOG2_E;
        return { times, { times * dt[0], times * dt[1] } };
    }
    return { -e, { LOG2_E * dt[0], LOG2_E * dt[1] } };
}

// Loads this lane's raw gates from global memory, where they are fp32. In a partial
// chunk (`whole` is 0), tokens past the end get 0.
template <int K, int whole>
static __device__ __forceinline__ void load_gates(const struct kcp_backward &a,
                                                  struct finish_position z,
                                                  float (*x)[4])
{
    const struct mma_coords p = mma_coords_of_thread();
    const float *from = in<float>(a.g_raw, z.t + p.e, a.HV, z.n, K) + p.channel;
    const int64_t row = (int64_t)a.HV * K;
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int there = whole || 8 * t + p.e + j % 2 < z.len;
            x[t][j] = there ? from[j % 2 * row + j / 2 * 8] : 0.0f;
        }
        from += 8 * row;
    }
}

// Loads this lane's raw gates from the tile, where they are bf16 or fp16.
template <enum kcp_type gate>
static __device__ __forceinline__ void load_tile_gates(const unsigned char *tile,
                                                       float (*x)[4])
{
    pairs_of_tokens pairs;
    load_channels(pairs, tile);
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const float2 pair = unpack_pair<gate>(pairs[t][h]);
            x[t][2 * h] = pair.x;
            x[t][2 * h + 1] = pair.y;
        }
}

// Replaces raw gates by log2 decays, of which those without a bound are at least -256,
// because 2^-256 is 0 in fp32, and sums of such numbers stay accurate.
template <int form>
static __device__ __forceinline__ void decays_of_tokens(const struct kcp_backward &a,
                                                        const struct finish_gate &f,
                                                        float (*G)[4])
{
    const float top = (float)a.lower_bound * LOG2_E;
    if (form == KCP_GATE_BOUNDED)
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const float u = fmaf(f.times, G[t][j], f.plus[j / 2]);
                G[t][j] = top * rcp_approx(1.0f + ex2_approx(u));
            }
    else if (form == KCP_GATE_SOFTPLUS)
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const float u = fmaf(LOG2_E, G[t][j], f.plus[j / 2]);
                G[t][j] = max_or_nan(f.times * softplus_log2(u), -256.0f);
            }
    else
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) G[t][j] = max_or_nan(LOG2_E * G[t][j], -256.0f);
}

// Zeroes `x` for tokens past the chunk's end, so that these tokens do not decay.
static __device__ __forceinline__ void zero_tokens_from(int len, float (*x)[4])
{
    const int e = mma_coords_of_thread().e;
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            if (8 * t + e + j % 2 >= len) x[t][j] = 0.0f;
}

// Replaces `x` by its inclusive sums along the tokens. `bound[I]` is the sum over all
// tokens before subchunk I, and bound[4] is the total. A channel's eight tokens of a
// tile are in four lanes. Each of these lanes computes the tile's total.
static __device__ __forceinline__ void sum_along_tokens(float (*x)[4],
                                                        float (*bound)[2])
{
    const int q = opaque_thread_id() % 4;
    const float beside = q % 2, across = q / 2;
    float before[2] = {};
    #pragma unroll
    for (int h = 0; h < 2; h++) bound[0][h] = 0.0f;
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float *y = x[t] + 2 * h;
            const float own = y[0] + y[1];
            const float2 other = quad_sums(own);
            y[0] += fmaf(across, other.y, fmaf(beside, other.x, before[h]));
            y[1] += y[0];
            before[h] += own + other.x + other.y;
            if (t % 2) bound[t / 2 + 1][h] = before[h];
        }
}

// Replaces x of each token by the sum of x from this token to the chunk's last token.
static __device__ __forceinline__ void sum_from_the_end(float (*x)[4])
{
    const int q = opaque_thread_id() % 4;
    const float beside = 1 - q % 2, across = 1 - q / 2;
    float after[2] = {};
    #pragma unroll
    for (int t = 7; t >= 0; t--)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float *y = x[t] + 2 * h;
            const float own = y[0] + y[1];
            const float2 other = quad_sums(own);
            y[1] += fmaf(across, other.y, fmaf(beside, other.x, after[h]));
            y[0] += y[1];
            after[h] += own + other.x + other.y;
        }
}

// Returns an element's gradient dx of the raw gate x, given dg, the gradient of g. Adds
// a term of dA_log to *dA. Both results lack a factor that is equal for all elements of
// a head. The caller multiplies by this factor, which gives, with lb = lower_bound:
//     bounded   dx = dg lb exp(A_log) s (1 - s), s = 1 / (1 + 2^u);  dA_log += dx y
//     softplus  dx = -exp(A_log) sigma(y) dg;                        dA_log += dg g
static __device__ __forceinline__ float bounded_back(float u, float dg, float *dA)
{
    const float p = ex2_approx(-fabsf(u)), r = rcp_approx(1.0f + p);
    const float dx = dg * (p * r) * r;
    *dA = fmaf(dx, u, *dA);
    return dx;
}

static __device__ __forceinline__ float softplus_back(float u, float dg, float *dA)
{
    const float e = ex2_approx(-fabsf(u)), r = rcp_approx(1.0f + e);
    *dA = fmaf(dg, softplus_log2(u, e), *dA);
    return dg * (u >= 0.0f ? r : e * r);
}

// Converts dg to the gradient of the raw gate `g` and stores this gradient. Also stores
// the chunk's terms of dA_log and ddt_bias, which are sums over the chunk's rows of
// numbers that are not yet rounded to the gate's type.
template <int K, int form, enum kcp_type gate>
static __device__ __forceinline__ void gate_gradient(
    const struct backward_params &x, const struct finish_gate &f,
    struct finish_position z, const float (*g)[4], float (*dg)[4])
{
    const struct kcp_backward &a = x.a;
    const struct mma_coords p = mma_coords_of_thread();
    const float bounded_slope = -(float)a.lower_bound * (1.0f / LOG2_E);
    const float slope_A =
        form == KCP_GATE_BOUNDED ? bounded_slope : f.times * (1.0f / LOG2_E);
    float slope = 1.0f;
    if (form == KCP_GATE_BOUNDED) slope = bounded_slope * f.times;
    if (form == KCP_GATE_SOFTPLUS) slope = f.times;
    float dA[2] = {}, ddt[2] = {};
    typedef typename number_of<gate>::type number;
    number *to = out<number>(a.dg_raw, z.t + p.e, a.HV, z.n, K) + p.channel;
    const int64_t row = (int64_t)a.HV * K;
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int h = j / 2;
            float dx = dg[t][j];
            if (form == KCP_GATE_BOUNDED)
                dx = bounded_back(fmaf(f.times, g[t][j], f.plus[h]), dx, &dA[h]);
            if (form == KCP_GATE_SOFTPLUS)
                dx = softplus_back(fmaf(LOG2_E, g[t][j], f.plus[h]), dx, &dA[h]);
            ddt[h] += dx;
            if (8 * t + p.e + j % 2 < z.len)
                to[j % 2 * row + h * 8] = (number)(slope * dx);
        }
        to += 8 * row;
    }
    #pragma unroll
    for (int h = 0; h < 2 && form != KCP_GATE_RAW; h++) {
        const float2 A = quad_sums(dA[h]), dt = quad_sums(ddt[h]);
        const int64_t at = ((int64_t)z.c * a.HV + z.n) * K + p.channel + 8 * h;
        if (p.e == 0) x.dA_part[at] = slope_A * (dA[h] + A.x + A.y);
        if (p.e == 0) x.ddt_part[at] = slope * (ddt[h] + dt.x + dt.y);
    }
}
