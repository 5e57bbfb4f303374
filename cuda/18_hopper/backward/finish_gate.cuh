// finish_gate.cuh -- KDA's finishing kernel: decays from the raw gate, and back to it.
// Book: chapter 18, "Code: kernels".
// Checked by: bench/finish.cu, tests/13_backward/checks.c.
// Next: finish_consumer.cuh.
#ifndef KCP_FINISH_GATE_CUH
#define KCP_FINISH_GATE_CUH

#include "finish_storage.cuh"

// A thread's two channels: with y = x + dt_bias, u = times y. Bounded: times is
// -exp(A_log) in base 2, and g = lb / (1 + 2^u); softplus: times is -exp(A_log).
struct finish_gate {
    float times, plus[2];
};

static const __device__ float LOG2_E = 1.44269504088896341f;

template <int K, int form>
static __device__ __forceinline__ struct finish_gate finish_gate_of(
    const struct finish_vectors<K> &of)
{
    const int channel = place_of_thread().channel;
    const float dt[2] = { of.dt_bias[channel], of.dt_bias[channel + 8] };
    const float e = of.exp_A;
    if (form == KCP_GATE_BOUNDED) {
        const float times = -e * LOG2_E;
        return { times, { times * dt[0], times * dt[1] } };
    }
    return { -e, { dt[0], dt[1] } };
}

// log(1 + e), 0 <= e <= 1.
static __device__ __forceinline__ float log_1_plus(float e)
{
    return e < 0.01f ? e * (1.0f - e * (0.5f - e * (1.0f / 3.0f))) : __logf(1.0f + e);
}

// The decay of a token in base 2. Where the gate has no bound it is at least -256:
// 2^-256 is 0 in fp32, and sums of such numbers keep their digits.
static __device__ __forceinline__ float softplus_decay(float times, float plus, float x)
{
    const float y = x + plus, e = __expf(-fabsf(y));
    return fmaxf(times * LOG2_E * (fmaxf(y, 0.0f) + log_1_plus(e)), -256.0f);
}

template <int form>
static __device__ __forceinline__ void decays_of_tokens(const struct kcp_backward &a,
                                                        const struct finish_gate &f,
                                                        const unsigned char *tile,
                                                        float (*G)[4])
{
    const float top = (float)a.lower_bound * LOG2_E;
    pairs_of_tokens x;
    load_channels(x, tile);
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            G[t][j] = j % 2 ? bf16x2_high(x[t][j / 2]) : bf16x2_low(x[t][j / 2]);
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
            for (int j = 0; j < 4; j++)
                G[t][j] = softplus_decay(f.times, f.plus[j / 2], G[t][j]);
    else
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) G[t][j] = fmaxf(LOG2_E * G[t][j], -256.0f);
}

// Past the chunk's end there is no decay.
static __device__ __forceinline__ void zero_tokens_from(int len, float (*x)[4])
{
    const int e = place_of_thread().e;
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            if (8 * t + e + j % 2 >= len) x[t][j] = 0.0f;
}

// What a lane adds of its neighbours' sums: of the lane beside it, of the pair across.
struct quad_weights {
    float beside, across;
};

static __device__ __forceinline__ float2 quad_sums(float own)
{
    const float beside = __shfl_xor_sync(~0u, own, 1);
    const float across = __shfl_xor_sync(~0u, own + beside, 2);
    return make_float2(beside, across);
}

// Inclusive sums along the tokens; bound [I] is the sum before subchunk I, [4] the
// whole. Four lanes hold a channel's eight tokens of a tile, and the total of a tile is
// known to all of them.
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

// Sums from each token to the chunk's last.
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

// dx of one element from dg, with the slope that all of a head share left out; and what
// it adds to dA_log, likewise.
//     bounded   dx = dg lb exp(A_log) s (1 - s), s = 1 / (1 + 2^u);  dA_log += dx y
//     softplus  dx = -exp(A_log) sigma(y) dg;                        dA_log += dg g
static __device__ __forceinline__ float bounded_back(float u, float dg, float *dA)
{
    const float p = ex2_approx(-fabsf(u)), r = rcp_approx(1.0f + p);
    const float dx = dg * (p * r) * r;
    *dA = fmaf(dx, u, *dA);
    return dx;
}

static __device__ __forceinline__ float softplus_back(float y, float dg, float *dA)
{
    const float e = __expf(-fabsf(y)), r = rcp_approx(1.0f + e);
    *dA = fmaf(dg, fmaxf(y, 0.0f) + log_1_plus(e), *dA);
    return dg * (y >= 0.0f ? r : e * r);
}

// dg becomes the gradient of the raw gate and leaves; its sums over the chunk's rows
// are the chunk's part of dA_log and ddt_bias.
template <int K, int form>
static __device__ __forceinline__ void gate_gradient(
    const struct backward_params &x, const struct finish_gate &f, struct position z,
    const unsigned char *tile, float (*dg)[4])
{
    const struct kcp_backward &a = x.a;
    const struct place p = place_of_thread();
    const float bounded_slope = -(float)a.lower_bound * (1.0f / LOG2_E);
    const float slope_A = form == KCP_GATE_BOUNDED ? bounded_slope : f.times;
    float slope = 1.0f;
    if (form == KCP_GATE_BOUNDED) slope = bounded_slope * f.times;
    if (form == KCP_GATE_SOFTPLUS) slope = f.times;
    float dA[2] = {}, ddt[2] = {};
    float *to = out<float>(a.dg_raw, z.t + p.e, a.HV, z.n, K) + p.channel;
    const int64_t row = (int64_t)a.HV * K;
    pairs_of_tokens g;
    load_channels(g, tile);
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int h = j / 2;
            const float in = j % 2 ? bf16x2_high(g[t][h]) : bf16x2_low(g[t][h]);
            float dx = dg[t][j];
            if (form == KCP_GATE_BOUNDED)
                dx = bounded_back(fmaf(f.times, in, f.plus[h]), dx, &dA[h]);
            if (form == KCP_GATE_SOFTPLUS)
                dx = softplus_back(in + f.plus[h], dx, &dA[h]);
            ddt[h] += dx;
            if (8 * t + p.e + j % 2 < z.len) to[j % 2 * row + h * 8] = slope * dx;
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

#endif
