// v3_records_gdn_rows.cuh -- prepare, one gate a head: what value heads share.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_gdn.cuh.
#ifndef KCP_V3_RECORDS_GDN_ROWS_CUH
#define KCP_V3_RECORDS_GDN_ROWS_CUH

#include "v3_records_spans.cuh"

static __device__ __forceinline__ void unpack_row(float *y, uint4 u, float times)
{
    const uint32_t w[4] = { u.x, u.y, u.z, u.w };
    #pragma unroll
    for (int i = 0; i < 8; i++) y[i] = times * (i % 2 ? high(w[i / 2]) : low(w[i / 2]));
}

static __device__ __forceinline__ uint4 pack_row(const float *x)
{
    return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]),
                      pack(x[6], x[7]));
}

// beta of a chunk's row, 0 past its end, and what the block keeps of it.
static __device__ __forceinline__ float beta_of(const struct records &x, struct span z,
                                                int n, int i)
{
    if (i >= z.len) return 0.0f;
    const int64_t at = (z.t + i) * x.a.HV + n;
    float b = (float)((const bf16 *)x.a.beta_raw)[at];
    const float top = x.a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f;
    if (x.a.beta_form != KCP_BETA_RAW) b = top / (1.0f + __expf(-b));
    if (x.to13.beta) ((float *)x.to13.beta)[at] = b;
    return b;
}

// With one gate a head, decay leaves the products over channels: q k^T and k k^T are
// made once for the value heads of a query/key head, of the numbers as they are, and a
// pair's decay is exp2 of a difference, exact at any gate. A block is a warpgroup: warp
// I has span I, 16 rows of both products.
enum { SHARE = 4 };                      // value heads of a block, at most

// many: more heads than one; the products wait in shared memory for each. Rows are gone
// when the first head begins.
template <int K, int many>
struct __align__(1024) prepare_gdn {
    union {
        struct shared_rows<K> raw;
        struct {
            struct head_record out;
            struct squares s;
            float4 scores[many ? 10 : 0][4][32];
        };
    };
    float G[many ? SHARE : 1][CHUNK], beta[many ? SHARE : 1][CHUNK];
    float2 norm[CHUNK];                  // scale / |q|, 1 / |k|, 0 past the end
    struct span z;                       // these here, so that no registers hold them:
    int c, n, heads;                     // the chunk, the first head, how many
};

// G and beta of a value head, by a warp: a lane has rows lane and lane + 32. Below
// 2^-200 a decay is 0 as fp32; so G keeps its digits.
template <int form>
static __device__ __forceinline__ void head_sums(const struct records &x, struct span z,
                                                 int n, float *G, float *beta)
{
    const int lane = threadIdx.x % 32;
    const struct gate_of f = gate_of<form>(x.a, n, 0);
    float before = 0.0f;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = 32 * h + lane, there = i < z.len;
        const int64_t t = z.t + (there ? i : 0);
        const float g = (float)*in<bf16>(x.a.g_raw, t, x.a.HV, n, 1);
        float sum = there ? fmaxf(decay_of<form>(f, g), -200.0f) : 0.0f;
        for (int b = 1; b < 32; b *= 2) {
            const float y = __shfl_up_sync(~0u, sum, b, 32);
            if (lane >= b) sum += y;
        }
        G[i] = sum += before;
        before = __shfl_sync(~0u, sum, 31);
        beta[i] = beta_of(x, z, n, i);
    }
}

// Rows of q and k of query/key head m to panels, 0 past the end.
template <int K>
static __device__ __forceinline__ void rows_in(const struct records &x, struct span z,
                                               int m, struct shared_rows<K> &to)
{
    const int pieces = K / 8, p = threadIdx.x % pieces;
    const int64_t at = (z.t * x.a.H + m) * K + p * 8, step = (int64_t)x.a.H * K;
    #pragma unroll
    for (int i = threadIdx.x / pieces; i < CHUNK; i += 128 / pieces) {
        const int there = i < z.len, panel = p / 8 * BYTES + in_panel(i, p % 8);
        const int64_t from = at + (there ? i : 0) * step;
        copy_async(to.q[0] + panel, (const bf16 *)x.a.q_raw + from, there);
        copy_async(to.k[0] + panel, (const bf16 *)x.a.k_raw + from, there);
    }
}

