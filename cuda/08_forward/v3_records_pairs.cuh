// v3_records_pairs.cuh -- prepare: from raw rows to the record of a chunk and head.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_PAIRS_CUH
#define KCP_V3_RECORDS_PAIRS_CUH

#include "v3_records_inverse.cuh"

// A lane's numbers: rows g and g + 8 of its warp's span, channels 32 s + 8 (lane % 4) ..
// of slice s. A product's 16 steps may take channels in any order, as long as both sides
// take the same: so eight neighbours serve two steps, and rows move 16 bytes at a time.
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

// x times a factor of each channel, or as it is, packed.
static __device__ __forceinline__ uint4 pack_times(const float *x, const float *f)
{
    if (!f) return pack_row(x);
    const float4 a = *(const float4 *)f, b = *(const float4 *)(f + 4);
    return make_uint4(pack(x[0] * a.x, x[1] * a.y), pack(x[2] * a.z, x[3] * a.w),
                      pack(x[4] * b.x, x[5] * b.y), pack(x[6] * b.z, x[7] * b.w));
}

static __device__ __forceinline__ uint4 minus(uint4 x)
{
    const uint32_t signs = 0x80008000u;
    return make_uint4(x.x ^ signs, x.y ^ signs, x.z ^ signs, x.w ^ signs);
}

// d [16,16] += rows times columns, over the 32 channels of a slice.
static __device__ __forceinline__ void add_slice(float (*d)[4], const uint4 *rows,
                                                 const uint4 *cols)
{
    const uint32_t a[4] = { rows[0].x, rows[1].x, rows[0].y, rows[1].y };
    const uint32_t b[4] = { rows[0].z, rows[1].z, rows[0].w, rows[1].w };
    mma(d[0], a, cols[0].x, cols[0].y), mma(d[1], a, cols[1].x, cols[1].y);
    mma(d[0], b, cols[0].z, cols[0].w), mma(d[1], b, cols[1].z, cols[1].w);
}

// Squares of Aqk and of L / beta that a warp sums: on the diagonal, and to its left.
struct scores { float qk[SPANS][2][4], kk[SPANS][2][4]; };     // [3] is the diagonal

// What a warp makes of one row's 32 channels of a slice.
struct row_of_slice { uint4 qF, kF, kI; };

// Row g + 8 h: its factors into the record, its columns for the spans below. To the
// span's own anchor a row of q or k decays by F = exp2(G), to its end by exp2(G_last - G);
// products of whole spans' factors, all <= 1, lead further. Back from the span's end, to
// its anchor, leads U.
template <int K>
static __device__ __forceinline__ struct row_of_slice row(
    const struct kcp_forward &a, const struct lane_rows &l, int I, int s, int h,
    struct prepare<K> &m, struct record<K> *r)
{
    const int lane = threadIdx.x % 32, i = lane / 4 + 8 * h, at = 32 * s + lane % 4 * 8;
    const int to = s / 2 * BYTES + in_panel(I * SPAN + i, s % 2 * 4 + lane % 4);
    const float *f = &m.fac[0][at];
    const int64_t from = l.at + h * l.next + 32 * s;
    float q[8], k[8], kB[8], G[8], last[8];
    unpack_row(q, eight((const bf16 *)a.q_raw + from), m.nq[I * SPAN + i]);
    unpack_row(k, eight((const bf16 *)a.k_raw + from), m.nk[I * SPAN + i]);
    eight_floats(G, &m.G[I][i][at]), eight_floats(last, &m.G[I][SPAN - 1][at]);
    //> kernel-records-row
    #pragma unroll
    for (int d = 0; d < 8; d++) {
        const float F = exp2_fast(G[d]);
        kB[d] = k[d] * exp2_fast(last[d] - G[d]), q[d] *= F, k[d] *= F;
    }
    *(uint4 *)(r->k[0] + to) = minus(pack_times(k, f + (P + I) * K));
    *(uint4 *)(r->q[0] + to) = pack_times(q, f + (P + I) * K);
    *(uint4 *)(r->kg[0] + to) = pack_times(kB, f + (E + I) * K);
    uint4 (*col)[2][32] = m.col[s % 2];
    if (I < 3) col[square_of(I + 1, I)][h][lane] = pack_row(kB);
    if (I < 2) col[square_of(I + 2, I)][h][lane] = pack_times(kB, f + (D1 + I) * K);
    if (I < 1) col[square_of(3, 0)][h][lane] = pack_times(kB, f + D12 * K);
    //< kernel-records-row
    return { pack_row(q), pack_row(k), pack_times(kB, f + (U + I) * K) };
}

