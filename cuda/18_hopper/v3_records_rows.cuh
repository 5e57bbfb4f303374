// v3_records_rows.cuh -- prepare for a gate a channel: raw rows to tiles and a record.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_squares.cuh.
#ifndef KCP_V3_RECORDS_ROWS_CUH
#define KCP_V3_RECORDS_ROWS_CUH

#include "v3_records_tiles.cuh"

// What a thread needs besides its rows, asked for before it waits: its gates' numbers,
// beta of its row, as they are in memory.
struct asked { float A_log, dt[2]; unsigned short beta; };

static __device__ __forceinline__ struct asked ask_gate(const struct kcp_forward &a,
                                                        struct token_range z, int n,
                                                        int channel)
{
    const float *dt = (const float *)a.dt_bias + n * a.KG + channel;
    struct asked y = {};
    if (a.A_log) y.A_log = ((const float *)a.A_log)[n];
    if (a.dt_bias) y.dt[0] = dt[0], y.dt[1] = dt[1];
    if (threadIdx.x < z.len)
        y.beta = ((const unsigned short *)a.beta_raw)[(z.t + threadIdx.x) * a.HV + n];
    return y;
}

// What it stands for.
template <int keeps>
static __device__ __forceinline__ float beta_of_raw(const struct records &x,
                                                    struct token_range z, int n,
                                                    unsigned short raw)
{
    const int i = threadIdx.x;
    float b = beta_of(x, low(raw));
    if (i >= z.len) b = 0.0f;
    else if (keeps && x.to13.beta) ((float *)x.to13.beta)[(z.t + i) * x.a.HV + n] = b;
    return b;
}

// G from the first of a thread's rows on, and the sum of them all, which others need.
// Past the chunk's end nothing is added. True if these rows make a span deep.
template <int K, int form>
static __device__ __forceinline__ int sums(const struct kcp_forward &a,
                                           const struct asked &ask, int len,
                                           const struct owned<K> &w, struct tiles<K> &s,
                                           float (*G)[2])
{
    const float e = a.A_log ? expf(ask.A_log) : 1.0f;
    const struct gate_of f[2] = { gate_from<form>(a, e, ask.dt[0]),
                                  gate_from<form>(a, e, ask.dt[1]) };
    float sum[2] = {};
    #pragma unroll
    for (int r = 0; r < w.ROWS; r++) {
        const uint32_t x = *(const uint32_t *)(s.half->g + in_row(w, r));
        const float g[2] = { decay_of<form>(f[0], low(x)),
                             decay_of<form>(f[1], high(x)) };
        #pragma unroll
        for (int d = 0; d < 2; d++) G[r][d] = sum[d] += g[d];
    }
    if (w.row + w.ROWS > len)            // past the end G stays what it was
        #pragma unroll
        for (int r = 0; r < w.ROWS; r++)
            #pragma unroll
            for (int d = 0; d < 2; d++) {
                if (w.row + r >= len) G[r][d] = r ? G[r - 1][d] : 0.0f;
                sum[d] = G[r][d];
            }
    float *to = s.sum[0] + w.row / w.ROWS * K + w.channel;
    *(float2 *)to = make_float2(sum[0], sum[1]);
    return fminf(sum[0], sum[1]) < -118.0f / w.PARTS;
}

// The rows' squares are the diagonals of q q^T and k k^T, which the tensor core makes
// of the numbers as they are; so is q k^T's, which needs no decay and no rounding. A's
// rows are eight of q and the same eight of k. The block for backward keeps the norms.
template <int K, int keeps>
static __device__ __forceinline__ void row_norms(const struct records &x,
                                                 struct token_range z, int first,
                                                 struct tiles<K> &s)
{
    const int lane = opaque_thread_id() % 32, g = lane / 4;
    const int a_at =
        swizzle128_offset(first + lane % 8, lane / 16) + lane / 8 % 2 * BYTES;
    const int b_at =
        swizzle128_offset(first + lane % 8, lane / 8 % 2) + lane / 16 * BYTES;
    float of[2][2][4] = {};
    #pragma unroll
    for (int i = 0; i < K / 16; i++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned char *from = s.half[i / 4].q + h * 8 * 128;
            uint32_t a[4], b[4];
            ldmatrix_x4(a, (const bf16 *)(from + (a_at ^ i % 4 << 5)));
            ldmatrix_x4(b, (const bf16 *)(from + (b_at ^ i % 4 << 5)));
            mma_m16n8k16(of[h][0], a, b[0], b[1]),
                mma_m16n8k16(of[h][1], a, b[2], b[3]);
        }
    if (lane % 4 != g / 2) return;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *of_q = of[h][0], *of_k = of[h][1];
        const float qq = g % 2 ? of_q[1] : of_q[0], qk = g % 2 ? of_k[1] : of_k[0];
        const float kk = g % 2 ? of_k[3] : of_k[2];
        const float nq = x.a.l2norm ? rsqrtf(qq + 1e-6f) : 1.0f;
        const float nk = x.a.l2norm ? rsqrtf(kk + 1e-6f) : 1.0f;
        const int i = first + h * 8 + g;
        s.norm[i] = make_float2(nq * (float)x.a.scale, nk);
        s.own[i] = (bf16)(qk * nq * nk * (float)x.a.scale);
        if (!keeps || s.kept < 0 || i >= z.len) continue;
        const int64_t at = (z.t + i) * x.a.H + s.kept;
        ((float *)x.to13.rstd_q)[at] = nq, ((float *)x.to13.rstd_k)[at] = nk;
    }
}

