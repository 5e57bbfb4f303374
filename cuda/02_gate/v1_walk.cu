// v1_walk.cu -- norms (one warp per row), beta, and gates (one thread per channel).
// Book: chapter 02, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/stages_v1.cuh"
#include "cuda/tile/typed.cuh"

// All kernels in this file are bound by memory. Each input is read from memory once,
// and each output is written once, in rows of contiguous channels. The sums dA_log and
// ddt_bias run over each chunk, then over the chunks of a stretch (a local token range
// of one sequence) in order, so results are reproducible bit for bit.

static __device__ float warp_sum(float x)
{
    for (int b = 16; b; b /= 2) x += __shfl_xor_sync(~0u, x, b);
    return x;
}

static __device__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static __device__ float softplus(float x)
{
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

// Returns element `at` of an array of numbers of this type.
static __device__ float number(const void *x, enum kcp_type type, int64_t at)
{
    if (type == KCP_TYPE_F64) return (float)((const double *)x)[at];
    return float_of_bits(load_bits(x, at, type), type);
}

static __device__ void put_number(void *x, enum kcp_type type, int64_t at, float y)
{
    if (type == KCP_TYPE_F64) ((double *)x)[at] = y;
    else store_number(x, at, type, y);
}

// Computes y = x rstd with one warp per row, where rstd is 1/sqrt(sum x^2 + 1e-6), or 1
// without l2norm.
template <class X>
static __global__ void norm(int64_t rows, int K, int l2norm, const void *x_, void *y_,
                            void *rstd_)
{
    const int64_t at = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    if (at >= rows) return;
    const X *x = (const X *)x_ + at * K;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < K; i += 32) sum += (float)x[i] * (float)x[i];
    const float rstd = l2norm ? 1.0f / sqrtf(warp_sum(sum) + 1e-6f) : 1.0f;
    for (int i = threadIdx.x; i < K; i += 32)
        ((X *)y_)[at * K + i] = rstd * (float)x[i];
    if (threadIdx.x == 0) ((float *)rstd_)[at] = rstd;
}

// A warp computes dx = rstd (dy - y sum(dy y)) of one row (without l2norm: dx = dy).
template <class X>
static __global__ void norm_backward(int64_t rows, int K, int l2norm, const void *x_,
                                     const void *dy_, void *dx_)
{
    const int64_t at = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    if (at >= rows) return;
    const X *x = (const X *)x_ + at * K, *dy = (const X *)dy_ + at * K;
    float sum = 0.0f, dot = 0.0f;
    for (int i = threadIdx.x; i < K; i += 32) {
        sum += (float)x[i] * (float)x[i];
        dot += (float)dy[i] * (float)x[i];
    }
    const float rstd = l2norm ? 1.0f / sqrtf(warp_sum(sum) + 1e-6f) : 1.0f;
    const float along = l2norm ? rstd * rstd * warp_sum(dot) : 0.0f;
    for (int i = threadIdx.x; i < K; i += 32)
        ((X *)dx_)[at * K + i] = rstd * ((float)dy[i] - along * (float)x[i]);
}

// Computes beta = sigmoid(raw), 2 sigmoid(raw) or raw, according to beta_form. Backward
// computes dbeta_raw from dbeta. Each thread processes one token of one head.
static __global__ void beta(const struct kcp_gate a)
{
    const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= a.T * a.HV) return;
    const float raw = number(a.beta_raw, a.beta_type, at), y = sigmoid(raw);
    const float s = a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f;
    const int as_given = a.beta_form == KCP_BETA_RAW;

    if (a.pass == KCP_FORWARD) ((float *)a.beta)[at] = as_given ? raw : s * y;
    if (a.pass == KCP_BACKWARD)
        put_number(a.dbeta_raw, a.beta_type, at,
                   ((const float *)a.dbeta)[at]
                       * (as_given ? 1.0f : s * y * sigmoid(-raw)));
}

// Constants of one channel's gate. From these constants gate_value computes g, and
// gate_slope computes dg/dx.
struct gate_form {
    enum kcp_gate_form form;
    float expA, dt, lower;
};

template <class Args>
static __device__ struct gate_form gate_of(const Args &a, int n, int i)
{
    const float *A_log = (const float *)a.A_log, *dt = (const float *)a.dt_bias;
    return { a.gate, A_log ? expf(A_log[n]) : 1.0f, dt ? dt[n * a.KG + i] : 0.0f,
             (float)a.lower_bound };
}

static __device__ float gate_value(const struct gate_form &f, float x)
{
    switch (f.form) {
    case KCP_GATE_SOFTPLUS: return -f.expA * softplus(x + f.dt);
    case KCP_GATE_BOUNDED: return f.lower * sigmoid(f.expA * (x + f.dt));
    default: return x;
    }
}

static __device__ float gate_slope(const struct gate_form &f, float x)
{
    const float z = f.expA * (x + f.dt);
    switch (f.form) {
    case KCP_GATE_SOFTPLUS: return -f.expA * sigmoid(x + f.dt);
    case KCP_GATE_BOUNDED: return f.lower * sigmoid(z) * sigmoid(-z) * f.expA;
    default: return 1.0f;
    }
}

// Computes g and G, where G is log2(e) times the sum of g from the chunk's first token.
// A block processes one chunk and head. A gate below -750 adds only -750 to the sum.
static __global__ void gate_forward(const struct kcp_gate a)
{
    const int c = blockIdx.x, n = blockIdx.y, i = threadIdx.x;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const struct gate_form f = gate_of(a, n, i);
    float G = 0.0f;
    //> kernel-gate
    for (int64_t t = z.t; t < z.t + z.len; t++) {
        const int64_t at = (t * a.HV + n) * a.KG + i;
        const float g = gate_value(f, number(a.g_raw, a.g_type, at));
        G += g < -750.0f ? -750.0f : g;
        if (a.g) out<float>(a.g, t, a.HV, n, a.KG)[i] = g;
        out<float>(a.G, t, a.HV, n, a.KG)[i] = G * 1.44269504088896341f;
    }
    //< kernel-gate
}

