// v2_stages_recompute_rows.cuh -- recomputes G and the gated rows of a chunk.
// Book: chapter 13, "Code: kernels".
#include "cuda/tile/warp_scan.cuh"
#include "cuda/host/stages_v2.cuh"

// Array X first holds [k | v], then [beta k~ | beta v], then [w | u].
template <int K, int V>
struct recompute_storage {
    bf16 X[CHUNK][K + V + PAD], A[CHUNK][CHUNK + PAD], q[CHUNK][K + PAD];
    float sums[1024 / K][K], beta[CHUNK], E[CHUNK];
};

// Computes the gate with the approximate exp of the special function unit, as in
// chapter 02's v2. Because `bounded` is a template argument, the code for bounded gates
// omits other forms.
template <int bounded>
static __device__ __forceinline__ float activated(const struct kcp_gate &a, float expA,
                                                  float dt, float x)
{
    const float y = x + dt, log2e = 1.44269504088896341f;
    if (bounded)
        return (float)a.lower_bound * rcp_approx(1.0f + ex2_approx(-log2e * expA * y));
    if (a.gate == KCP_GATE_RAW) return max_or_nan(x, -750.0f);
    return max_or_nan(-expA * (fmaxf(y, 0.0f) + log1pf(__expf(-fabsf(y)))), -750.0f);
}

static __device__ __forceinline__ void unpack4(float *y, uint2 x)
{
    y[0] = __uint_as_float(x.x << 16);
    y[1] = __uint_as_float(x.x & 0xffff0000u);
    y[2] = __uint_as_float(x.y << 16);
    y[3] = __uint_as_float(x.y & 0xffff0000u);
}

static __device__ __forceinline__ uint2 pack4(const float *x)
{
    return make_uint2(pack_bf16x2(x[0], x[1]), pack_bf16x2(x[2], x[3]));
}

// Replaces raw gates G [R,4] by running sums of activated gates. Rows >= `len` add 0.
template <int R, int bounded>
static __device__ __forceinline__ void sum_rows(const struct kcp_gate &f, float expA,
                                                const float *dt, int len,
                                                float (*G)[4], float *sum)
{
    #pragma unroll
    for (int r = 0; r < R; r++)
        #pragma unroll
        for (int d = 0; d < 4; d++) {
            const float g = activated<bounded>(f, expA, dt[d], G[r][d]);
            G[r][d] = sum[d] += r < len ? g : 0.0f;
        }
}

// KDA: for a thread's tokens and channels, computes G, qg and kg, and sets k in X to
// beta k~.
template <int K, int V>
static __device__ void gate_rows_kda(const struct kcp_gate &f, const struct kcp_wy &a,
                                     struct token_range z, int n,
                                     struct recompute_storage<K, V> &s)
{
    const int lanes = K / 4, i = threadIdx.x % lanes * 4, part = threadIdx.x / lanes;
    const int R = K / 16;
    const float *A_log = (const float *)f.A_log, *dt = (const float *)f.dt_bias;
    const float expA = A_log ? expf(A_log[n]) : 1.0f, base_2 = 1.44269504088896341f;
    uint2 x[R];
    float G[R][4], sum[4] = {}, last[4] = {}, bias[4] = {};

