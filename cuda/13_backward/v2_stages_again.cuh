// v2_stages_again.cuh -- what backward needs once more, from the A that forward kept.
// Book: chapter 13, "Code: kernels".
// Checked by: tests/13_backward.c.
// Next: v2_stages.cu.
#include "../scan.cuh"
#include "../stages_v2.cuh"

// G, u, w, and KDA's kg and qg: chapters 02 and 03 without the pairs and the inverse,
// for the block holds q, k, beta and A. [w | u] = A [beta k~ | beta v] is one product.
//
// Bound: memory. A token-head reads q, k, v, g (8 K) and A (2 C), and writes G (4 K),
// u, w, kg, qg (8 K): 2690 bytes at K = V = 128, 0.49 ms for case A; 02 and 03 had
// 1.8. A thread walks K/16 tokens of four channels; all its loads leave before the
// first is used. Barriers: the spans' sums are there; X and A are; X has been read.
template <int K, int V>
struct again_room {
    bf16 X[CHUNK][K + V + PAD], A[CHUNK][CHUNK + PAD];
    float sums[1024 / K][K], beta[CHUNK], E[CHUNK];
};

// exp and log by the special function unit, as forward's v2 (chapter 02) has it.
static __device__ __forceinline__ float activated(const struct kcp_gate &a, float expA,
                                                  float dt, float x)
{
    const float y = x + dt;
    if (a.gate == KCP_GATE_RAW) return fmaxf(x, -750.0f);
    if (a.gate == KCP_GATE_BOUNDED)
        return (float)a.lower_bound / (1.0f + __expf(-expA * y));
    return fmaxf(-expA * (fmaxf(y, 0.0f) + log1pf(__expf(-fabsf(y)))), -750.0f);
}

static __device__ __forceinline__ void unpack4(float *y, uint2 x)
{
    y[0] = __uint_as_float(x.x << 16), y[1] = __uint_as_float(x.x & 0xffff0000u);
    y[2] = __uint_as_float(x.y << 16), y[3] = __uint_as_float(x.y & 0xffff0000u);
}

static __device__ __forceinline__ uint2 pack4(const float *x)
{
    return make_uint2(pack(x[0], x[1]), pack(x[2], x[3]));
}

// KDA: G, qg, kg of a thread's tokens and channels, and beta k~ to X.
template <int K, int V>
static __device__ void gate_rows_kda(const struct kcp_gate &f, const struct kcp_wy &a,
                                     struct span z, int n, struct again_room<K, V> &s)
{
    const int lanes = K / 4, i = threadIdx.x % lanes * 4, part = threadIdx.x / lanes;
    const int R = K / 16, m = n / (a.HV / a.H);
    const float *A_log = (const float *)f.A_log, *dt = (const float *)f.dt_bias;
    const float expA = A_log ? expf(A_log[n]) : 1.0f, base_2 = 1.44269504088896341f;
    uint2 x[R], q[R], k[R];
    float G[R][4], sum[4] = {}, last[4] = {}, bias[4] = {};