// Computes dx and the chunk's terms of two sums: ddt_bias = sum dx, and dA_log, which
// is sum dg g (softplus) or sum dx (x + dt_bias) (bounded gate). Each sum has an array
// of terms [NC,HV,KG]. For a raw gate, all terms are 0.
static __global__ void gate_backward(const struct kcp_gate a)
{
    const int c = blockIdx.x, n = blockIdx.y, i = threadIdx.x;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const struct gate_form f = gate_of(a, n, i);
    float *dA = (float *)a.work, *ddt = dA + (int64_t)a.NC * a.HV * a.KG;
    const int64_t part = ((int64_t)c * a.HV + n) * a.KG + i;
    float sum_A = 0.0f, sum_dt = 0.0f;

    for (int64_t t = z.t; t < z.t + z.len; t++) {
        const int64_t at = (t * a.HV + n) * a.KG + i;
        const float x = number(a.g_raw, a.g_type, at);
        const float dg = in<float>(a.dg, t, a.HV, n, a.KG)[i];
        const float dx = dg * gate_slope(f, x);
        put_number(a.dg_raw, a.g_type, at, dx);
        if (a.gate == KCP_GATE_SOFTPLUS) sum_A += dg * gate_value(f, x);
        if (a.gate == KCP_GATE_BOUNDED) sum_A += dx * (x + f.dt);
        if (a.gate != KCP_GATE_RAW) sum_dt += dx;
    }
    dA[part] = sum_A;
    ddt[part] = sum_dt;
}

// Adds the terms of all chunks of a stretch (token range of a sequence) in order. The
// terms of dA_log are also summed over the channels.
static __global__ void gate_parts(const struct kcp_gate a)
{
    const int s = blockIdx.x, n = blockIdx.y, i = threadIdx.x;
    const int *cn = (const int *)a.cn;
    const float *dA = (const float *)a.work, *ddt = dA + (int64_t)a.NC * a.HV * a.KG;
    __shared__ float sum[KMAX];
    float sum_A = 0.0f, sum_dt = 0.0f;

    for (int c = cn[s]; c < cn[s + 1]; c++) {
        sum_A += dA[((int64_t)c * a.HV + n) * a.KG + i];
        sum_dt += ddt[((int64_t)c * a.HV + n) * a.KG + i];
    }
    if (a.ddt_part) out<float>(a.ddt_part, s, a.HV, n, a.KG)[i] = sum_dt;
    sum[i] = sum_A;
    __syncthreads();
    if (i > 0 || !a.dA_part) return;
    for (int j = 1; j < a.KG; j++) sum_A += sum[j];
    ((float *)a.dA_part)[(int64_t)s * a.HV + n] = sum_A;
}

size_t v1_gate_work(const void *args)
{
    const struct kcp_gate *a = (const struct kcp_gate *)args;
    return a->pass == KCP_FORWARD ? 0 : 2 * sizeof(float) * a->NC * a->HV * a->KG;
}

template <class X>
static void forward(const struct kcp_gate *a, dim3 rows, dim3 warps, dim3 chunks)
{
    const int64_t n = a->T * a->H;
    if (a->q)
        norm<X><<<rows, warps, 0, a->stream>>>(n, a->K, a->l2norm, a->q_raw, a->q,
                                               a->rstd_q);
    if (a->k)
        norm<X><<<rows, warps, 0, a->stream>>>(n, a->K, a->l2norm, a->k_raw, a->k,
                                               a->rstd_k);
    gate_forward<<<chunks, a->KG, 0, a->stream>>>(*a);
}

template <class X>
static void backward(const struct kcp_gate *a, dim3 rows, dim3 warps, dim3 chunks)
{
    const int64_t n = a->T * a->H;
    norm_backward<X><<<rows, warps, 0, a->stream>>>(n, a->K, a->l2norm, a->q_raw, a->dq,
                                                    a->dq_raw);
    norm_backward<X><<<rows, warps, 0, a->stream>>>(n, a->K, a->l2norm, a->k_raw, a->dk,
                                                    a->dk_raw);
    gate_backward<<<chunks, a->KG, 0, a->stream>>>(*a);
    gate_parts<<<dim3(a->NS, a->HV), a->KG, 0, a->stream>>>(*a);
}

template <class X>
int v1_gate(void *args)
{
    struct kcp_gate own = *(const struct kcp_gate *)args, *a = &own;
    const struct kcp_call *call = (const struct kcp_call *)args;
    const enum kcp_storage storage = sizeof(X) == 4 ? KCP_F32 : KCP_BF16;
    own.g_type = kcp_type_of(call, KCP_G, storage);
    own.beta_type = kcp_type_of(call, KCP_BETA, storage);
    if (a->K > KMAX) return KCP_NA;
    if (!a->T) return KCP_OK;
    const dim3 warps(32, 8), rows((unsigned)((a->T * a->H + 7) / 8));
    const dim3 chunks(a->NC, a->HV);
    if (a->pass == KCP_FORWARD) forward<X>(a, rows, warps, chunks);
    else backward<X>(a, rows, warps, chunks);
    if (a->pass == KCP_BACKWARD || a->beta)
        beta<<<(unsigned)((a->T * a->HV + 255) / 256), 256, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(gate_v1_walk, "02_gate", "v1_walk",
    "norm: a warp per row; gate: a thread per channel", "K up to 256", v1_gate<X>,
    v1_gate_work, 1);
