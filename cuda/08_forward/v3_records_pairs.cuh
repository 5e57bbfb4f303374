// v3_records_pairs.cuh -- prepare: from raw rows to the record of a chunk and head.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_PAIRS_CUH
#define KCP_V3_RECORDS_PAIRS_CUH

#include "v3_records_inverse.cuh"

// A lane's numbers: row g of its warp's eight, channels 32 s + 8 (lane % 4) .. of slice
// s. A product's 16 steps may take channels in any order, as long as both sides take
// the same: so eight neighbours serve two steps, and rows move 16 bytes at a time.
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

static __device__ __forceinline__ void eight_floats(float *y, const float *x)
{
    *(float4 *)y = *(const float4 *)x, *(float4 *)(y + 4) = *(const float4 *)(x + 4);
}

// x times a factor of each channel, packed.
static __device__ __forceinline__ uint4 pack_times(const float *x, const float *f)
{
    float y[8];
    eight_floats(y, f);
    for (int i = 0; i < 8; i++) y[i] *= x[i];
    return pack_row(y);
}

static __device__ __forceinline__ uint4 minus(uint4 x)
{
    const uint32_t signs = 0x80008000u;
    return make_uint4(x.x ^ signs, x.y ^ signs, x.z ^ signs, x.w ^ signs);
}

// A square of 16 by 16, a warp's half of it: rows of q and of k, their products with 16
// columns; Aqk is d[.][0..1], L / beta d[.][2..3].
struct __align__(16) share { float d[2][4]; };

static __device__ __forceinline__ void add_slice(struct share &y, struct row_of_slice r,
                                                 const uint4 (*cols)[32])
{
    const uint4 u = cols[0][threadIdx.x % 32], v = cols[1][threadIdx.x % 32];
    const uint32_t a[4] = { r.q.x, r.k.x, r.q.y, r.k.y };
    const uint32_t b[4] = { r.q.z, r.k.z, r.q.w, r.k.w };
    mma(y.d[0], a, u.x, u.y), mma(y.d[1], a, v.x, v.y);
    mma(y.d[0], b, u.z, u.w), mma(y.d[1], b, v.z, v.w);
}

// A row's factors into the record, its columns for the spans below and its own. To the
// span's own anchor a row of q or k decays by F = exp2(G), to its end by exp2(G_last -
// G); products of whole spans' factors, all <= 1, lead further. exp2(-G) leads from the
// anchor to the row, for pairs within the span.
template <int K>
static __device__ __forceinline__ struct row_of_slice row(
    struct row_of_slice raw, int i, struct role w, int s, struct prepare<K> &m)
{
    struct record<K> *r = (struct record<K> *)m.record;
    const int lane = threadIdx.x % 32, I = w.I, at = 32 * s + lane % 4 * 8;
    const int to = s / 2 * BYTES + in_panel(i, s % 2 * 4 + lane % 4);
    const float (*f)[K] = m.fac;
    uint4 (*col)[2][32] = m.col[s % 2];
    float q[8], k[8], kB[8], G[8], last[8];
    const float2 norm = m.norm[i];
    unpack_row(q, raw.q, norm.x), unpack_row(k, raw.k, norm.y);
    eight_floats(G, &m.G[I][i % SPAN][at]);
    for (int d = 0; d < 8; d++) kB[d] = k[d] * exp2_fast(-G[d]);
    col[square_of(I, I)][w.h][lane] = pack_row(kB);
    eight_floats(last, &m.G[I][SPAN - 1][at]);
    #pragma unroll
    for (int d = 0; d < 8; d++) {
        const float F = exp2_fast(G[d]);
        kB[d] = k[d] * exp2_fast(last[d] - G[d]), q[d] *= F, k[d] *= F;
    }
    const uint4 qF = pack_row(q), kF = pack_row(k), ends = pack_row(kB);
    *(uint4 *)(r->q[0] + to) = I ? pack_times(q, f[P + I] + at) : qF;
    *(uint4 *)(r->k[0] + to) = minus(I ? pack_times(k, f[P + I] + at) : kF);
    *(uint4 *)(r->kg[0] + to) = I < 3 ? pack_times(kB, f[E + I] + at) : ends;
    if (I < 3) col[square_of(I + 1, I)][w.h][lane] = ends;
    if (I < 2) col[square_of(I + 2, I)][w.h][lane] = pack_times(kB, f[D1 + I] + at);
    if (I < 1) col[square_of(3, 0)][w.h][lane] = pack_times(kB, f[D12] + at);
    return { qF, kF };
}

