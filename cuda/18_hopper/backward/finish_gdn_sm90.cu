// finish_gdn_sm90.cu -- GDN: the gradients of a chunk's raw inputs, except dv.
// Book: chapter 18c.
#include "cuda/host/split.h"
#include "finish_gdn.cuh"

// With one gate per head, D_ij = exp2(G_i - G_j) is the same for all channels, and at
// most 1 for j <= i. So no anchors (finish_consumer.cuh) are needed. Products use raw q
// and k. Norms multiply rows of products and, in dA and dB, also columns.
//
//     dA_ij = scale D_ij (dO v_new^T)_ij, j <= i
//     dB_ij = -D_ij (dv v_new^T)_ij, j < i
//     dq_i = scale exp2(G_i) (dO h^T)_i + sum_j dA_ij k_j
//     dk_i = exp2(G_last - G_i) (v_new dS^T)_i - exp2(G_i) (dv h^T)_i
//            + sum_j dA_ji q_j + dB_ij k_j + dB_ji k_j
//     Z_ij = dA_ij (q k^T)_ij + dB_ij (k k^T)_ij, j < i
//     dG_i = sum_j Z_ij - sum_j Z_ji + terms with h and dS (add_states)

// Zeroes the rows past the chunk's end, which belong to another sequence.
template <int K>
static __device__ __forceinline__ void zero_gdn_rows(int len, int stage,
                                                     struct gdn_finish_storage<K> &smem)
{
    for (int at = len * 8 + threadIdx.x; at < CHUNK * 8; at += 2 * K)
        for (int d = 0; d < K / 64; d++) {
            const uint4 zero = make_uint4(0, 0, 0, 0);
            ((uint4 *)smem.q[stage][d])[at] = ((uint4 *)smem.k[stage][d])[at] = zero;
            ((uint4 *)smem.dO[d])[at] = ((uint4 *)smem.dv[d])[at] = zero;
            ((uint4 *)smem.v_new[d])[at] = zero;
        }
    fence_proxy_async();
}

// A thread has rows i and i + 8 of a product, and columns 8 t + e and 8 t + e + 1 of
// each tile t. `row_of_thread` returns i.
static __device__ __forceinline__ int row_of_thread(void)
{
    const struct mma_coords p = mma_coords_of_thread();
    return p.warp * 16 + p.g;
}

static __device__ __forceinline__ float sum_of_quad(float x)
{
    const float2 other = quad_sums(x);
    return x + other.x + other.y;
}

// Converts X = dO v_new^T or dv v_new^T to dA or dB in bf16. S is q k^T or k k^T. Also
// computes, for dG, row and column sums of the products dA_ij S_ij or dB_ij S_ij.
template <int K>
static __device__ __forceinline__ void store_gdn_triangle(
    int of_dv, int stage, int buffer, float scale, const float (*X)[4],
    const float (*S)[4], struct gdn_finish_storage<K> &smem)
{
    const int e = mma_coords_of_thread().e, warp = mma_coords_of_thread().warp;
    const int i = row_of_thread(), lane = opaque_thread_id() % 32;
    const float *G = smem.gate[buffer].G, *rstd_k = smem.norm[stage].rstd_k;
    const float *rstd = of_dv ? rstd_k : smem.norm[stage].rstd_q;
    unsigned char *to = of_dv ? smem.dB[buffer] : smem.dA[buffer];
    float rows[2] = {}, columns[16] = {};
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        if (t / 2 > warp) continue;
        const int j = 8 * t + e;
        const float2 G_j = *(const float2 *)&G[j], norm = *(const float2 *)&rstd_k[j];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int ih = i + 8 * h;
            const float x = X[t][2 * h], y = X[t][2 * h + 1];
            const float factor = (of_dv ? -1.0f : scale) * rstd[ih];
            float low = factor * norm.x * ex2_approx(G[ih] - G_j.x) * x;
            float high = factor * norm.y * ex2_approx(G[ih] - G_j.y) * y;
            if (j >= ih) low = 0.0f;
            if (j + 1 >= ih) high = 0.0f;
            const float z0 = low * S[t][2 * h], z1 = high * S[t][2 * h + 1];
            rows[h] += z0 + z1;
            columns[2 * t] += z0;
            columns[2 * t + 1] += z1;
            if (of_dv && j == ih) smem.sums.dv_v_new[ih] = x;
            if (of_dv && j + 1 == ih) smem.sums.dv_v_new[ih] = y;
            if (!of_dv && j == ih) low = factor * norm.x * x;
            if (!of_dv && j + 1 == ih) high = factor * norm.y * y;
            *(uint32_t *)(to + swizzle128_offset(ih, t) + e * 2) =
                pack_bf16x2(low, high);
        }
    }
    // Zeroes the blocks above the diagonal, because products read these blocks.
    #pragma unroll
    for (int t = 2; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
            if (t / 2 > warp)
                *(uint32_t *)(to + swizzle128_offset(i + 8 * h, t) + e * 2) = 0;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float sum = sum_of_quad(rows[h]);
        if (e == 0) smem.sums.rows[of_dv][i + 8 * h] = sum;
    }
    *(float2 *)&smem.sums.columns[of_dv][warp][2 * lane] = sum_over_channels(columns);
}

