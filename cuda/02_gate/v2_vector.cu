// v2_vector.cu -- norms, beta and gates at memory speed, with 16 loads in flight.
// Book: chapter 02, "Code: kernels".
//
// Bound: memory. These kernels read 6 K bytes and write 8 K bytes per token and head.
// At K = 128, this is 1792 bytes, or 0.33 ms for 8192 tokens of 96 heads. Storing g
// (a.g is not NULL) adds 4 K bytes. Version 1 reaches 60 percent of the bound, because
// each thread has one 2-byte load in flight. Here K / 8 lanes load a row of q or k, 8
// numbers per lane. A warp loads the gates of 16 tokens (GDN: 8) before the first use.
// g_raw is bf16 or float, beta_raw is of any type.
#include "v2_vector_back.cuh"
#include "cuda/host/stages_v2.cuh"

enum { ROWS = SUBCHUNK };

// Computes y = x rstd of q (blockIdx.y = 0) or k (1), with K / 8 lanes per row.
template <int K>
static __global__ __launch_bounds__(256) void norm_rows(const struct kcp_gate a)
{
    const int lanes = K / 8, lane = threadIdx.x % lanes;
    const int64_t row = (blockIdx.x * 256ll + threadIdx.x) / lanes;
    if (row >= a.T * a.H) return;        // all lanes of the row return
    const void *from = blockIdx.y ? a.k_raw : a.q_raw;
    void *to = blockIdx.y ? a.k : a.q, *rstd_ = blockIdx.y ? a.rstd_k : a.rstd_q;
    if (!to) return;
    const uint4 x = ((const uint4 *)from)[row * lanes + lane];
    const uint32_t *w = &x.x;
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 4; i++) sum += low(w[i]) * low(w[i]) + high(w[i]) * high(w[i]);
    sum = group_sum(sum, lanes);
    const float rstd = a.l2norm ? 1.0f / sqrtf(sum + 1e-6f) : 1.0f;
    uint4 y;
    uint32_t *v = &y.x;
    #pragma unroll
    for (int i = 0; i < 4; i++) v[i] = pack_bf16x2(rstd * low(w[i]), rstd * high(w[i]));
    ((uint4 *)to)[row * lanes + lane] = y;
    if (lane == 0) ((float *)rstd_)[row] = rstd;
}

struct gate_of_channel { float expA, dt; };

// Computes the gate with the approximate exp of the special function unit. The relative
// error of this exp, 2 ulp plus 1e-7 times the exponent, is far below the rounding
// error of the bf16 input.
static __device__ __forceinline__ float activate(const struct kcp_gate &a,
                                                 struct gate_of_channel f, float x)
{
    const float y = x + f.dt, log2e = 1.44269504088896341f;
    if (a.gate == KCP_GATE_RAW) return x;
    if (a.gate == KCP_GATE_BOUNDED)
        return (float)a.lower_bound
               * rcp_approx(1.0f + ex2_approx(-log2e * f.expA * y));
    return -f.expA * (fmaxf(y, 0.0f) + log1pf(__expf(-fabsf(y))));
}

// Computes G of a chunk and head. Each group of K / 4 threads sums one subchunk of 16
// tokens, four channels per thread. Then the group adds the sums of earlier subchunks.
template <class X, int K>
static __global__ __launch_bounds__(K) void gate_sums(const struct kcp_gate a)
{
    __shared__ float last[SUBCHUNKS][K];
    const int c = blockIdx.x, n = blockIdx.y, lanes = K / 4;
    const int i = threadIdx.x % lanes * 4, subchunk = threadIdx.x / lanes;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const float *A_log = (const float *)a.A_log, *dt = (const float *)a.dt_bias;
    const float expA = A_log ? expf(A_log[n]) : 1.0f;
    struct numbers<X, 4> x[ROWS];
    float sum[4] = {};

    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int t = subchunk * ROWS + r;
        x[r] = {};
        if (t < z.len)
            x[r] = *(const struct numbers<X, 4> *)
                (in<X>(a.g_raw, z.t + t, a.HV, n, K) + i);
    }
    struct gate_of_channel f[4];
    for (int d = 0; d < 4; d++) f[d] = { expA, dt ? dt[n * K + i + d] : 0.0f };
    float4 G[ROWS];
    //> kernel-sums
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int t = subchunk * ROWS + r;
        const float4 g = {
            activate(a, f[0], x[r].at[0]), activate(a, f[1], x[r].at[1]),
            activate(a, f[2], x[r].at[2]), activate(a, f[3], x[r].at[3]) };
        sum[0] += max_or_nan(g.x, -750.0f);
        sum[1] += max_or_nan(g.y, -750.0f);
        sum[2] += max_or_nan(g.z, -750.0f);
        sum[3] += max_or_nan(g.w, -750.0f);
        G[r] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        if (a.g && t < z.len) *(float4 *)(out<float>(a.g, z.t + t, a.HV, n, K) + i) = g;
    }
    //< kernel-sums
    for (int d = 0; d < 4; d++) {
        last[subchunk][i + d] = sum[d];
        sum[d] = 0.0f;
    }
    __syncthreads();
    for (int s = 0; s < subchunk; s++)
        for (int d = 0; d < 4; d++) sum[d] += last[s][i + d];
    const float base_2 = 1.44269504088896341f;
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int t = subchunk * ROWS + r;
        const float4 y = { (sum[0] + G[r].x) * base_2, (sum[1] + G[r].y) * base_2,
                           (sum[2] + G[r].z) * base_2, (sum[3] + G[r].w) * base_2 };
        if (t < z.len) *(float4 *)(out<float>(a.G, z.t + t, a.HV, n, K) + i) = y;
    }
}