    #pragma unroll
    for (int r = 0; r < R; r++) {
        const int t = part * R + r;
        const int64_t at = z.t + (t < z.len ? t : 0);
        x[r] = *(const uint2 *)(in<bf16>(f.g_raw, at, a.HV, n, K) + i);
        q[r] = *(const uint2 *)(in<bf16>(a.q, at, a.H, m, K) + i);
        k[r] = *(const uint2 *)(in<bf16>(a.k, at, a.H, m, K) + i);
    }
    if (dt) *(float4 *)bias = *(const float4 *)(dt + n * K + i);
    #pragma unroll
    for (int r = 0; r < R; r++) {
        unpack4(G[r], x[r]);
        #pragma unroll
        for (int d = 0; d < 4; d++) {
            if (part * R + r < z.len) sum[d] += activated(f, expA, bias[d], G[r][d]);
            G[r][d] = sum[d];
        }
    }
    *(float4 *)&s.sums[part][i] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    __syncthreads();
    for (int d = 0; d < 4; d++) sum[d] = 0.0f;
    for (int p = 0; p < 1024 / K; p++) {
        const float4 y = *(const float4 *)&s.sums[p][i];
        if (p == part) for (int d = 0; d < 4; d++) sum[d] = last[d];
        last[0] += y.x, last[1] += y.y, last[2] += y.z, last[3] += y.w;
    }
    for (int d = 0; d < 4; d++) last[d] *= base_2;
    #pragma unroll
    for (int r = 0; r < R; r++) {
        const int t = part * R + r;
        float y[4], E[4], rest[4];
        #pragma unroll
        for (int d = 0; d < 4; d++) {
            G[r][d] = (sum[d] + G[r][d]) * base_2;
            E[d] = exp2_fast(G[r][d]), rest[d] = exp2_fast(last[d] - G[r][d]);
        }
        unpack4(y, k[r]);
        for (int d = 0; d < 4; d++) rest[d] *= y[d], y[d] *= E[d] * s.beta[t];
        *(uint2 *)&s.X[t][i] = pack4(y);
        if (t >= z.len) continue;
        *(float4 *)(out<float>(f.G, z.t + t, a.HV, n, K) + i) = *(const float4 *)G[r];
        *(uint2 *)(out<bf16>(a.kg, z.t + t, a.HV, n, K) + i) = pack4(rest);
        unpack4(y, q[r]);
        for (int d = 0; d < 4; d++) y[d] *= E[d];
        *(uint2 *)(out<bf16>(a.qg, z.t + t, a.HV, n, K) + i) = pack4(y);
    }
}

// GDN: one gate a token, summed by the lanes of two warps; beta k~ to X.
template <int K, int V>
static __device__ void gate_rows_gdn(const struct kcp_gate &f, const struct kcp_wy &a,
                                     struct span z, int n, struct again_room<K, V> &s)
{
    const int t = threadIdx.x, m = n / (a.HV / a.H), lane = t % 32;
    float g = 0.0f;
    if (t < CHUNK) {
        const float *A_log = (const float *)f.A_log, *dt = (const float *)f.dt_bias;
        if (t < z.len)
            g = activated(f, A_log ? expf(A_log[n]) : 1.0f, dt ? dt[n] : 0.0f,
                          (float)in<bf16>(f.g_raw, z.t + t, a.HV, n, 1)[0]);
        for (int b = 1; b < 32; b *= 2) {
            const float y = __shfl_up_sync(~0u, g, b);
            if (lane >= b) g += y;
        }
        if (t == 31) s.sums[0][0] = g;
    }
    __syncthreads();
    if (t < CHUNK) {
        const float G = (t < 32 ? g : s.sums[0][0] + g) * 1.44269504088896341f;
        if (t < z.len) out<float>(f.G, z.t + t, a.HV, n, 1)[0] = G;
        s.E[t] = exp2f(G) * s.beta[t];
    }
    __syncthreads();
    for (int at = t; at < CHUNK * K / 4; at += blockDim.x) {
        const int r = at / (K / 4), i = at % (K / 4) * 4;
        const int64_t from = z.t + (r < z.len ? r : 0);
        float y[4];
        unpack4(y, *(const uint2 *)(in<bf16>(a.k, from, a.H, m, K) + i));
        for (int d = 0; d < 4; d++) y[d] *= s.E[r];
        *(uint2 *)&s.X[r][i] = pack4(y);
    }
}

// X <- A X: a warp 16 rows and half of the columns; A is lower triangular.
template <int K, int V>
static __device__ void times_A(struct again_room<K, V> &s)
{
    const int W = K + V, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int r = warp / 2 * 16, c0 = warp % 2 * (W / 2);
    float d[W / 16][4] = {};
    //> kernel-again
    for (int p = 0; p <= r; p += 16) {
        uint32_t a[4], b[4];
        load_tiles(a, &s.A[r][p] + tiles_down(lane, CHUNK + PAD));
        #pragma unroll
        for (int c = 0; c < W / 32; c++) {
            load_tiles_t(b, &s.X[p][c0 + c * 16] + tiles_down(lane, W + PAD));
            mma(d[2 * c], a, b[0], b[1]), mma(d[2 * c + 1], a, b[2], b[3]);
        }
    }
    //< kernel-again
    __syncthreads();
    #pragma unroll
    for (int c = 0; c < W / 16; c++) {
        uint32_t *y = (uint32_t *)&s.X[r + lane / 4][c0 + c * 8 + lane % 4 * 2];
        y[0] = pack(d[c][0], d[c][1]);
        y[8 * (W + PAD) / 2] = pack(d[c][2], d[c][3]);
    }
}