// 32 channels of a warp's rows: their share of the pairs, y[3] on the diagonal. Within
// a span D_ij = exp2(G_i) exp2(-G_j), both within the range of bf16 unless the span is
// deep; between spans every factor is <= 1, whatever the gate.
template <int K>
static __device__ __forceinline__ void slice(const struct kcp_forward &a,
                                             const struct lane_row &l, struct role w,
                                             int s, struct prepare<K> &m,
                                             struct share *y)
{
    const struct row_of_slice raw = raw_row(a, m.base + l.at + 32 * s);
    const struct row_of_slice rows = row<K>(raw, l.i, w, s, m);
    __syncthreads();
    #pragma unroll
    for (int J = 0; J < 3; J++)
        if (J < w.I) add_slice(y[J], rows, m.col[s % 2][square_of(w.I, J)]);
    add_slice(y[3], rows, m.col[s % 2][square_of(w.I, w.I)]);
}

// The pairs of one span one by one, for gates that no pair of factors can hold: a
// warp's eight rows i, j <= i, to two squares in shared memory. Slow, and exact at any
// decay.
struct deep_square { float x[2][SPAN][SPAN]; };

template <int K>
static __device__ void deep_pairs(const struct kcp_forward &a, int64_t at, int h,
                                  int rows, const float2 *norm,
                                  const float (*G)[K + 4], struct deep_square &to)
{
    const bf16 *q = (const bf16 *)a.q_raw + at, *k = (const bf16 *)a.k_raw + at;
    const int64_t stride = (int64_t)a.H * K;
    #pragma unroll 1
    for (int x = 0; x < SPAN * SPAN; x++) {
        const int i = 8 * h + x / SPAN % 8, j = x % SPAN, of_k = x / (8 * SPAN);
        if (j > i || i >= rows) continue;
        const bf16 *row = (of_k ? k : q) + i * stride, *kj = k + j * stride;
        float sum = 0.0f;
        for (int d = threadIdx.x % 32; d < K; d += 32)
            sum += (float)row[d] * (float)kj[d] * exp2_fast(G[i][d] - G[j][d]);
        for (int b = 16; b; b /= 2) sum += __shfl_xor_sync(~0u, sum, b);
        sum *= norm[j].y * (of_k ? norm[i].y : norm[i].x);
        if (threadIdx.x % 32 == 0) to.x[of_k][i][j] = sum;
    }
    __syncwarp();
}

template <int K>
static __device__ __forceinline__ void deep_span(const struct kcp_forward &a,
                                                 struct span z, int n, struct role w,
                                                 struct prepare<K> &s, struct share &y)
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2, rows = w.I * SPAN;
    struct deep_square &d = ((struct deep_square *)s.col)[w.I];
    static_assert(sizeof s.col >= SPANS * sizeof d, "two squares a span");
    const int64_t t = z.t + rows, m = n / (a.HV / a.H);
    __syncthreads();                     // the columns are read
    deep_pairs<K>(a, (t * a.H + m) * K, w.h, z.len - rows, s.norm + rows,
                  s.G[w.I], d);
    #pragma unroll
    for (int x = 0; x < 8; x++) {
        const int i = w.h * 8 + g, j = x / 4 * 8 + e + x % 2;
        const int there = j <= i && rows + i < z.len;
        y.d[x / 4][x % 4] = there ? d.x[x / 2 % 2][i][j] : 0.0f;
    }
    __syncthreads();                     // G is read
}

#endif
