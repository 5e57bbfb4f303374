// finish_gate.cuh -- KDA's finishing kernel: the raw gate's decay and gradient.
// Book: chapter 18c.
#ifndef KCP_FINISH_GATE_CUH
#define KCP_FINISH_GATE_CUH

#include "finish_producer.cuh"

// Constants of two channels, with raw gate x and y = x + dt_bias. For a bounded gate,
// `times` is -exp(A_log) log2(e), and g = lower_bound / (1 + 2^u) with u = `times` y.
// For a softplus gate, `times` is -exp(A_log). `plus` is u (softplus: y) at x = 0.
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
    return { -e, { dt[0], dt[1] } };
}

// Returns log(1 + e) for 0 <= e <= 1.
static __device__ __forceinline__ float log_1_plus(float e)
{
    return e < 0.01f ? e * (1.0f - e * (0.5f - e * (1.0f / 3.0f))) : __logf(1.0f + e);
}

// Returns the log2 decay of a token for the softplus gate. The result is at least -256,
// because 2^-256 is 0 in fp32, and sums of such numbers stay accurate.
static __device__ __forceinline__ float softplus_decay(float times, float plus, float x)
{
    const float y = x + plus, e = __expf(-fabsf(y));
    return max_or_nan(times * LOG2_E * (fmaxf(y, 0.0f) + log_1_plus(e)), -256.0f);
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

// Replaces raw gates by log2 decays.
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
            for (int j = 0; j < 4; j++)
                G[t][j] = softplus_decay(f.times, f.plus[j / 2], G[t][j]);
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

static __device__ __forceinline__ float softplus_back(float y, float dg, float *dA)
{
    const float e = __expf(-fabsf(y)), r = rcp_approx(1.0f + e);
    *dA = fmaf(dg, fmaxf(y, 0.0f) + log_1_plus(e), *dA);
    return dg * (y >= 0.0f ? r : e * r);
}

// Converts dg to the gradient of the raw gate `g` and stores this gradient. Also stores
// the chunk's terms of dA_log and ddt_bias, which are sums over the chunk's rows.
template <int K, int form>
static __device__ __forceinline__ void gate_gradient(
    const struct backward_params &x, const struct finish_gate &f,
    struct finish_position z, const float (*g)[4], float (*dg)[4])
{
    const struct kcp_backward &a = x.a;
    const struct mma_coords p = mma_coords_of_thread();
    const float bounded_slope = -(float)a.lower_bound * (1.0f / LOG2_E);
    const float slope_A = form == KCP_GATE_BOUNDED ? bounded_slope : f.times;
    float slope = 1.0f;
    if (form == KCP_GATE_BOUNDED) slope = bounded_slope * f.times;
    if (form == KCP_GATE_SOFTPLUS) slope = f.times;
    float dA[2] = {}, ddt[2] = {};
    float *to = out<float>(a.dg_raw, z.t + p.e, a.HV, z.n, K) + p.channel;
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
                dx = softplus_back(g[t][j] + f.plus[h], dx, &dA[h]);
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

// ---- the underflow path: pairs of tokens one by one

// A gate may decay so much within a subchunk (16 tokens) that factors relative to the
// subchunk's anchor (finish_consumer.cuh) underflow in bf16. The first pass marks such
// a chunk. The second pass processes the chunk again and computes pairs within
// subchunks one by one, which is slow but exact for any decay.

static __device__ __forceinline__ void mark_underflow(const float (*bound)[2],
                                                      unsigned char *mark)
{
    float deepest = 0.0f;
    #pragma unroll
    for (int I = 0; I < SUBCHUNKS; I++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
            deepest = fminf(deepest, bound[I + 1][h] - bound[I][h]);
    if (deepest < -118.0f) *mark = 1; // else every factor is a normal bf16 number
}

// G, q and k of a lane's four tokens of one subchunk, in one channel.
struct four_tokens {
    float G[4], q[4], k[4];
};

static __device__ __forceinline__ struct four_tokens four_tokens_of(
    const pairs_of_tokens &q, const pairs_of_tokens &k, const float (*G)[4], int I,
    int h)
{
    struct four_tokens x;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t qj = q[2 * I + j / 2][h], kj = k[2 * I + j / 2][h];
        x.G[j] = G[2 * I + j / 2][2 * h + j % 2];
        x.q[j] = j % 2 ? bf16x2_high(qj) : bf16x2_low(qj);
        x.k[j] = j % 2 ? bf16x2_high(kj) : bf16x2_low(kj);
    }
    return x;
}

static __device__ __forceinline__ struct four_tokens of_other_lane(
    const struct four_tokens &x, int mask)
{
    struct four_tokens y;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        y.G[j] = __shfl_xor_sync(~0u, x.G[j], mask);
        y.q[j] = __shfl_xor_sync(~0u, x.q[j], mask);
        y.k[j] = __shfl_xor_sync(~0u, x.k[j], mask);
    }
    return y;
}

static __device__ __forceinline__ float element_of(const unsigned char *triangle, int i,
                                                   int j)
{
    return (float)*(const bf16 *)(triangle + swizzle128_offset(i, j / 8) + j % 8 * 2);
}

// Row and column sums for the tokens of this lane in subchunk I. Each call of add_pairs
// adds the terms of one of the channel's four lanes:
//     row_q_i = sum_{j<i} dA_ij D_ij k_j    row_k_i likewise with dB
//     column_j = sum_{i>j} (dA_ij q_i + dB_ij k_i) D_ij
struct pair_sums {
    float row_q[4], row_k[4], column[4];
};

template <int K>
static __device__ __forceinline__ void add_pairs(
    const struct kda_finish_storage<K> &smem, int first, int e, int e_other,
    const struct four_tokens &x, const struct four_tokens &y, struct pair_sums &s)
{
    #pragma unroll
    for (int m = 0; m < 4; m++)
        #pragma unroll
        for (int l = 0; l < 4; l++) {
            const int mine = first + m / 2 * 8 + e + m % 2;
            const int other = first + l / 2 * 8 + e_other + l % 2;
            if (other == mine) continue;
            const int i = max(mine, other), j = min(mine, other);
            const float A = element_of(smem.dA, i, j), B = element_of(smem.dB, i, j);
            const float D = ex2_approx(-fabsf(x.G[m] - y.G[l]));
            if (other < mine) {
                s.row_q[m] = fmaf(A * D, y.k[l], s.row_q[m]);
                s.row_k[m] = fmaf(B * D, y.k[l], s.row_k[m]);
            } else s.column[m] = fmaf(D, fmaf(A, y.q[l], B * y.k[l]), s.column[m]);
        }
}

// Adds the terms of all pairs within subchunks to dq, dk and dG.
template <int K>
static __device__ __noinline__ void add_pairs_of_subchunks(
    const struct kda_finish_storage<K> &smem, const unsigned char *q_tile,
    const unsigned char *k_tile, const float (*G)[4], pairs_of_tokens &dq,
    float (*dk)[4], float (*dG)[4])
{
    const int e = mma_coords_of_thread().e;
    pairs_of_tokens q, k;
    load_channels(q, q_tile);
    load_channels(k, k_tile);
    #pragma unroll 1
    for (int I = 0; I < SUBCHUNKS; I++)
        #pragma unroll 1
        for (int h = 0; h < 2; h++) {
            const struct four_tokens x = four_tokens_of(q, k, G, I, h);
            struct pair_sums s = {};
            #pragma unroll 1
            for (int mask = 0; mask < 4; mask++)
                add_pairs<K>(smem, 16 * I, e, e ^ 2 * mask, x, of_other_lane(x, mask),
                             s);
            #pragma unroll
            for (int m = 0; m < 4; m++) {
                const int t = 2 * I + m / 2, at = 2 * h + m % 2;
                const float low = bf16x2_low(dq[t][h]) + (m % 2 ? 0.0f : s.row_q[m]);
                const float high = bf16x2_high(dq[t][h]) + (m % 2 ? s.row_q[m] : 0.0f);
                dq[t][h] = pack_bf16x2(low, high);
                dk[t][at] += s.row_k[m] + s.column[m];
                dG[t][at] += x.q[m] * s.row_q[m] + x.k[m] * (s.row_k[m] - s.column[m]);
            }
        }
}

#endif
