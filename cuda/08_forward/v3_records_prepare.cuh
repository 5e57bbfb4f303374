// v3_records_prepare.cuh -- the kernel that makes the records: a chunk and head a block.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_PREPARE_CUH
#define KCP_V3_RECORDS_PREPARE_CUH

#include "v3_records_pairs.cuh"

// One square (I, J) of both matrices: Aqk to the record, L where the inverse wants it.
template <int K, int on>
static __device__ __forceinline__ void scores_out(const struct records &x, struct span z,
                                                  int n, int I, int J,
                                                  float (*qk)[4], float (*kk)[4],
                                                  struct prepare<K> &s,
                                                  unsigned char *Aqk)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const float beta[2] = { s.beta[I * SPAN + g], s.beta[I * SPAN + g + 8] };
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const int i = h % 2 * 8 + g, j = h / 2 * 8 + e;
        float *a = qk[h / 2] + h % 2 * 2, *l = kk[h / 2] + h % 2 * 2;
        const float b = beta[h % 2];
        if (on) {
            a[0] = j > i ? 0.0f : j == i ? s.own[I * SPAN + i] : a[0];
            a[1] = j + 1 > i ? 0.0f : j + 1 == i ? s.own[I * SPAN + i] : a[1];
        }
        const uint32_t pair = pack(a[0], a[1]);
        put_pair(Aqk, I * SPAN + i, J * 2 + h / 2, pair);
        if (x.to13.Aqk)
            put_row(x, x.to13.Aqk, z, n, I * SPAN + i, J * 2 + h / 2, pair);
        l[0] *= b, l[1] *= b;
        if (on) *(float2 *)&s.square[I][i][j] = make_float2(l[0], l[1]);
    }
    if (!on) put(s.L[square_of(I, J)], as_a(kk));
}

// Above the diagonal Aqk and A are zero: a lane has a row of one of them.
template <int K>
static __device__ __forceinline__ void zeros_out(const struct records &x, struct span z,
                                                 int n, int I, struct record<K> *r)
{
    const int i = I * SPAN + threadIdx.x % 16, of_A = threadIdx.x % 32 / 16;
    unsigned char *panel = of_A ? r->Ab : r->Aqk;
    void *to = of_A ? x.to13.A : x.to13.Aqk;
    for (int p = 2 * I + 2; p < CHUNK / 8; p++) {
        *(uint4 *)(panel + in_panel(i, p)) = make_uint4(0, 0, 0, 0);
        if (to && i < z.len)
            *(uint4 *)(out<bf16>(to, z.t + i, x.a.HV, n, CHUNK) + p * 8) =
                make_uint4(0, 0, 0, 0);
    }
}

// beta of the chunk's rows, 0 past its end, and what the block keeps of it.
template <int K>
static __device__ __forceinline__ void betas(const struct records &x, struct span z,
                                             int n, struct prepare<K> &s)
{
    const int i = threadIdx.x;
    if (i >= CHUNK) return;
    const int64_t at = (z.t + i) * x.a.HV + n;
    float b = i < z.len ? (float)((const bf16 *)x.a.beta_raw)[at] : 0.0f;
    const float top = x.a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f;
    if (x.a.beta_form != KCP_BETA_RAW) b = top / (1.0f + __expf(-b));
    s.beta[i] = i < z.len ? b : 0.0f;
    if (x.to13.beta && i < z.len) ((float *)x.to13.beta)[at] = b;
}

// What the block keeps of q and k.
template <int K>
static __device__ __forceinline__ void rows_kept(const struct records &x, struct span z,
                                                 int I, int m, const struct lane_rows &l)
{
    const int lane = threadIdx.x % 32;
    for (int h = 0; h < 2; h++) {
        const int64_t t = z.t + I * SPAN + lane / 4 + 8 * h;
        const int64_t at = l.at + h * l.next;
        if (l.nq[h] == 0.0f) continue;
        normed_out<K>((const bf16 *)x.a.q_raw + at, (bf16 *)x.to13.q + at, l.nq[h]);
        normed_out<K>((const bf16 *)x.a.k_raw + at, (bf16 *)x.to13.k + at, l.nk[h]);
        ((float *)x.to13.rstd_q)[t * x.a.H + m] = l.nq[h];
        ((float *)x.to13.rstd_k)[t * x.a.H + m] = l.nk[h];
    }
}