// One warpgroup computes the two products X and S from which store_gdn_triangle makes
// dA or dB.
template <int K>
static __device__ __forceinline__ void make_gdn_triangle(
    const struct backward_params &x, const struct block_chunk &i, int of_dv, int stage,
    struct gdn_finish_storage<K> &smem)
{
    float X[8][4], S[8][4];
    wgmma_tiles_begin<K>(X, of_dv ? smem.dv : smem.dO, smem.v_new);
    wgmma_tiles_begin<K>(S, of_dv ? smem.k[stage] : smem.q[stage], smem.k[stage]);
    mbarrier_wait(&smem.gate_full[i.chunk % 2], i.chunk / 2);
    if (i.chunk) mbarrier_wait(&smem.sums_empty, i.chunk - 1);
    wgmma_tiles_wait(X);
    fence_operand<8>(S);
    store_gdn_triangle<K>(of_dv, stage, i.chunk % 2, (float)x.a.scale, X, S, smem);
}

// Sums exp2(G_last) sum_v h dS over a warpgroup's channels. Stores one sum per warp.
template <int K>
static __device__ __forceinline__ void sum_h_dS(int wg, float decay,
                                                struct gdn_finish_storage<K> &smem)
{
    const int thread = opaque_thread_id();
    float sum = 0.0f;
    #pragma unroll
    for (int v = 0; v < K / 64; v++)
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            const int at = (thread % 128 + r * 128) * 16;
            const uint4 h = *(const uint4 *)(smem.h[wg][v] + at);
            const uint4 dS = *(const uint4 *)(smem.dS[wg][v] + at);
            const uint32_t *u = &h.x, *w = &dS.x;
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                sum = fmaf(bf16x2_low(u[j]), bf16x2_low(w[j]), sum);
                sum = fmaf(bf16x2_high(u[j]), bf16x2_high(w[j]), sum);
            }
        }
    #pragma unroll
    for (int b = 16; b; b /= 2) sum += __shfl_xor_sync(~0u, sum, b);
    if (thread % 32 == 0) smem.sums.h_dS[thread / 32] = decay * sum;
}

static __device__ __forceinline__ uint32_t pair_of_channels(const unsigned char *tile,
                                                            int row, int t)
{
    return *(const uint32_t *)(tile + swizzle128_offset(row, t)
                               + mma_coords_of_thread().e * 2);
}