// 32 channels of warp I's rows: their share of the pairs. Within a span D_ij = exp2(G_i)
// exp2(-G_j), both within the range of bf16 unless the span is deep; between spans every
// factor is <= 1, whatever the gate.
template <int K>
static __device__ __forceinline__ void slice(const struct kcp_forward &a,
                                             const struct lane_rows &l, int I, int s,
                                             struct prepare<K> &m, struct record<K> *r,
                                             struct scores &y)
{
    const int lane = threadIdx.x % 32;
    const struct row_of_slice u = row<K>(a, l, I, s, 0, m, r);
    asm volatile("" ::: "memory");       // one row's numbers at a time in registers
    const struct row_of_slice v = row<K>(a, l, I, s, 1, m, r);
    const uint4 q[2] = { u.qF, v.qF }, k[2] = { u.kF, v.kF }, own[2] = { u.kI, v.kI };
    add_slice(y.qk[3], q, own), add_slice(y.kk[3], k, own);
    __syncthreads();
    #pragma unroll
    for (int J = 0; J < 3; J++) {
        if (J >= I) continue;
        const uint4 (*c)[32] = m.col[s % 2][square_of(I, J)];
        const uint4 cols[2] = { c[0][lane], c[1][lane] };
        add_slice(y.qk[J], q, cols), add_slice(y.kk[J], k, cols);
    }
}

// What the block keeps of q and k as normalised, once for the heads that share them.
template <int K>
static __device__ void normed_out(const bf16 *from, bf16 *to, float n)
{
    #pragma unroll 1
    for (int s = 0; s < K && n != 0.0f; s += 32) {
        float x[8];
        unpack_row(x, *(const uint4 *)(from + s), n);
        *(uint4 *)(to + s) = pack_row(x);
    }
}

// The pairs of one span one by one, for gates that no pair of factors can hold: rows i,
// j <= i of warp I, to its two squares in shared memory. Slow, and exact at any decay.
struct deep_square { float x[2][SPAN][SPAN]; };

template <int K>
static __device__ void deep_pairs(const bf16 *q, const bf16 *k,
                                  int64_t stride, int rows, const float *nq,
                                  const float *nk, const float (*G)[K + 4],
                                  struct deep_square &to)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int at = 0; at < 2 * SPAN * SPAN; at++) {
        const int i = at / SPAN % SPAN, j = at % SPAN, of_k = at / (SPAN * SPAN);
        if (j > i || i >= rows) continue;
        const bf16 *row = (of_k ? k : q) + i * stride, *kj = k + j * stride;
        float sum = 0.0f;
        for (int d = lane; d < K; d += 32)
            sum += (float)row[d] * (float)kj[d] * exp2_fast(G[i][d] - G[j][d]);
        for (int b = 16; b; b /= 2) sum += __shfl_xor_sync(~0u, sum, b);
        if (lane == 0) to.x[of_k][i][j] = sum * (of_k ? nk : nq)[i] * nk[j];
    }
    __syncwarp();
}

template <int K>
static __device__ __forceinline__ void deep_span(const struct records &x, struct span z,
                                                 int n, int I, struct prepare<K> &s,
                                                 struct scores &y)
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    struct deep_square &d = ((struct deep_square *)s.col)[I];
    static_assert(sizeof s.col >= SPANS * sizeof d, "two squares a warp");
    const struct kcp_forward &a = x.a;
    const int64_t t = z.t + I * SPAN, m = n / (a.HV / a.H);
    __syncthreads();                     // the columns are read
    deep_pairs<K>(in<bf16>(a.q_raw, t, a.H, m, K), in<bf16>(a.k_raw, t, a.H, m, K),
                  (int64_t)a.H * K, z.len - I * SPAN,
                  s.nq + I * SPAN, s.nk + I * SPAN, s.G[I], d);
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        const int i = g + h % 4 / 2 * 8, j = h / 4 * 8 + e + h % 2;
        const int there = j <= i && I * SPAN + i < z.len;
        y.qk[3][h / 4][h % 4] = there ? d.x[0][i][j] : 0.0f;
        y.kk[3][h / 4][h % 4] = there ? d.x[1][i][j] : 0.0f;
    }
}

#endif