    #pragma unroll
    for (int r = 0; r < R; r++) {
        const int t = part * R + r;
        const int64_t at = z.t + (t < z.len ? t : 0);
        x[r] = *(const uint2 *)(in<bf16>(f.g_raw, at, a.HV, n, K) + i);
    }
    if (dt) *(float4 *)bias = *(const float4 *)(dt + n * K + i);
    #pragma unroll
    for (int r = 0; r < R; r++) unpack4(G[r], x[r]);
    const int left = z.len - part * R;
    if (f.gate == KCP_GATE_BOUNDED) sum_rows<R, 1>(f, expA, bias, left, G, sum);
    else sum_rows<R, 0>(f, expA, bias, left, G, sum);
    *(float4 *)&s.sums[part][i] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    cp_async_wait<0>();
    __syncthreads();
    for (int d = 0; d < 4; d++) sum[d] = 0.0f;
    for (int p = 0; p < 1024 / K; p++) {
        const float4 y = *(const float4 *)&s.sums[p][i];
        if (p == part) for (int d = 0; d < 4; d++) sum[d] = last[d];
        last[0] += y.x;
        last[1] += y.y;
        last[2] += y.z;
        last[3] += y.w;
    }
    for (int d = 0; d < 4; d++) last[d] *= base_2;
    #pragma unroll
    for (int r = 0; r < R; r++) {
        const int t = part * R + r;
        float y[4], E[4], rest[4];
        #pragma unroll
        for (int d = 0; d < 4; d++) {
            G[r][d] = (sum[d] + G[r][d]) * base_2;
            E[d] = ex2_approx(G[r][d]);
            rest[d] = ex2_approx(last[d] - G[r][d]);
        }
        unpack4(y, *(const uint2 *)&s.X[t][i]);
        for (int d = 0; d < 4; d++) {
            rest[d] *= y[d];
            y[d] *= E[d] * s.beta[t];
        }
        *(uint2 *)&s.X[t][i] = pack4(y);
        if (t >= z.len) continue;
        *(float4 *)(out<float>(f.G, z.t + t, a.HV, n, K) + i) = *(const float4 *)G[r];
        *(uint2 *)(out<bf16>(a.kg, z.t + t, a.HV, n, K) + i) = pack4(rest);
        unpack4(y, *(const uint2 *)&s.q[t][i]);
        for (int d = 0; d < 4; d++) y[d] *= E[d];
        *(uint2 *)(out<bf16>(a.qg, z.t + t, a.HV, n, K) + i) = pack4(y);
    }
}

// GDN: computes G with one thread per token, by a scan over two warps, and replaces k
// in X by beta k~.
template <int K, int V>
static __device__ void gate_rows_gdn(const struct kcp_gate &f, const struct kcp_wy &a,
                                     struct token_range z, int n,
                                     struct recompute_storage<K, V> &s)
{
    const int t = threadIdx.x, lane = t % 32;
    float g = 0.0f;
    if (t < CHUNK) {
        const float *A_log = (const float *)f.A_log, *dt = (const float *)f.dt_bias;
        const float expA = A_log ? expf(A_log[n]) : 1.0f, bias = dt ? dt[n] : 0.0f;
        const int64_t at = z.t + (t < z.len ? t : 0);
        const float x = in<bf16>(f.g_raw, at, a.HV, n, 1)[0];
        g = f.gate == KCP_GATE_BOUNDED ? activated<1>(f, expA, bias, x)
                                       : activated<0>(f, expA, bias, x);
        if (t >= z.len) g = 0.0f;
        for (int b = 1; b < 32; b *= 2) {
            const float y = __shfl_up_sync(~0u, g, b);
            if (lane >= b) g += y;
        }
        if (t == 31) s.sums[0][0] = g;
    }
    cp_async_wait<0>();
    __syncthreads();
    if (t < CHUNK) {
        const float G = (t < 32 ? g : s.sums[0][0] + g) * 1.44269504088896341f;
        if (t < z.len) out<float>(f.G, z.t + t, a.HV, n, 1)[0] = G;
        s.E[t] = exp2f(G) * s.beta[t];
    }
    __syncthreads();
    for (int at = t; at < CHUNK * K / 4; at += blockDim.x) {
        const int r = at / (K / 4), i = at % (K / 4) * 4;
        float y[4];
        unpack4(y, *(const uint2 *)&s.X[r][i]);
        for (int d = 0; d < 4; d++) y[d] *= s.E[r];
        *(uint2 *)&s.X[r][i] = pack4(y);
    }
}