template <int K, int V>
static __global__ __launch_bounds__(256, 2) void make_again(const struct kcp_gate f,
                                                            const struct kcp_wy a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct again_room<K, V> &s = *(struct again_room<K, V> *)shared;
    const int n = blockIdx.x % a.HV, c = blockIdx.x / a.HV;
    const struct span z = chunk_span(a, ((const int *)a.sc)[c], c);
    uint4 v[V / 32];

    fetch_rows<CHUNK>(s.A[0], in<bf16>(a.A, z.t, a.HV, n, CHUNK),
                      (int64_t)a.HV * CHUNK, z.len);
    copies_commit();
    #pragma unroll
    for (int j = 0; j < V / 32; j++) {
        const int at = threadIdx.x + j * 256, t = at / (V / 8), d = at % (V / 8) * 8;
        const int64_t from = z.t + (t < z.len ? t : 0);
        v[j] = *(const uint4 *)(in<bf16>(a.v, from, a.HV, n, V) + d);
    }
    for (int t = threadIdx.x; t < CHUNK; t += 256)
        s.beta[t] = t < z.len ? in<float>(a.beta, z.t + t, 1, 0, a.HV)[n] : 0.0f;
    if (a.model == KCP_GDN) __syncthreads();
    if (a.model == KCP_GDN) gate_rows_gdn<K, V>(f, a, z, n, s);
    else gate_rows_kda<K, V>(f, a, z, n, s);
    #pragma unroll
    for (int j = 0; j < V / 32; j++) {
        const int at = threadIdx.x + j * 256, t = at / (V / 8), d = at % (V / 8) * 8;
        float y[4];
        unpack4(y, make_uint2(v[j].x, v[j].y));
        for (int e = 0; e < 4; e++) y[e] *= s.beta[t];
        *(uint2 *)&s.X[t][K + d] = pack4(y);
        unpack4(y, make_uint2(v[j].z, v[j].w));
        for (int e = 0; e < 4; e++) y[e] *= s.beta[t];
        *(uint2 *)&s.X[t][K + d + 4] = pack4(y);
    }
    copies_wait<0>();
    __syncthreads();
    times_A<K, V>(s);
    __syncthreads();
    for (int at = threadIdx.x; at < z.len * (K + V) / 8; at += 256) {
        const int t = at / ((K + V) / 8), d = at % ((K + V) / 8) * 8;
        bf16 *to = d < K ? out<bf16>(a.w, z.t + t, a.HV, n, K) + d
                         : out<bf16>(a.u, z.t + t, a.HV, n, V) + d - K;
        *(uint4 *)to = *(const uint4 *)&s.X[t][d];
    }
}

template <int K, int V>
static int launch_again(const struct kcp_gate *f, const struct kcp_wy *a)
{
    const size_t bytes = sizeof(struct again_room<K, V>);
    cudaFuncSetAttribute(make_again<K, V>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    make_again<K, V><<<(unsigned)a->NC * a->HV, 256, bytes, a->stream>>>(*f, *a);
    return launched();
}

// KCP_NA leaves it to chapters 02 and 03.
static int v2_again(const struct kcp_gate *f, const struct kcp_wy *a)
{
    const void *p[] = { f->g_raw, f->dt_bias, a->q, a->k, a->v, a->G, a->A, a->u, a->w,
                        a->kg, a->qg };
    const int K = a->K, V = a->V;
    if (a->C != CHUNK || (K != 64 && K != 128) || (V != 64 && V != 128)) return KCP_NA;
    for (const void *x : p)
        if (!aligned_16(x)) return KCP_NA;
    if (!a->NC) return KCP_OK;
    if (K == 64 && V == 64) return launch_again<64, 64>(f, a);
    if (K == 64) return launch_again<64, 128>(f, a);
    return V == 64 ? launch_again<128, 64>(f, a) : launch_again<128, 128>(f, a);
}

static inline struct stages stages_v2_again(const char *name)
{
    struct stages t = stages_v2(name);
    t.again = v2_again;
    return t;
}
