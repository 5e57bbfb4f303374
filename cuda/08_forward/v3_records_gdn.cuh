// v3_records_gdn.cuh -- prepare, one gate a head: a value head's part, the kernel.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_GDN_CUH
#define KCP_V3_RECORDS_GDN_CUH

#include "v3_records_gdn_rows.cuh"

// A value head: its number, gate and beta, the chunk's rows and their norms.
struct head_of_chunk {
    const struct span &z;
    int n;
    const float *G, *beta;
    const float2 *norm;
};

// Factors of rows, by 64 threads.
static __device__ __forceinline__ void factors_out(const struct head_of_chunk &h,
                                                   struct row_factors &f)
{
    const int t = threadIdx.x;
    if (t >= CHUNK) return;
    const float last = h.G[CHUNK - 1], to_start = exp2_fast(h.G[t]);
    f.F[t] = to_start * h.norm[t].y, f.Q[t] = to_start * h.norm[t].x;
    f.B[t] = exp2_fast(last - h.G[t]) * h.norm[t].y;
    if (t < 8) f.decay[t] = exp2_fast(last);
}

// Above the diagonal what the call keeps is zero.
static __device__ __forceinline__ void zeros_kept(const struct records &x,
                                                  const struct head_of_chunk &h, int I)
{
    for (int of_A = 0; of_A < 2; of_A++) zeros_out(x, h.z, h.n, { I, of_A });
}

// Square (I, J): norms and decay on the products, Aqk out, L where its inverse is made.
static __device__ __forceinline__ void square_scores(const struct records &x,
                                                     const struct head_of_chunk &h,
                                                     int I, int J, const float (*qk)[4],
                                                     const float (*kk)[4],
                                                     unsigned char *Aqk,
                                                     struct squares &s)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const int on = I == J;
    uint32_t top[2][2], rest[2][2];
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t pair[2];
        const int row = r * 8 + g, i = I * SPAN + row;
        const float G = h.G[i], nq = h.norm[i].x, nk = -h.norm[i].y * h.beta[i];
        #pragma unroll
        for (int t = 0; t < 2; t++) {
            const int col = t * 8 + e, j = J * SPAN + col;
            const float2 Gj = *(const float2 *)&h.G[j];
            const float4 n = *(const float4 *)&h.norm[j];
            const float f0 = n.y * exp2_fast(fminf(G - Gj.x, 0.0f));
            const float f1 = n.w * exp2_fast(fminf(G - Gj.y, 0.0f));
            const float *q = qk[t] + 2 * r, *k = kk[t] + 2 * r;
            const float l0 = k[0] * (nk * f0), l1 = k[1] * (nk * f1);
            pair[t] = pack(on && col > row ? 0.0f : q[0] * (nq * f0),
                           on && col + 1 > row ? 0.0f : q[1] * (nq * f1));
            if (on) *(float2 *)&s.square[I][row][col] = make_float2(-l0, -l1);
            else split(l0, l1, top[r][t], rest[r][t]);
        }
        const uint2 four = four_of(pair[0], pair[1]);
        put_four(Aqk, i, J, four);
        if (x.to13.Aqk) put_row(x, x.to13.Aqk, h.z, h.n, i, J, four);
    }
    if (on) return;
    uint4 (*N)[32] = s.N[below(I, J)];
    N[0][lane] = make_uint4(top[0][0], top[0][1], top[1][0], top[1][1]);
    N[1][lane] = make_uint4(rest[0][0], rest[0][1], rest[1][0], rest[1][1]);
}

// One value head: its gate's factors, scores, inverse; then all of its record at once.
static __device__ __forceinline__ void head_out(const struct records &x, int c,
                                                const struct head_of_chunk &h, int I,
                                                const float (*qk)[4],
                                                const float (*kk)[4],
                                                struct head_record &out,
                                                struct squares &s)
{
    factors_out(h, out.f);
    zeros_kept(x, h, I);
    #pragma unroll
    for (int J = 0; J < SPANS; J++)
        if (J <= I)
            square_scores(x, h, I, J, qk + 2 * J, kk + 2 * J, out.Aqk, s);
    invert_span(I, s);
    __syncthreads();
    const struct squares_to to = { x, h.z, h.n, h.beta, out.Ab };
    invert_pairs(I, to, s);
    show_async();
    __syncthreads();
    if (threadIdx.x == 0) bulk_store(head_of(x, c, h.n), &out, sizeof out);
}