// What the block for backward keeps of q and k, once for the heads that share them.
template <int K>
static __device__ __forceinline__ void keep_rows(const struct records &x,
                                                 struct token_range z,
                                                 const struct owned<K> &w,
                                                 const struct tiles<K> &s)
{
    const int m = s.kept;
    const float back = 1.0f / (float)x.a.scale;
    #pragma unroll 4
    for (int r = 0; r < w.ROWS; r++) {
        const int i = w.row + r, at = in_row(w, r);
        const float2 norm = s.norm[i];
        const uint32_t q = *(const uint32_t *)(s.half->q + at);
        const uint32_t k = *(const uint32_t *)(s.half->k + at);
        const float nq = norm.x * back;
        if (i >= z.len) return;
        *(uint32_t *)(out<bf16>(x.to13.q, z.t + i, x.a.H, m, K) + w.channel) =
            pack_bf16x2(nq * low(q), nq * high(q));
        *(uint32_t *)(out<bf16>(x.to13.k, z.t + i, x.a.H, m, K) + w.channel) =
            pack_bf16x2(norm.y * low(k), norm.y * high(k));
    }
}

// Factors of whole spans, D_I = exp2 of their sums, a channel each: from span I's
// anchor to the chunk's start, from its end to the chunk's end, one and two spans on.
struct lead { float start[2], end[2], one[2], two[2], last[2]; };

// G becomes the sum from the span's own anchor.
template <int K>
static __device__ __forceinline__ struct lead leads(const struct owned<K> &w,
                                                    const struct tiles<K> &s,
                                                    float (*G)[2], float *decay)
{
    struct lead f;
    #pragma unroll
    for (int d = 0; d < 2; d++) {
        const float *sum = s.sum[0] + w.channel + d;
        float D[SPANS + 2];
        f.start[d] = f.end[d] = 1.0f;
        #pragma unroll
        for (int J = 0; J < SPANS; J++) {
            float x = sum[J * w.PARTS * K];
            if (w.PARTS == 2) x += sum[(J * 2 + 1) * K];
            if (w.PARTS == 2 && J == w.I) f.last[d] = x;
            D[J] = ex2_approx(x);
            if (J < w.I) f.start[d] *= D[J];
            if (J > w.I) f.end[d] *= D[J];
        }
        f.one[d] = w.I == 0 ? D[1] : D[2], f.two[d] = D[1] * D[2];
        if (w.PARTS == 1) f.last[d] = G[w.ROWS - 1][d];
        if (w.row == 0) decay[w.channel + d] = D[0] * f.end[d];
        if (w.PARTS == 2 && w.row % SPAN)
            for (int r = 0; r < w.ROWS; r++) G[r][d] += sum[w.I * 2 * K];
    }
    return f;
}

static __device__ __forceinline__ void put_two(unsigned char *to, const float *x)
{
    *(uint32_t *)to = pack_bf16x2(x[0], x[1]);
}

static __device__ __forceinline__ void put_times(unsigned char *to, const float *x,
                                                 const float *f)
{
    *(uint32_t *)to = pack_bf16x2(x[0] * f[0], x[1] * f[1]);
}

// A thread's rows into the record and the tiles. Past its span, every factor is a
// product of F = exp2(G), or of B = exp2(G_last - G), with those of whole spans: <= 1.
// B is exp2(G_last) / F, but in a deep span, where 1 / F may be infinite.
template <int K, int deep>
static __device__ __forceinline__ void rows_out(const struct owned<K> &w,
                                                const float (*G)[2],
                                                const struct lead &f,
                                                struct tiles<K> &s, struct record<K> *r)
{
    struct half_tiles &m = *s.half;
    unsigned char *to = (unsigned char *)r;
    to -= w.channel / 64 * (sizeof m - BYTES);
    const int in_k = offsetof(struct record<K>, k);
    const int in_q = offsetof(struct record<K>, q);
    const int in_kg = offsetof(struct record<K>, kg);
    const float minus[2] = { -f.start[0], -f.start[1] };
    const float D[2] = { ex2_approx(f.last[0]), ex2_approx(f.last[1]) };
    enum { HALF = owned<K>::ROWS / 2 };
    #pragma unroll
    for (int i = 0; i < HALF; i++) {
        const uint32_t line = opaque(w.at ^ i << 4); // rows i and i + HALF: in_row
        const uint32_t lines[2] = { line, line ^ HALF % 8 << 4 };
        float kB[2][2];
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const int r = i + j * HALF, at = lines[j] + r * 128;
            unsigned char *row = to + lines[j] + r * 128;
            const float2 norm = s.norm[w.row + r];
            const uint32_t qs = *(const uint32_t *)(m.q + at);
            const uint32_t ks = *(const uint32_t *)(m.k + at);
            //> kernel-records-row
            float q[2] = { norm.x * low(qs), norm.x * high(qs) }, up[2];
            float k[2] = { norm.y * low(ks), norm.y * high(ks) };
            for (int d = 0; d < 2; d++) {
                const float g = G[r][d], F = ex2_approx(g);
                up[d] = k[d] * ex2_approx(-g);
                kB[j][d] = deep ? k[d] * ex2_approx(f.last[d] - g) : up[d] * D[d];
                q[d] *= F, k[d] *= F;
            }
            put_two(m.q + at, q), put_two(m.k + at, k), put_two(m.g + at, up);
            put_times(row + in_q, q, f.start), put_times(row + in_k, k, minus);
            put_times(row + in_kg, kB[j], f.end);
            if (w.I < 3) put_two(m.one[0] + at, kB[j]);
            //< kernel-records-row
        }
        if (w.I < 2)
            #pragma unroll
            for (int j = 0; j < 2; j++) {
                const int at = lines[j] + (i + j * HALF) * 128;
                put_times(m.two[0] + at, kB[j], f.one);
                if (w.I < 1) put_times(m.far + at, kB[j], f.two);
            }
        compiler_fence();   // two rows' registers at a time
    }
}

#endif