// Computes G for GDN, one number per token and head. A warp processes eight tokens.
static __global__ __launch_bounds__(256) void head_sums(const struct kcp_gate a)
{
    __shared__ float last[WARPS][32];
    const int groups = (a.HV + 31) / 32, c = blockIdx.x / groups, w = threadIdx.x / 32;
    const int lane = threadIdx.x % 32, n = blockIdx.x % groups * 32 + lane;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const float *A_log = (const float *)a.A_log, *dt = (const float *)a.dt_bias;
    float g[TOKENS], sum = 0.0f, before = 0.0f;
    uint32_t bits[TOKENS];
    struct gate_of_channel f = { 1.0f, 0.0f };

    if (n < a.HV) f = { A_log ? expf(A_log[n]) : 1.0f, dt ? dt[n] : 0.0f };
    #pragma unroll
    for (int r = 0; r < TOKENS; r++) {
        const int t = w * TOKENS + r, here = n < a.HV && t < z.len;
        bits[r] = here ? load_bits(a.g_raw, (z.t + t) * a.HV + n, a.g_type) : 0;
    }
    #pragma unroll
    for (int r = 0; r < TOKENS; r++) {
        g[r] = activate(a, f, float_of_bits(bits[r], a.g_type));
        sum += max_or_nan(g[r], -750.0f);
    }
    last[w][lane] = sum;
    __syncthreads();
    for (int s = 0; s < w; s++) before += last[s][lane];
    #pragma unroll
    for (int r = 0; r < TOKENS; r++) {
        const int t = w * TOKENS + r;
        before += max_or_nan(g[r], -750.0f);
        if (n >= a.HV || t >= z.len) continue;
        if (a.g) out<float>(a.g, z.t + t, a.HV, n, 1)[0] = g[r];
        out<float>(a.G, z.t + t, a.HV, n, 1)[0] = before * 1.44269504088896341f;
    }
}

// Computes beta = sigmoid(raw), 2 sigmoid(raw) or raw. Backward computes dbeta_raw.
static __global__ void beta_all(const struct kcp_gate a)
{
    const int64_t at = blockIdx.x * 256ll + threadIdx.x;
    if (at >= a.T * a.HV) return;
    const float raw =
        float_of_bits(load_bits(a.beta_raw, at, a.beta_type), a.beta_type);
    const float s = a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f;
    const float y = 1.0f / (1.0f + expf(-raw)), rest = 1.0f / (1.0f + expf(raw));
    const int as_given = a.beta_form == KCP_BETA_RAW;
    if (a.pass == KCP_FORWARD) ((float *)a.beta)[at] = as_given ? raw : s * y;
    else store_number(a.dbeta_raw, at, a.beta_type,
                      ((const float *)a.dbeta)[at] * (as_given ? 1.0f : s * y * rest));
}

template <class X, int K>
static void forward(const struct kcp_gate *a)
{
    const unsigned blocks = (unsigned)((a->T * a->H * (K / 8) + 255) / 256);
    if (a->q || a->k) norm_rows<K><<<dim3(blocks, 2), 256, 0, a->stream>>>(*a);
    const dim3 chunks(a->NC, a->HV);
    if (a->model == KCP_KDA) gate_sums<X, K><<<chunks, K, 0, a->stream>>>(*a);
    else head_sums<<<(unsigned)a->NC * ((a->HV + 31) / 32), 256, 0, a->stream>>>(*a);
}

template <class X, int K>
static void backward(const struct kcp_gate *a)
{
    const unsigned rows = (unsigned)((a->T * a->H * (K / 8) + 255) / 256);
    const int64_t W = (int64_t)a->HV * a->KG;
    const int N = a->model == KCP_KDA ? 4 : 1;
    const unsigned blocks = (unsigned)(a->NC * ((W + 32 * N - 1) / (32 * N)));
    norm_rows_back<K><<<dim3(rows, 2), 256, 0, a->stream>>>(*a);
    if (N == 4) gate_back<X, 4><<<blocks, 256, 0, a->stream>>>(*a);
    else gate_back<X, 1><<<blocks, 256, 0, a->stream>>>(*a);
    add_parts<<<(unsigned)a->NS * a->HV, SUMS, 0, a->stream>>>(*a);
}

template <int K>
static int gate_v2_vector_launch(const struct kcp_gate *a)
{
    if (!a->T) return KCP_OK;
    const int is_f32 = a->g_type == KCP_TYPE_F32, back = a->pass != KCP_FORWARD;
    const auto run = back ? backward<bf16, K> : forward<bf16, K>;
    const auto run_f32 = back ? backward<float, K> : forward<float, K>;
    (is_f32 ? run_f32 : run)(a);
    if (a->pass == KCP_BACKWARD || a->beta)
        beta_all<<<(unsigned)((a->T * a->HV + 255) / 256), 256, 0, a->stream>>>(*a);
    return launched();
}

int v2_gate(void *args)
{
    const struct kcp_gate *a = (const struct kcp_gate *)args;
    const void *p[] = { a->q_raw, a->k_raw, a->g_raw, a->q, a->k, a->g, a->G, a->dq,
                        a->dk, a->dg, a->dq_raw, a->dk_raw, a->dg_raw };
    if (a->model > KCP_GDN || a->g_type == KCP_TYPE_F16) return KCP_NA;
    const int K = a->K;
    if (a->C != CHUNK || (K != 64 && K != 128 && K != 256)) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (K == 256) return gate_v2_vector_launch<256>(a);
    return K == 64 ? gate_v2_vector_launch<64>(a) : gate_v2_vector_launch<128>(a);
}

KCP_VARIANT(gate_v2_vector) = {
    "02_gate", "v2_vector", "vector loads, 16 tokens in flight per channel",
    KCP_BF16, KCP_DEVICE, "K 64, 128 or 256, C 64", v2_gate, v1_gate_work };
