// v2_vector_back.cuh -- backward of norms and gates, with vector loads.
// Book: chapter 02, "Code: kernels".
#include "cuda/tile/typed.cuh"
#include "cuda/tile/warp_scan.cuh"

// Bound: memory. These kernels read 14 K bytes (q, k, the gate, and their gradients)
// and write 6 K bytes per token and head. At K = 128, this is 2560 bytes, or 0.47 ms
// for 8192 tokens of 96 heads. The sums dA_log and ddt_bias run over eight tokens, then
// the chunk, then the stretch (a token range of one sequence), in a fixed order.
enum { TOKENS = 8, AHEAD = 4, WARPS = CHUNK / TOKENS, SUMS = 512 };

static __device__ __forceinline__ float low(uint32_t x)
{
    return __uint_as_float(x << 16);
}
static __device__ __forceinline__ float high(uint32_t x)
{
    return __uint_as_float(x & 0xffff0000u);
}

// Returns the sum of x over a group of `lanes` lanes, a power of two.
static __device__ __forceinline__ float group_sum(float x, int lanes)
{
    const unsigned mask = lanes == 32 ? ~0u
        : ((1u << lanes) - 1) << (threadIdx.x % 32 / lanes * lanes);
    for (int b = lanes / 2; b; b /= 2) x += __shfl_xor_sync(mask, x, b);
    return x;
}

// For x = q (blockIdx.y = 0) or k (1), computes dx = rstd (dy - y sum(dy y)), where y =
// rstd x (without l2norm: dx = dy). K / 8 lanes process one row.
template <int K>
static __global__ __launch_bounds__(256) void norm_rows_back(const struct kcp_gate a)
{
    const int lanes = K / 8;
    const int64_t at = blockIdx.x * 256ll + threadIdx.x;
    if (at >= a.T * a.H * lanes) return; // all lanes of the row return
    const uint4 x = ((const uint4 *)(blockIdx.y ? a.k_raw : a.q_raw))[at];
    const uint4 dy = ((const uint4 *)(blockIdx.y ? a.dk : a.dq))[at];
    const uint32_t *u = &x.x, *w = &dy.x;
    float sum = 0.0f, dot = 0.0f;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        sum += low(u[i]) * low(u[i]) + high(u[i]) * high(u[i]);
        dot += low(w[i]) * low(u[i]) + high(w[i]) * high(u[i]);
    }
    sum = group_sum(sum, lanes);
    dot = group_sum(dot, lanes);
    const float rstd = a.l2norm ? 1.0f / sqrtf(sum + 1e-6f) : 1.0f;
    const float along = a.l2norm ? rstd * rstd * dot : 0.0f;
    uint4 dx;
    uint32_t *v = &dx.x;
    #pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = pack_bf16x2(rstd * (low(w[i]) - along * low(u[i])),
                           rstd * (high(w[i]) - along * high(u[i])));
    ((uint4 *)(blockIdx.y ? a.dk_raw : a.dq_raw))[at] = dx;
}

// Constants of a channel's gate: exp(A_log) and dt_bias.
struct slope { float expA, dt; };

static __device__ __forceinline__ float gate_slope(const struct kcp_gate &a,
                                                   struct slope f, float x, float dg,
                                                   float *dA)
{
    const float y = x + f.dt;
    if (a.gate == KCP_GATE_BOUNDED) {    // sigma' = e / (1+e)^2 loses no digits
        const float e = ex2_approx(-1.44269504088896341f * f.expA * fabsf(y));
        const float s = rcp_approx(1.0f + e);
        const float dx = dg * (float)a.lower_bound * f.expA * e * s * s;
        *dA += dx * y;
        return dx;
    }
    if (a.gate == KCP_GATE_SOFTPLUS) {
        const float e = __expf(-fabsf(y));
        const float s = (y >= 0.0f ? 1.0f : e) * rcp_approx(1.0f + e);
        *dA -= dg * f.expA * (fmaxf(y, 0.0f) + log1pf(e));
        return -f.expA * s * dg;
    }
    return dg;
}

// N adjacent numbers of a row of type X (bf16 or float).
template <class X, int N> struct __align__(N * sizeof(X)) numbers { X at[N]; };