// The fragments of a square in shared memory, rows i, columns j.
static __device__ __forceinline__ struct pieces square_as_a(const float (*x)[SPAN + 4])
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    float d[2][4];
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const float2 y = *(const float2 *)&x[g + h % 2 * 8][h / 2 * 8 + e];
        d[h / 2][h % 2 * 2] = y.x, d[h / 2][h % 2 * 2 + 1] = y.y;
    }
    return as_a(d);
}

// Bound: memory, 6K read and 6K + 4C written a token-head; close to it the issue of
// instructions, 3300 a warp. Four warps, one a span of 16 rows; spans take turns at the
// four schedulers, for the last has the most squares. The code is short on purpose: an
// unrolled one of 170 KiB waited for its instructions two thirds of the time. Barriers:
// gates and beta are there; the factors of whole spans are; one a slice, whose columns
// lie in two buffers in turn; L and the spans' inverses.
template <int K, int form>
static __global__ __launch_bounds__(128, 3) void prepare_kernel(const struct records x)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct prepare<K> &s = *(struct prepare<K> *)shared;
    const struct kcp_forward &a = x.a;
    const int n = blockIdx.x % a.HV, c = a.NC - 1 - blockIdx.x / a.HV, kv = a.HV / a.H;
    const int I = __shfl_sync(~0u, (threadIdx.x / 32 + blockIdx.x) % SPANS, 0);
    struct span z = chunk_span(a, ((const int *)a.sc)[c], c);
    struct record<K> *r = record_of<K>(x, c, n);
    struct lane_rows l;

    span_sums<K, form>(a, z, n, I, s);
    betas<K>(x, z, n, s);
    if (threadIdx.x == 0) s.rows = z;
    rows_of_lane<K>(a, z, n / kv, I, s, l);
    if (x.to13.q && n % kv == 0) rows_kept<K>(x, z, I, n / kv, l);
    __syncthreads();
    const int deep = span_factors<K>(s, r->decay);
    if (threadIdx.x % 32 == 0) s.deep = deep;
    struct scores y = {};
    #pragma unroll 1
    for (int at = 0; at < K / 32; at++) slice<K>(a, l, I, at, s, r, y);
    z = s.rows;
    if (s.deep) deep_span<K>(x, z, n, I, s, y);

    #pragma unroll
    for (int J = 0; J < SPANS - 1; J++)
        if (J < I) scores_out<K, 0>(x, z, n, I, J, y.qk[J], y.kk[J], s, r->Aqk);
    scores_out<K, 1>(x, z, n, I, I, y.qk[3], y.kk[3], s, r->Aqk);
    zeros_out<K>(x, z, n, I, r);
    __syncwarp();
    invert_span(s.square[I]);
    put(s.A[I], square_as_a(s.square[I]));
    __syncthreads();
    column_of_squares<K>(x, s.rows, n, I, s, r->Ab);
}

template <int K, int form>
static int prepare_form(const struct records *x)
{
    const size_t bytes = sizeof(struct prepare<K>);
    cudaFuncSetAttribute(prepare_kernel<K, form>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    prepare_kernel<K, form><<<x->a.NC * x->a.HV, 128, bytes, x->a.stream>>>(*x);
    return launched();
}

template <int K>
static int prepare_records(const struct records *x)
{
    return x->a.gate == KCP_GATE_BOUNDED ? prepare_form<K, KCP_GATE_BOUNDED>(x)
         : x->a.gate == KCP_GATE_RAW ? prepare_form<K, KCP_GATE_RAW>(x)
                                     : prepare_form<K, KCP_GATE_SOFTPLUS>(x);
}

#endif