// Adds the terms of P = dO h^T, Q = dv h^T and W = v_new dS^T to dq, dk and dG.
template <int K>
static __device__ __forceinline__ void add_states(
    const struct backward_params &x, int wg, int len, int stage, int buffer,
    const float (*P)[4], const float (*Q)[4], const float (*W)[4], float (*dq)[4],
    float (*dk)[4], struct gdn_finish_storage<K> &smem)
{
    const int i = row_of_thread(), e = mma_coords_of_thread().e;
    const float *G = smem.gate[buffer].G;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = i + 8 * h;
        const float E = ex2_approx(G[row]), B = ex2_approx(G[CHUNK - 1] - G[row]);
        const float norm = smem.norm[stage].rstd_k[row];
        const float of_P = (float)x.a.scale * smem.norm[stage].rstd_q[row] * E;
        const float of_Q = -norm * E, of_W = norm * B;
        float states = 0.0f, last = 0.0f;
        #pragma unroll
        for (int t = 0; t < 8; t++) {
            const uint32_t q = pair_of_channels(smem.q[stage][wg], row, t);
            const uint32_t k = pair_of_channels(smem.k[stage][wg], row, t);
            #pragma unroll
            for (int j = 0; j < 2; j++) {
                const int at = 2 * h + j;
                const float qd = j ? bf16x2_high(q) : bf16x2_low(q);
                const float kd = j ? bf16x2_high(k) : bf16x2_low(k);
                const float p = of_P * P[t][at], y = of_Q * Q[t][at];
                const float w = of_W * W[t][at];
                states = fmaf(qd, p, fmaf(kd, y, states));
                last = fmaf(kd, w, last);
                dq[t][at] += p;
                dk[t][at] += y + w;
            }
        }
        states = sum_of_quad(states);
        last = sum_of_quad(last);
        if (row == len - 1) last = 0.0f; // eq:dG: dk_s*
        if (e == 0) smem.sums.states[wg][row] = states - last;
        if (e == 0) smem.sums.last[wg][row] = last;
    }
}

// Computes dq += dA k and dk += dA^T q + dB k + dB^T k.
template <int K>
static __device__ __forceinline__ void add_gdn_pairs(
    int wg, int stage, int buffer, float (*dq)[4], float (*dk)[4],
    const struct gdn_finish_storage<K> &smem)
{
    const bf16 *A = (const bf16 *)smem.dA[buffer], *B = (const bf16 *)smem.dB[buffer];
    const uint64_t q = smem_desc_mn_major((const bf16 *)smem.q[stage][wg]);
    const uint64_t k = smem_desc_mn_major((const bf16 *)smem.k[stage][wg]);
    wgmma_fence();
    #pragma unroll
    for (int p = 0; p < SUBCHUNKS; p++) {
        const int step = p * DESC_STEP_MN_MAJOR, along = p * DESC_STEP_K_MAJOR;
        wgmma_m64n64k16_ss_trans<0, 1>(dq, smem_desc_k_major(A) + along, k + step);
        wgmma_m64n64k16_ss_trans<1, 1>(dk, smem_desc_mn_major(A) + step, q + step);
        wgmma_m64n64k16_ss_trans<0, 1>(dk, smem_desc_k_major(B) + along, k + step);
        wgmma_m64n64k16_ss_trans<1, 1>(dk, smem_desc_mn_major(B) + step, k + step);
    }
    wgmma_commit();
    wgmma_wait<0>();
    fence_operand<8>(dq);
    fence_operand<8>(dk);
}

