// v3_records_gdn.cuh -- prepare, one gate a head: a value head's part, the kernel.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_turns.cuh.
#ifndef KCP_V3_RECORDS_GDN_CUH
#define KCP_V3_RECORDS_GDN_CUH

#include "v3_records_gdn_rows.cuh"

// Factors of row i, to the record and for the squares.
static __device__ __forceinline__ void row_factors_out(const struct head_of_chunk &w,
                                                       int i, struct row_factors &to,
                                                       struct pair_factors &f)
{
    const float2 n = w.norm[i];
    const float G = w.G[i], last = w.G[CHUNK - 1], to_start = ex2_approx(G);
    const float to_first = ex2_approx(G - w.G[i / SPAN * SPAN]);
    to.F[i] = to_start * n.y, to.Q[i] = to_start * n.x;
    to.B[i] = ex2_approx(last - G) * n.y;
    if (i < 8) to.decay[i] = ex2_approx(last);
    f.q[i] = n.x * to_first, f.k[i] = -n.y * w.beta[i] * to_first;
}

// By so many threads.
template <int threads>
static __device__ __forceinline__ void factors_out(const struct head_of_chunk &w,
                                                   struct row_factors &to,
                                                   struct pair_factors &f)
{
    const int t = threadIdx.x % threads;
    #pragma unroll
    for (int i = 0; i < CHUNK; i += threads)
        if (i + t < CHUNK) row_factors_out(w, i + t, to, f);
    #pragma unroll
    for (int i = 0; i < above(SPANS); i += threads) {
        const int y = i + t, I = y < above(2) ? 1 : y < above(3) ? 2 : 3;
        const int j = y - above(I);
        if (y < above(SPANS))
            f.to[y] = w.norm[j].y * ex2_approx(w.G[I * SPAN] - w.G[j]);
    }
}

// What warp I needs of its value head; of what the block keeps, zeros above the
// diagonal, of all rows or of the warp's span's.
template <int many, int kept, class Room>
static __device__ __forceinline__ struct head_of_chunk head_of_chunk(
    const struct records &x, int I, const Room &r)
{
    struct head_of_chunk w = {};
    const int own = many ? I : 0, n = r.n + own, row = lane_row();
    w.G = r.G[own], w.beta = r.beta[own], w.norm = r.norm;
    w.to = head_of(x, r.c, n)->Ab + opaque(lane_in_square());
    if (!kept || own >= r.heads) return w;
    const int64_t at = ((r.z.t + row) * x.a.HV + n) * CHUNK + lane_column();
    w.rows = r.z.len - row, w.step = x.a.HV * CHUNK;
    if (x.to13.A) w.A = (bf16 *)x.to13.A + at;
    if (x.to13.Aqk) w.Aqk = (bf16 *)x.to13.Aqk + at;
    for (int J = many ? 0 : I; J < SPANS; J += many ? 1 : SPANS)
        for (int of_A = 0; of_A < 2; of_A++) zeros_out(x, r.z, n, { J, of_A });
    return w;
}

// A head by one warp. A (I + L) = I, so by columns, the last one first,
//     A_IJ = (sum_M A_IM N_MJ) A_JJ,  J < M <= I:
// N is wanted in its own column alone, and what is kept of A, in registers, are rows'
// beginnings. Spans are inverted two at a time, by half a warp each.
static __device__ __forceinline__ void head_by_warp(const struct head_of_chunk &w,
                                                    const scores &qk, const scores &kk,
                                                    struct head_room<2> &r)
{
    struct pieces A[SPANS][SPANS];       // [J][I]
    #pragma unroll
    for (int I = 1; I < SPANS; I++)
        #pragma unroll
        for (int J = 0; J < I; J++) square_scores(w, I, J, qk, r.f);
    #pragma unroll
    for (int J = SPANS - 1; J >= 0; J--) {
        float d[2][4], y[SPANS][2][4] = {};
        __syncwarp();
        if (J % 2) {
            diagonal_scores(w, J - 1, qk, kk, r.square[0]);
            diagonal_scores(w, J, qk, kk, r.square[1]);
            __syncwarp();
            const int column = (threadIdx.x + 4 * J) % 16;  // no unit vector is kept
            invert_square(r.square[threadIdx.x % 32 / 16].x, column);
        }
        square_rows(d, r.square[J % 2]);
        put_inverse(w, J, J, d);
        A[J][J] = as_a(d);
        #pragma unroll
        for (int M = SPANS - 1; M > J; M--)
            add_products(y + M, A[M] + M, minus_L(M, J, kk, r.f), SPANS - M);
        if (J == SPANS - 1) continue;
        const struct pieces B = square_as_b(r.square[J % 2]);
        #pragma unroll
        for (int I = J + 1; I < SPANS; I++) {
            float u[2][4] = {};
            const struct pieces of_y = as_a(y[I]);
            add_products(&u, &of_y, B, 1);
            put_inverse(w, I, J, u);
            A[J][I] = as_a(u);
        }
    }
}

