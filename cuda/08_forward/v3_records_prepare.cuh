// v3_records_prepare.cuh -- the kernel that makes records: a chunk and head a block.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_PREPARE_CUH
#define KCP_V3_RECORDS_PREPARE_CUH

#include "v3_records_pairs.cuh"

// Half a square (I, J) of both matrices: Aqk to the record, L where the inverse wants
// it.
template <int K, int on>
static __device__ __forceinline__ void scores_out(const struct records &x,
                                                  struct span z, int n, struct role w,
                                                  int J, struct share &y,
                                                  struct prepare<K> &s,
                                                  unsigned char *Aqk)
{
    const int lane = threadIdx.x % 32, e = lane % 4 * 2, in_span = w.h * 8 + lane / 4;
    const int i = w.I * SPAN + in_span;
    const float own = s.own[i], b = s.beta[i];
    uint32_t top[2], rest[2], pair[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int j = h * 8 + e;
        float *a = y.d[h];
        if (on) {
            a[0] = j > in_span ? 0.0f : j == in_span ? own : a[0];
            a[1] = j + 1 > in_span ? 0.0f : j + 1 == in_span ? own : a[1];
        }
        pair[h] = pack(a[0], a[1]);
        if (on) *(float2 *)&s.square[w.I][in_span][j] = make_float2(a[2] * b, a[3] * b);
        else split(a[2] * b, a[3] * b, top[h], rest[h]);
    }
    const uint2 four = four_of(pair[0], pair[1]);
    put_four(Aqk, i, J, four);
    if (x.to13.Aqk) put_row(x, x.to13.Aqk, z, n, i, J, four);
    if (on) return;
    uint4 (*L)[32] = s.L[square_of(w.I, J)];
    ((uint2 *)&L[0][lane])[w.h] = make_uint2(top[0], top[1]);
    ((uint2 *)&L[1][lane])[w.h] = make_uint2(rest[0], rest[1]);
}

// Above the diagonal Aqk and A are zero: a warp has its span's rows of one of them.
static __device__ __forceinline__ void zeros_out(const struct records &x, struct span z,
                                                 int n, struct role w,
                                                 unsigned char *Aqk, unsigned char *Ab)
{
    const int i = w.I * SPAN + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
    unsigned char *panel = w.h ? Ab : Aqk;
    void *to = w.h ? x.to13.A : x.to13.Aqk;
    for (int p = 2 * w.I + 2 + half; p < CHUNK / 8; p += 2) {
        *(uint4 *)(panel + in_panel(i, p)) = make_uint4(0, 0, 0, 0);
        if (to && i < z.len)
            *(uint4 *)(out<bf16>(to, z.t + i, x.a.HV, n, CHUNK) + p * 8) =
                make_uint4(0, 0, 0, 0);
    }
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

// What the block keeps of q and k, once for the heads that share them.
template <int K>
static __device__ __forceinline__ void rows_kept(const struct records &x, struct span z,
                                                 int m, const struct lane_row &l,
                                                 const struct prepare<K> &s)
{
    const float nq = s.norm[l.i].x / (float)x.a.scale, nk = s.norm[l.i].y;
    const int64_t at = s.base + l.at;
    if (l.i >= z.len) return;
    #pragma unroll 1
    for (int i = 0; i < K; i += 32) {
        float y[8];
        unpack_row(y, eight((const bf16 *)x.a.q_raw + at + i), nq);
        *(uint4 *)((bf16 *)x.to13.q + at + i) = pack_row(y);
        unpack_row(y, eight((const bf16 *)x.a.k_raw + at + i), nk);
        *(uint4 *)((bf16 *)x.to13.k + at + i) = pack_row(y);
    }
    const int64_t row = (z.t + l.i) * x.a.H + m;
    if (threadIdx.x % 4 == 0)
        ((float *)x.to13.rstd_q)[row] = nq, ((float *)x.to13.rstd_k)[row] = nk;
}

// Bound: memory, 6K read and 6K + 4C written a token-head. Eight warps, half a span of
// 16 rows each; spans take turns at the four schedulers, for the last has the most
// squares. The code is short on purpose: an unrolled one of 170 KiB waited for its
// instructions two thirds of the time. Barriers: gates, norms and beta are there; the
// factors of whole spans are; one a slice, whose columns lie in two buffers in turn; L;
// the spans' inverses.
template <int K, int form>
static __global__ __launch_bounds__(256, 3) void prepare_kernel(const struct records x)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct prepare<K> &s = *(struct prepare<K> *)shared;
    const struct kcp_forward &a = x.a;
    const int n = blockIdx.x % a.HV, kv = a.HV / a.H;
    const int c = x.first + chunks_of(x) - 1 - blockIdx.x / a.HV;
    const int warp = __shfl_sync(~0u, (threadIdx.x / 32 + blockIdx.x) % 8, 0);
    const struct role w = { warp / 2, warp % 2 };
    struct span z = chunk_span(a, ((const int *)a.sc)[c], c);

    span_sums<K, form>(a, z, n, w, s);
    if (threadIdx.x < CHUNK) s.beta[threadIdx.x] = beta_of(x, z, n, threadIdx.x);
    const struct lane_row l = row_of_lane(a, z, w);
    const int64_t base = (z.t * a.H + n / kv) * K;
    if (threadIdx.x == 0) s.rows = z, s.base = base, s.record = record_of<K>(x, c, n);
    struct row_of_slice raw[K / 32];
    raw_rows<K>(a, base + l.at, raw);
    norms<K>(a, z, raw, l, s);
    __syncthreads();
    const int deep = span_factors<K>(s, record_of<K>(x, c, n)->decay);
    if (threadIdx.x % 32 == 0) s.deep = deep;
    if (x.to13.q && n % kv == 0) rows_kept<K>(x, z, n / kv, l, s);
    struct share y[SPANS] = {};
    #pragma unroll 1
    for (int at = 0; at < K / 32; at++) slice<K>(a, l, w, at, s, y);
    z = s.rows;
    struct record<K> *r = (struct record<K> *)s.record;
    if (s.deep) deep_span<K>(a, z, n, w, s, y[3]);

    #pragma unroll
    for (int J = 0; J < SPANS - 1; J++)
        if (J < w.I) scores_out<K, 0>(x, z, n, w, J, y[J], s, r->Aqk);
    scores_out<K, 1>(x, z, n, w, w.I, y[3], s, r->Aqk);
    zeros_out(x, z, n, w, r->Aqk, r->Ab);
    __syncthreads();
    if (warp < 2) invert_spans<K>(2 * warp, s);
    __syncthreads();
    if (w.h == 0) column_of_squares<K>(x, z, n, w.I, s, r->Ab);
    if (blockIdx.x + 1 == gridDim.x) wait_for_scan();
}

template <int K, int form>
static int prepare_form(const struct records *x)
{
    return launch_beside(prepare_kernel<K, form>, sizeof(struct prepare<K>),
                         chunks_of(*x) * x->a.HV, 256, x);
}

template <int K>
static int prepare_records(const struct records *x)
{
    return x->a.gate == KCP_GATE_BOUNDED ? prepare_form<K, KCP_GATE_BOUNDED>(x)
         : x->a.gate == KCP_GATE_RAW ? prepare_form<K, KCP_GATE_RAW>(x)
                                     : prepare_form<K, KCP_GATE_SOFTPLUS>(x);
}

#endif