// Adds the norms' gradients to dq and dk of one query/key head, and stores dq and dk.
template <int K>
static __device__ __forceinline__ void store_gdn_rows(
    const struct backward_params &x, const struct block_chunk &i, int wg, int stage,
    float (*dq)[4], float (*dk)[4], struct gdn_finish_storage<K> &smem)
{
    const struct kcp_backward &a = x.a;
    const int first = row_of_thread(), e = mma_coords_of_thread().e;
    unsigned char *q_tile = smem.q[stage][wg], *k_tile = smem.k[stage][wg];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = first + 8 * h;
        float q_dq = 0.0f, k_dk = 0.0f;
        #pragma unroll
        for (int t = 0; t < 8; t++) {
            const uint32_t q = pair_of_channels(q_tile, row, t);
            const uint32_t k = pair_of_channels(k_tile, row, t);
            q_dq = fmaf(bf16x2_low(q), dq[t][2 * h], q_dq);
            q_dq = fmaf(bf16x2_high(q), dq[t][2 * h + 1], q_dq);
            k_dk = fmaf(bf16x2_low(k), dk[t][2 * h], k_dk);
            k_dk = fmaf(bf16x2_high(k), dk[t][2 * h + 1], k_dk);
        }
        q_dq = sum_of_quad(q_dq);
        k_dk = sum_of_quad(k_dk);
        if (e == 0) smem.dots[wg][0][row] = q_dq;
        if (e == 0) smem.dots[wg][1][row] = k_dk;
    }
    named_barrier_sync(CONSUMERS_SYNC, 2 * K); // dots stored, all tiles have been read
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = first + 8 * h;
        float factor_q = 0.0f, factor_k = 0.0f;
        #pragma unroll
        for (int w = 0; w < K / 64; w++) {
            factor_q -= smem.dots[w][0][row];
            factor_k -= smem.dots[w][1][row];
        }
        const float rq = smem.norm[stage].rstd_q[row];
        const float rk = smem.norm[stage].rstd_k[row];
        factor_q = a.l2norm ? factor_q * rq * rq : 0.0f;
        factor_k = a.l2norm ? factor_k * rk * rk : 0.0f;
        #pragma unroll
        for (int t = 0; t < 8; t++) {
            const uint32_t q = pair_of_channels(q_tile, row, t);
            const uint32_t k = pair_of_channels(k_tile, row, t);
            const int at = swizzle128_offset(row, t) + e * 2;
            *(uint32_t *)(q_tile + at) =
                pack_bf16x2(fmaf(factor_q, bf16x2_low(q), dq[t][2 * h]),
                            fmaf(factor_q, bf16x2_high(q), dq[t][2 * h + 1]));
            *(uint32_t *)(k_tile + at) =
                pack_bf16x2(fmaf(factor_k, bf16x2_low(k), dk[t][2 * h]),
                            fmaf(factor_k, bf16x2_high(k), dk[t][2 * h + 1]));
        }
    }
    named_barrier_sync(WARPGROUP_SYNC + wg, 128);
    const struct token_range z = finish_tokens(a, chunk_of(a, i));
    const int64_t at = (z.t * a.H + i.pair % a.H) * K + wg * 64;
    store_tile(q_tile, (bf16 *)a.dq_raw + at, (int64_t)a.H * K, z.len);
    store_tile(k_tile, (bf16 *)a.dk_raw + at, (int64_t)a.H * K, z.len);
    fence_proxy_async(); // TMA will overwrite the staged rows
    mbarrier_arrive(&smem.empty[GDN_QK + stage]);
}

// Computes the gradients of one chunk and value head in a warpgroup's 64 channels. The
// sums dq and dk stay in registers until the last value head of the query/key head.
template <int K>
static __device__ __forceinline__ void finish_gdn_chunk(
    const struct backward_params &x, const struct block_chunk &i, int pair,
    float (*dq)[4], float (*dk)[4], struct gdn_finish_storage<K> &smem)
{
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0), stage = pair % 2;
    const int buffer = i.chunk % 2, len = finish_tokens(x.a, chunk_of(x.a, i)).len;
    if (i.head == 0) {
        mbarrier_wait(&smem.full[GDN_QK + stage], pair / 2);
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) dq[t][j] = dk[t][j] = 0.0f;
    }
    mbarrier_wait(&smem.full[GDN_dO], i.chunk);
    if (wg || K == 64 || len < CHUNK) mbarrier_wait(&smem.full[GDN_h], i.chunk);
    if (len < CHUNK) {
        zero_gdn_rows<K>(len, stage, smem);
        named_barrier_sync(CONSUMERS_SYNC, 2 * K); // rows past the end are 0
    }
    make_gdn_triangle<K>(x, i, wg, stage, smem);
    if (K == 64) make_gdn_triangle<K>(x, i, 1, stage, smem);

    float P[8][4], Q[8][4], W[8][4];
    mbarrier_wait(&smem.full[GDN_h], i.chunk);
    wgmma_tiles_begin<K>(P, smem.dO, smem.h[wg]);
    wgmma_tiles_begin<K>(Q, smem.dv, smem.h[wg]);
    mbarrier_wait(&smem.full[GDN_dS], i.chunk);
    wgmma_tiles_begin<K>(W, smem.v_new, smem.dS[wg]);
    sum_h_dS<K>(wg, ex2_approx(smem.gate[buffer].G[CHUNK - 1]), smem);
    wgmma_tiles_wait(P);
    fence_operand<8>(Q);
    fence_operand<8>(W);
    mbarrier_arrive(&smem.empty[GDN_dO]);
    mbarrier_arrive(&smem.empty[GDN_h]);
    mbarrier_arrive(&smem.empty[GDN_dS]);
    add_states<K>(x, wg, len, stage, buffer, P, Q, W, dq, dk, smem);
    mbarrier_arrive(&smem.gate_empty[buffer]);
    mbarrier_arrive(&smem.sums_full);
    fence_proxy_async();
    named_barrier_sync(CONSUMERS_SYNC, 2 * K); // the triangles are stored
    add_gdn_pairs<K>(wg, stage, buffer, dq, dk, smem);
    if (i.head + 1 == group_of(x.a)) store_gdn_rows<K>(x, i, wg, stage, dq, dk, smem);
}