// A head by four warps: warp I has row I of q's squares, column I of N, and row I of A.
static __device__ __forceinline__ void head_by_four(const struct head_of_chunk &w,
                                                    int I, const scores &qk,
                                                    const scores &kk,
                                                    struct head_room<SPANS> &r,
                                                    struct squares &to)
{
    struct pieces A[SPANS - 1];
    float d[2][4];
    diagonal_scores(w, I, qk, kk, r.square[I]);
    __syncwarp();
    invert_square(r.square[I].x, threadIdx.x % 16);
    if (I < SPANS - 1) put(to.B[I], square_as_b(r.square[I]));
    #pragma unroll 1
    for (int M = I + 1; M < SPANS; M++) put(to.N[below(M, I)], minus_L(M, I, kk, r.f));
    #pragma unroll 1
    for (int J = 0; J < I; J++) square_scores(w, I, J, qk, r.f);
    square_rows(d, r.square[I]);
    put_inverse(w, I, I, d);
    A[0] = as_a(d);
    __syncthreads();
    #pragma unroll
    for (int below_I = 1; below_I < SPANS; below_I++) {
        const int J = I - below_I;
        if (J < 0) continue;
        float y[2][4] = {}, u[2][4] = {};
        #pragma unroll
        for (int m = 0; m < below_I; m++) add_product(y, A[m], to.N[below(I - m, J)]);
        add_product(u, as_a(y), to.B[J]);
        put_inverse(w, I, J, u);
        if (below_I < SPANS - 1) A[below_I] = as_a(u);
    }
}

// How value heads share a query/key head's rows: kv of them, in `parts` blocks, `heads`
// in each, or what is left.
struct shares { int kv, heads; uint32_t parts, H; };

// Bound: memory, 4K read and written a token and query/key head, 2.5C written a
// token-head. Rows come by asynchronous copies and leave by the copy engine; what is
// made of them for a head, a warp writes square by square, and waits for no other.
// Barriers: the rows are there; q's are done with, and norms there; k's are; products
// are (or, four warps a head, the squares below the diagonal and the spans' inverses).
template <int K, int many, int kept>
static __global__ __launch_bounds__(128, many && kept ? 4 : 6) void prepare_gdn_kernel(
    const struct records x, struct shares share)
{
    griddepcontrol_launch_dependents();
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct prepare_gdn<K, many> &r = *(struct prepare_gdn<K, many> *)on_chip;
    const int part = blockIdx.x % share.parts, m = blockIdx.x / share.parts % share.H;
    const int c = x.first + chunks_of(x) - 1 - blockIdx.x / share.parts / share.H;
    const int n = m * share.kv + part * share.heads;
    const int heads = min(share.heads, share.kv - part * share.heads);
    const int I = __shfl_sync(~0u, threadIdx.x / 32, 0), own = many ? I : 0;
    const struct token_range z = span_of(x.a, c);
    float d[2 * SPANS][4];

    rows_in<K>(x, z, m, r.raw);
    cp_async_commit();
    if (I < heads) head_sums(x, z, n + I, r.G[own], r.beta[own]);
    if (threadIdx.x == 0) r.z = z, r.c = c, r.n = n, r.heads = heads;
    cp_async_wait<0>();
    fence_proxy_async();
    __syncthreads();
    products<K, many, kept>(x, I, m, part ? NULL : rows_of_head<K>(x, c, m), d, r);
    const struct head_of_chunk w = head_of_chunk<many, kept>(x, I, r);
    struct row_factors &to = head_of(x, r.c, r.n + own)->f;
    if (!many) factors_out<128>(w, to, r.head[0].f);
    wgmma_wait<0>();
    fence_operand<2 * SPANS>(d);
    __syncthreads();
    keep_squares(I, I, SPANS - 1, d, 1, r.kk);
    if constexpr (many) {
        if (I < r.heads) factors_out<32>(w, to, r.head[I].f);
        __syncthreads();
        if (I < r.heads) head_by_warp(w, r.qk, r.kk, r.head[I]);
    } else {
        __syncwarp();
        head_by_four(w, I, r.qk, r.kk, r.head[0], r.four[0]);
    }
    if (blockIdx.x + 1 == gridDim.x) griddepcontrol_wait();
}

template <int K, int many>
static int prepare_gdn_many(const struct records *x, struct shares s)
{
    return launch_beside(keeps_any(*x) ? prepare_gdn_kernel<K, many, 1>
                                       : prepare_gdn_kernel<K, many, 0>,
                         sizeof(struct prepare_gdn<K, many>),
                         chunks_of(*x) * s.H * s.parts, 128, x, s);
}

template <int K>
static int prepare_gdn_records(const struct records *x)
{
    const int kv = x->a.HV / x->a.H, parts = (kv + SHARE - 1) / SHARE;
    const struct shares s = { kv, (kv + parts - 1) / parts, (uint32_t)parts,
                              (uint32_t)x->a.H };
    return kv > 1 ? prepare_gdn_many<K, 1>(x, s) : prepare_gdn_many<K, 0>(x, s);
}

#endif