// Processes AHEAD tokens, starting at t, with N columns per lane. All AHEAD tokens are
// loaded before the first one is used.
template <class X, int N>
static __device__ __forceinline__ void tokens_back(const struct kcp_gate &a,
                                                   struct token_range z, int t,
                                                   int64_t e, const struct slope *f,
                                                   float *dA, float *ddt)
{
    const int64_t W = (int64_t)a.HV * a.KG;
    struct numbers<X, N> x[AHEAD];
    struct numbers<float, N> dg[AHEAD];
    #pragma unroll
    for (int r = 0; r < AHEAD; r++) {
        const int64_t at = (z.t + t + r) * W + e;
        x[r] = {};
        dg[r] = {};
        if (e >= W || t + r >= z.len) continue;
        x[r] = *(const struct numbers<X, N> *)((const X *)a.g_raw + at);
        dg[r] = *(const struct numbers<float, N> *)((const float *)a.dg + at);
    }
    //> kernel-gate-back
    #pragma unroll
    for (int r = 0; r < AHEAD; r++) {
        X *y = x[r].at;
        #pragma unroll
        for (int j = 0; j < N; j++) {
            const float dx = gate_slope(a, f[j], (float)y[j], dg[r].at[j], &dA[j]);
            ddt[j] += a.gate == KCP_GATE_RAW ? 0.0f : dx;
            y[j] = (X)dx;
        }
        if (e < W && t + r < z.len)
            *(struct numbers<X, N> *)((X *)a.dg_raw + (z.t + t + r) * W + e) = x[r];
    }
    //< kernel-gate-back
}

// Computes dg_raw of one chunk, and the row of this chunk in two arrays [NC,HV * KG]:
// terms of dA_log and of ddt_bias. Each lane processes N columns, each warp 8 tokens.
template <class X, int N>
static __global__ __launch_bounds__(256, 3) void gate_back(const struct kcp_gate a)
{
    __shared__ float sums[2][WARPS][32 * N];
    const int64_t W = (int64_t)a.HV * a.KG, groups = (W + 32 * N - 1) / (32 * N);
    const int c = blockIdx.x / groups, lane = threadIdx.x % 32, w = threadIdx.x / 32;
    const int64_t e = (blockIdx.x % groups * 32 + lane) * N;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const float *A_log = (const float *)a.A_log, *dt = (const float *)a.dt_bias;
    float dA[N] = {}, ddt[N] = {}, *work = (float *)a.work;
    struct slope f[N] = {};

    for (int d = 0; d < N && e < W; d++)
        f[d] = { A_log ? __expf(A_log[(e + d) / a.KG]) : 1.0f, dt ? dt[e + d] : 0.0f };
    #pragma unroll 1
    for (int t = w * TOKENS; t < (w + 1) * TOKENS; t += AHEAD)
        tokens_back<X, N>(a, z, t, e, f, dA, ddt);
    for (int d = 0; d < N; d++) {
        sums[0][w][lane * N + d] = dA[d];
        sums[1][w][lane * N + d] = ddt[d];
    }
    __syncthreads();
    for (int at = threadIdx.x; at < 2 * 32 * N; at += 256) {
        const int which = at / (32 * N), j = at % (32 * N);
        const int64_t to = blockIdx.x % groups * 32 * N + j;
        float s = 0.0f;
        for (int i = 0; i < WARPS; i++) s += sums[which][i][j];
        if (to < W) work[(which * (int64_t)a.NC + c) * W + to] = s;
    }
}

// Adds the terms of all chunks of a stretch (token range of a sequence). SUMS / KG
// threads share a channel, and each of them adds every (SUMS / KG)-th chunk. The terms
// of dA_log are also summed over channels.
static __global__ __launch_bounds__(SUMS) void add_parts(const struct kcp_gate a)
{
    __shared__ float sums[2][SUMS];
    const int s = blockIdx.x / a.HV, n = blockIdx.x % a.HV, *cn = (const int *)a.cn;
    const int per = SUMS / a.KG, i = threadIdx.x % a.KG, part = threadIdx.x / a.KG;
    const int64_t W = (int64_t)a.HV * a.KG, e = (int64_t)n * a.KG + i;
    const float *dA = (const float *)a.work, *ddt = dA + a.NC * W;
    float sum_A = 0.0f, sum_dt = 0.0f;

    #pragma unroll 8
    for (int c = cn[s] + part; c < cn[s + 1]; c += per) {
        sum_A += dA[c * W + e];
        sum_dt += ddt[c * W + e];
    }
    sums[0][threadIdx.x] = sum_A;
    sums[1][threadIdx.x] = sum_dt;
    for (int b = SUMS / 2; b; b /= 2) {
        __syncthreads();
        const int j = threadIdx.x;
        if (j < b) sums[0][j] += sums[0][j + b];
        if (j < b && b >= a.KG) sums[1][j] += sums[1][j + b];
    }
    __syncthreads();
    if (a.ddt_part && threadIdx.x < a.KG)
        out<float>(a.ddt_part, s, a.HV, n, a.KG)[threadIdx.x] = sums[1][threadIdx.x];
    if (a.dA_part && threadIdx.x == 0)
        ((float *)a.dA_part)[(int64_t)s * a.HV + n] = sums[0][0];
}