// The warp's products, to shared memory for the heads to come, or back.
static __device__ __forceinline__ void keep_products(int I, const float (*qk)[4],
                                                     const float (*kk)[4],
                                                     float4 (*to)[4][32])
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int T = 0; T < 2 * SPANS; T++)
        if (T / 2 <= I) {
            float4 (*at)[32] = to[square_of(I, T / 2)];
            at[T % 2][lane] = *(const float4 *)qk[T];
            at[T % 2 + 2][lane] = *(const float4 *)kk[T];
        }
}

static __device__ __forceinline__ void kept_products(int I, float (*qk)[4],
                                                     float (*kk)[4],
                                                     const float4 (*from)[4][32])
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int T = 0; T < 2 * SPANS; T++) {
        const float4 (*at)[32] = from[square_of(I, min(T / 2, I))];
        *(float4 *)qk[T] = at[T % 2][lane];
        *(float4 *)kk[T] = at[T % 2 + 2][lane];
    }
}

// Bound: memory, 4K read and written a token and query/key head, 2.5C written a
// token-head. Rows come by asynchronous copies and leave, as records do, by the copy
// engine; four to six blocks a processor hide the inverse's steps from one another.
template <int K, int form, int many>
static __global__ __launch_bounds__(128, many ? 4 : 5) void prepare_gdn_kernel(
    const struct records x)
{
    let_next_begin();
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct prepare_gdn<K, many> &r = *(struct prepare_gdn<K, many> *)on_chip;
    const struct kcp_forward &a = x.a;
    const int kv = a.HV / a.H, parts = (kv + SHARE - 1) / SHARE;
    const int part = blockIdx.x % parts, m = blockIdx.x / parts % a.H;
    const int c = x.first + chunks_of(x) - 1 - blockIdx.x / parts / a.H;
    const int n = m * kv + part * SHARE, heads = min(SHARE, kv - part * SHARE);
    int I = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const struct span z = chunk_span(a, ((const int *)a.sc)[c], c);
    float qk[2 * SPANS][4], kk[2 * SPANS][4];

    rows_in<K>(x, z, m, r.raw);
    copies_commit();
    const int own = many ? I : 0;
    if (I < heads) head_sums<form>(x, z, n + I, r.G[own], r.beta[own]);
    if (threadIdx.x == 0) r.z = z, r.c = c, r.n = n, r.heads = heads;
    copies_wait<0>();
    show_async();
    __syncthreads();
    products<K>(x, z, I, r.raw, part ? NULL : rows_of_head<K>(x, c, m), qk, kk, r.norm);
    if (threadIdx.x == 0) bulk_read();
    __syncthreads();
    if (x.to13.q && part == 0) {
        rows_kept<K>(x, z, m, r.norm, r.raw);
        __syncthreads();
    }
    if (many) keep_products(I, qk, kk, r.scores);
    #pragma unroll 1
    for (int j = 0; j < (many ? r.heads : 1); j++) {
        const struct head_of_chunk h = { r.z, r.n + j, r.G[j], r.beta[j], r.norm };
        asm volatile("" : "+r"(I));         // no address outlives a head
        if (many) kept_products(I, qk, kk, r.scores);
        if (j && threadIdx.x == 0) bulk_read();
        if (j) __syncthreads();
        head_out(x, r.c, h, I, qk, kk, r.out, r.s);
    }
    if (threadIdx.x == 0) bulk_read();
    if (blockIdx.x + 1 == gridDim.x) wait_for_scan();
}

template <int K, int form>
static int prepare_gdn_form(const struct records *x)
{
    const int kv = x->a.HV / x->a.H, parts = (kv + SHARE - 1) / SHARE;
    const int blocks = chunks_of(*x) * x->a.H * parts;
    return kv > 1 ? launch_beside(prepare_gdn_kernel<K, form, 1>,
                                  sizeof(struct prepare_gdn<K, 1>), blocks, 128, x)
                  : launch_beside(prepare_gdn_kernel<K, form, 0>,
                                  sizeof(struct prepare_gdn<K, 0>), blocks, 128, x);
}

template <int K>
static int prepare_gdn_records(const struct records *x)
{
    return x->a.gate == KCP_GATE_BOUNDED ? prepare_gdn_form<K, KCP_GATE_BOUNDED>(x)
         : x->a.gate == KCP_GATE_RAW ? prepare_gdn_form<K, KCP_GATE_RAW>(x)
                                     : prepare_gdn_form<K, KCP_GATE_SOFTPLUS>(x);
}

#endif