// d = X Y^T, X and Y [64,K] in panels.
template <int K>
static __device__ __forceinline__ void rows_rows(float (*d)[4],
                                                 const unsigned char (*X)[BYTES],
                                                 const unsigned char (*Y)[BYTES])
{
    #pragma unroll
    for (int p = 0; p < K / 16; p++)
        group_mma_rows(d, rows_at((const bf16 *)X[p / 4]) + p % 4 * STEP_ROWS,
                       rows_at((const bf16 *)Y[p / 4]) + p % 4 * STEP_ROWS, p);
}

// The diagonal of a warp's rows: lanes of e / 2 = g / 2 have it, rows g and g + 8.
static __device__ __forceinline__ float2 diagonal(const float (*d)[4], int I)
{
    float2 y = {};
    const int odd = threadIdx.x % 32 / 4 % 2;
    #pragma unroll
    for (int J = 0; J < SPANS; J++)
        if (J == I)
            y = make_float2(odd ? d[2 * J][1] : d[2 * J][0],
                            odd ? d[2 * J + 1][3] : d[2 * J + 1][2]);
    return y;
}

// Both products and the norms. Rows go to memory meanwhile, as they are.
template <int K>
static __device__ __forceinline__ void products(const struct records &x, struct span z,
                                                int I, const struct shared_rows<K> &r,
                                                struct shared_rows<K> *to,
                                                float (*qk)[4], float (*kk)[4],
                                                float2 *norm)
{
    const int g = threadIdx.x % 32 / 4;
    group_begin();
    rows_rows<K>(qk, r.q, r.q);
    rows_rows<K>(kk, r.k, r.k);
    group_commit();
    if (to && threadIdx.x == 0) bulk_store(to, &r, sizeof r);
    group_wait<0>();
    hold<8>(qk), hold<8>(kk);
    const float2 q = diagonal(qk, I), k = diagonal(kk, I);
    group_begin();
    rows_rows<K>(qk, r.q, r.k);
    group_commit();
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = I * SPAN + 8 * h + g, there = i < z.len;
        const float nq = x.a.l2norm ? rsqrtf((h ? q.y : q.x) + 1e-6f) : 1.0f;
        const float nk = x.a.l2norm ? rsqrtf((h ? k.y : k.x) + 1e-6f) : 1.0f;
        if (threadIdx.x % 4 == g / 2)
            norm[i] = there ? make_float2(nq * (float)x.a.scale, nk) : float2();
    }
    group_wait<0>();
    hold<8>(qk);
}

// What the block keeps of q and k, once for the heads that share them.
template <int K>
static __device__ __forceinline__ void rows_kept(const struct records &x, struct span z,
                                                 int m, const float2 *norm,
                                                 const struct shared_rows<K> &r)
{
    const int pieces = K / 8, p = threadIdx.x % pieces;
    #pragma unroll 1
    for (int i = threadIdx.x / pieces; i < z.len; i += 128 / pieces) {
        const int panel = p / 8 * BYTES + in_panel(i, p % 8);
        const int64_t row = (z.t + i) * x.a.H + m;
        const float nq = norm[i].x / (float)x.a.scale, nk = norm[i].y;
        float y[8];
        unpack_row(y, *(const uint4 *)(r.q[0] + panel), nq);
        *(uint4 *)((bf16 *)x.to13.q + row * K + p * 8) = pack_row(y);
        unpack_row(y, *(const uint4 *)(r.k[0] + panel), nk);
        *(uint4 *)((bf16 *)x.to13.k + row * K + p * 8) = pack_row(y);
        if (p == 0)
            ((float *)x.to13.rstd_q)[row] = nq, ((float *)x.to13.rstd_k)[row] = nk;
    }
}

#endif
