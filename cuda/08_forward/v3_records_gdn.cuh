// v3_records_gdn.cuh -- prepare for one gate a head: value heads share rows, products.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_GDN_CUH
#define KCP_V3_RECORDS_GDN_CUH

#include "v3_records_prepare.cuh"

// With one gate a head, decay leaves the products over channels: q k^T and k k^T are
// made once for the value heads of a query/key head, of the numbers as they are, and a
// pair's decay is exp2 of a difference, exact at any gate. k and q go to memory once,
// normalised.
enum { SHARE = 4 };                      // value heads of a block

template <int K>
struct prepare_gdn {
    struct prepare<K> p;
    float G[SHARE][CHUNK], beta[SHARE][CHUNK];
    int n, heads, c;                     // the first one, how many, the chunk
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

// k and q, normalised, q with the scale, into the rows that the scan reads.
template <int K>
static __device__ __forceinline__ void rows_out(const struct row_of_slice *raw, int i,
                                                float2 norm, struct shared_rows<K> *to)
{
    #pragma unroll
    for (int at = 0; at < K / 32; at++) {
        const int panel = at / 2 * BYTES + in_panel(i, at % 2 * 4 + threadIdx.x % 4);
        float y[8];
        unpack_row(y, raw[at].q, norm.x);
        *(uint4 *)(to->q[0] + panel) = pack_row(y);
        unpack_row(y, raw[at].k, norm.y);
        *(uint4 *)(to->k[0] + panel) = pack_row(y);
    }
}

// A thread's share of square J, in shared memory where the columns were.
template <int K>
static __device__ __forceinline__ float4 *share_at(struct prepare<K> &s, struct role w,
                                                   int J, int part)
{
    return (float4 *)&s.col[part][square_of(w.I, J)][w.h][threadIdx.x % 32];
}

// Rows of k as the columns of every square: [slice][span], K / 8 of col's 20 places.
template <int K>
static __device__ __forceinline__ void columns_out(const struct row_of_slice *raw,
                                                   struct role w, struct prepare<K> &s)
{
    #pragma unroll
    for (int at = 0; at < K / 32; at++)
        s.col[0][at * SPANS + w.I][w.h][threadIdx.x % 32] = raw[at].k;
}

// A warp's squares without decay, of raw rows.
template <int K>
static __device__ __forceinline__ void plain_scores(const struct row_of_slice *raw,
                                                    struct role w, struct prepare<K> &s)
{
    const uint4 (*col)[2][32] = s.col[0];
    struct share y[SPANS] = {};
    #pragma unroll
    for (int at = 0; at < K / 32; at++) {
        const struct row_of_slice rows = {     // its own k lies there, too
            raw[at].q, col[at * SPANS + w.I][w.h][threadIdx.x % 32] };
        #pragma unroll
        for (int J = 0; J < 3; J++)
            if (J < w.I) add_slice(y[J], rows, col[at * SPANS + J]);
        add_slice(y[3], rows, col[at * SPANS + w.I]);
    }
    __syncthreads();
    #pragma unroll
    for (int J = 0; J < SPANS; J++)
        if (J < w.I || J == 3)
            for (int t = 0; t < 2; t++)
                *share_at(s, w, J < 3 ? J : w.I, t) = *(const float4 *)y[J].d[t];
}

// Norms and decay of a square: y[t][0..1] of q, y[t][2..3] of k.
template <int K>
static __device__ __forceinline__ struct share with_decay(struct role w, int i, int J,
                                                          const float *G,
                                                          struct prepare<K> &s)
{
    struct share y;
    #pragma unroll
    for (int t = 0; t < 2; t++) *(float4 *)y.d[t] = *share_at(s, w, J, t);
    #pragma unroll
    for (int x = 0; x < 8; x++) {
        const int j = J * SPAN + x / 4 * 8 + threadIdx.x % 4 * 2 + x % 2;
        const float f = s.norm[j].y * exp2_fast(fminf(G[i] - G[j], 0.0f));
        y.d[x / 4][x % 4] *= f * (x % 4 < 2 ? s.norm[i].x : s.norm[i].y);
    }
    return y;
}

// One value head: its gate's factors, scores, inverse.
template <int K>
static __device__ __forceinline__ void head_out(const struct records &x, int c, int n,
                                                struct role w, int i,
                                                const float *G, const float *beta,
                                                struct prepare<K> &s)
{
    struct head_record *r = head_of(x, c, n);
    const struct span z = s.rows;
    const int t = threadIdx.x;
    asm volatile("" : "+r"(w.I), "+r"(w.h), "+r"(i));    // no address outlives a head
    if (t < CHUNK) {
        const float last = G[CHUNK - 1];
        s.beta[t] = beta[t];
        r->f.F[t] = r->f.Q[t] = exp2_fast(G[t]);
        r->f.B[t] = exp2_fast(last - G[t]);
        if (t < 8) r->f.decay[t] = exp2_fast(last);
    }
    __syncthreads();
    #pragma unroll 1
    for (int J = 0; J < w.I; J++) {
        struct share d = with_decay(w, i, J, G, s);
        scores_out<K, 0>(x, z, n, w, J, d, s, r->Aqk);
    }
    struct share d = with_decay(w, i, w.I, G, s);
    scores_out<K, 1>(x, z, n, w, w.I, d, s, r->Aqk);
    zeros_out(x, z, n, w);
    __syncthreads();
    if (w.I == 0) invert_spans<K>(2 * w.h, s);
    __syncthreads();
    if (w.h == 0) column_of_squares<K>(x, z, n, w.I, s, r->Ab);
    __syncthreads();
}

// Bound: the issue of instructions; 4K read and written a token and query/key head, 4C
// written a token-head.
template <int K, int form>
static __global__ __launch_bounds__(256, 3) void prepare_gdn_kernel(
    const struct records x)
{
    let_next_begin();
    extern __shared__ __align__(128) unsigned char shared[];
    struct prepare_gdn<K> &r = *(struct prepare_gdn<K> *)shared;
    struct prepare<K> &s = r.p;
    const struct kcp_forward &a = x.a;
    const int kv = a.HV / a.H, parts = (kv + SHARE - 1) / SHARE;
    const int part = blockIdx.x % parts, m = blockIdx.x / parts % a.H;
    const int c = x.first + blockIdx.x / parts / a.H, n = m * kv + part * SHARE;
    const int heads = min(SHARE, kv - part * SHARE);
    const int warp = __shfl_sync(~0u, (threadIdx.x / 32 + blockIdx.x) % 8, 0);
    const struct role w = { warp / 2, warp % 2 };
    const struct span z = chunk_span(a, ((const int *)a.sc)[c], c);

    const struct lane_row l = row_of_lane(a, z, w);
    const int64_t base = (z.t * a.H + m) * K;
    struct row_of_slice raw[K / 32];
    raw_rows<K>(a, base + l.at, raw);
    if (warp < heads) head_sums<form>(x, z, n + warp, r.G[warp], r.beta[warp]);
    if (threadIdx.x == 0)
        s.rows = z, s.base = base, r.n = n, r.heads = heads, r.c = c;
    columns_out<K>(raw, w, s);
    norms<K>(a, z, raw, l, s);
    __syncthreads();
    const int head = r.n / kv;
    if (r.n % kv == 0) {
        rows_out<K>(raw, l.i, s.norm[l.i], rows_of_head<K>(x, r.c, head));
        if (x.to13.q) rows_kept<K>(x, s.rows, head, l, s);
    }
    plain_scores<K>(raw, w, s);
    #pragma unroll 1
    for (int j = 0; j < r.heads; j++)
        head_out<K>(x, r.c, r.n + j, w, l.i, r.G[j], r.beta[j], s);
    if (blockIdx.x + 1 == gridDim.x) wait_for_scan();
}

template <int K, int form>
static int prepare_gdn_form(const struct records *x)
{
    const int parts = (x->a.HV / x->a.H + SHARE - 1) / SHARE;
    return launch_beside(prepare_gdn_kernel<K, form>, sizeof(struct prepare_gdn<K>),
                         chunks_of(*x) * x->a.H * parts, 256, x);
}

template <int K>
static int prepare_gdn_records(const struct records *x)
{
    return x->a.gate == KCP_GATE_BOUNDED ? prepare_gdn_form<K, KCP_GATE_BOUNDED>(x)
         : x->a.gate == KCP_GATE_RAW ? prepare_gdn_form<K, KCP_GATE_RAW>(x)
                                     : prepare_gdn_form<K, KCP_GATE_SOFTPLUS>(x);
}

#endif