// Bound: memory. At K = V = 128 the kernel moves 1810 bytes per token and value head,
// and 1024 bytes per token and query/key head. Flops: a warpgroup computes 56 products
// of 64 x 64 x 16 per chunk and value head. Shared memory: 214 KiB.
//
// Ownership: a block processes (chunk, query/key head) pairs one after another, with
// all value heads of each pair. Each consumer warpgroup has 64 channels. In the last
// warpgroup one thread is the producer, one warp computes G one chunk in advance, and
// another warp computes the gate's gradient from dG while the consumers continue.
//
// Barriers: each part (finish_gdn.cuh) has `full` and `empty`. G and the sums of dG
// have further pairs of barriers, gate_* and sums_*. CONSUMERS_SYNC marks three events,
// in order: rows past the end are 0; the triangles are stored; the dots (sums of q dq
// and k dk) are stored. The triangles dA and dB have two buffers, so no barrier
// separates reading a chunk's triangles from storing the next chunk's triangles.
// WARPGROUP_SYNC: a warpgroup's rows are staged.
template <int K>
static __global__ __launch_bounds__(finish_threads<K>::ALL, finish_threads<K>::BLOCKS)
void gdn_finish_kernel(const __grid_constant__ struct backward_params x,
                       const __grid_constant__ struct gdn_maps from)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct gdn_finish_storage<K> &smem = *(struct gdn_finish_storage<K> *)shared;
    static_assert(sizeof smem <= 227 * 1024, "one block must fit");
    static_assert(K > 64 || 2 * (sizeof smem + 1024) <= 228 * 1024, "two must fit");
    enum { CONSUMERS = finish_threads<K>::CONSUMERS, GATE_LANES = 32 };

    if (threadIdx.x == 0) {
        for (int p = 0; p < GDN_PARTS; p++) {
            mbarrier_init(&smem.full[p], 1);
            mbarrier_init(&smem.empty[p], CONSUMERS);
        }
        for (int s = 0; s < 2; s++) {
            mbarrier_init(&smem.gate_full[s], GATE_LANES);
            mbarrier_init(&smem.gate_empty[s], CONSUMERS);
        }
        mbarrier_init(&smem.sums_full, CONSUMERS);
        mbarrier_init(&smem.sums_empty, GATE_LANES);
        mbarrier_fence_init();
    }
    __syncthreads();
    griddepcontrol_wait();
    if (threadIdx.x >= CONSUMERS) {
        setmaxnreg_dec<40>();
        const int warp = threadIdx.x / 32 - CONSUMERS / 32;
        if (threadIdx.x == CONSUMERS) gdn_finish_producer<K>(x, from, smem);
        if (warp == 1) gdn_gate_warp<K>(x, smem);
        if (warp == 2) gdn_gradient_warp<K>(x, smem);
        return;
    }
    setmaxnreg_inc<K == 128 ? 232 : 216>();
    float dq[8][4], dk[8][4];
    struct block_chunk i;
    int pair = -1;
    #pragma unroll 1
    for (int more = first_of_block(x.a, i); more; more = next_of_block(x.a, i)) {
        pair += i.head == 0;
        finish_gdn_chunk<K>(x, i, pair, dq, dk, smem);
    }
}

template <int K>
static int launch_gdn_finish(const struct backward_params *x, int processors)
{
    const size_t bytes = sizeof(struct gdn_finish_storage<K>);
    const int blocks = kcp_finish_blocks(x->a.NC, x->a.H, K, processors);
    auto kernel = gdn_finish_kernel<K>;
    struct gdn_maps from;
    if (!blocks) return KCP_OK;
    const int status = make_gdn_maps<K>(&from, x->a);
    if (status) return status;
    return launch_dependent(kernel, bytes, dim3(blocks), finish_threads<K>::ALL, x,
                            from);
}

int gdn_finish(const struct backward_params *x, int processors)
{
    return x->a.K == 128 ? launch_gdn_finish<128>(x, processors)
                         : launch_gdn_finish<64>(x, processors);
}
