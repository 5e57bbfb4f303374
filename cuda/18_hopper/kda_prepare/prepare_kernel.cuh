// prepare_kernel.cuh -- KDA: the factors of a chunk from its raw rows.
// Book: chapter 18.
#pragma once

#include "cuda/18_hopper/deep_steps.cuh"
#include "deep_scores.cuh"

// Computes one warp's scores in 16x16 blocks: q or k of subchunk I (16 rows) times k.
// `y[J]` has the scores with an earlier subchunk J, and y[3] has the scores within
// subchunk I. If G is the sum of log2 decays from the subchunk's start, the decay from
// row j to row i is exp2(G_i) exp2(-G_j) within a subchunk. Both factors are in bf16's
// range except in deep channels (deep_scores.cuh), whose exp2(-G_j) k is replaced by 0.
// Between subchunks factors are at most 1.
template <int K, int I>
static __device__ __forceinline__ void subchunk_scores(
    int of_k, const struct kda_prepare_storage<K> &smem, float (*y)[2][4])
{
    const int lane = opaque_thread_id() % 32, across = lane % 8 + lane / 16 * 8;
    const int a_at =
        swizzle128_offset(I * SUBCHUNK + lane % 16, lane / 16) + of_k * TILE_BYTES;
    const int b_at = swizzle128_offset(across, lane / 8 % 2);
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        const struct channel_half &m = smem.half[i / 4];
        const int step = i % 4 << 5;
        uint32_t a[4], b[4];
        ldmatrix_x4(a, (const bf16 *)(m.q + (a_at ^ step)));
        #pragma unroll
        for (int J = 0; J <= I; J++) {
            const unsigned char *col = m.ahead3;
            if (J == I) col = m.g + I * SUBCHUNK * 128;
            if (J == I - 1) col = m.ahead1[J];
            if (J == I - 2) col = m.ahead2[J];
            float (*d)[4] = y[J == I ? 3 : J];
            ldmatrix_x4(b, (const bf16 *)(col + (b_at ^ step)));
            mma_m16n16k16(d, a, b);
        }
    }
}

template <int K>
static __device__ __forceinline__ void scores_of_subchunk(
    int I, int of_k, const struct kda_prepare_storage<K> &smem, float (*y)[2][4])
{
    switch (I) {
        case 0: subchunk_scores<K, 0>(of_k, smem, y); break;
        case 1: subchunk_scores<K, 1>(of_k, smem, y); break;
        case 2: subchunk_scores<K, 2>(of_k, smem, y); break;
        default: subchunk_scores<K, 3>(of_k, smem, y);
    }
}

// Stores the scores of q in the factors, as blocks of Aqk.
static __device__ __forceinline__ void store_q_scores(
    int I, float (*y)[2][4], const bf16 *diagonal, unsigned char *Aqk)
{
    const int g = opaque_thread_id() % 32 / 4, e = opaque_thread_id() % 4 * 2;
    Aqk += block16_offset() + I * 512;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = h * 8 + g, i = I * SUBCHUNK + row;
        const float Aqk_ii = (float)diagonal[i];
        #pragma unroll
        for (int k = 0; k < 4; k++) {
            const int j = k / 2 * 8 + e + k % 2;
            float &p = y[3][k / 2][h * 2 + k % 2];
            if (j > row) p = 0.0f;
            else if (j == row) p = Aqk_ii;
        }
        #pragma unroll
        for (int J = 0; J < SUBCHUNKS; J++) {
            if (J < 3 && J >= I) continue;
            const float *l = y[J][0] + h * 2, *r = y[J][1] + h * 2;
            const uint2 four =
                exchange_halves(pack_bf16x2(l[0], l[1]), pack_bf16x2(r[0], r[1]));
            const int column = J < 3 ? J : I;
            *(uint2 *)(Aqk + (triangle_column(column) - column * 512 + h * 256)) = four;
        }
    }
}

// Multiplies the scores of k by beta, which gives blocks of L (A = (1 + L)^-1). Stores
// blocks left of the diagonal as fragments, and inverts 1 plus the diagonal block.
static __device__ __forceinline__ void invert_k_scores(
    int I, float (*y)[2][4], const struct inverse_storage &smem)
{
    const int g = opaque_thread_id() % 32 / 4, e = opaque_thread_id() % 4 * 2;
    const float b[2] = { smem.beta[I * SUBCHUNK + g], smem.beta[I * SUBCHUNK + g + 8] };
    #pragma unroll
    for (int h = 0; h < 8; h++) y[3][h / 4][h % 4] *= b[h % 4 / 2];
    #pragma unroll
    for (int h = 0; h < 4; h++)
        *(float2 *)&smem.block16[I][h % 2 * 8 + g][h / 2 * 8 + e] =
            make_float2(y[3][h / 2][h % 2 * 2], y[3][h / 2][h % 2 * 2 + 1]);
    __syncwarp();
    #pragma unroll
    for (int J = 0; J < SUBCHUNKS - 1; J++) {
        if (J >= I) continue;
        #pragma unroll
        for (int h = 0; h < 8; h++) y[J][h / 4][h % 4] *= b[h % 4 / 2];
        store_fragments(smem.L[block16_index(I, J)], split_accumulator(y[J]));
    }
    invert_block16(smem.block16[I], opaque_thread_id() % 16);
    store_fragments(smem.A[I], block16_as_a(smem.block16[I]));
}

static __device__ __forceinline__ void store_diagonal_inverse(
    int I, const struct inverse_storage &smem, unsigned char *Ab)
{
    float d[2][4];
    load_diagonal_block16(d, I, smem);
    store_inverse_block16(I, d, smem.beta, Ab + block16_offset() + triangle_column(I));
}

// ---- the kernel

// Converts the rows, then computes a warp's scores. `y` has the scores of deep
// channels.
template <int K, int deep>
static __device__ __forceinline__ void rows_to_scores(
    const struct forward_params &x, int c, int n, const struct thread_rows<K> &w,
    const float (*G)[2], int excluded, int of_k, struct kda_prepare_storage<K> &smem,
    float (*y)[2][4])
{
    struct chunk_factors<K> *r = chunk_factors_of<K>(x, c, n);
    const struct subchunk_decay to = subchunk_decays<K>(w, smem, G, r->decay);
    rows_to_factors<K, deep>(w, G, to, excluded, smem, r);
    __syncthreads();
    scores_of_subchunk<K>(w.I, of_k, smem, y);
}

// The scores of a warp, which pass through local memory.
struct deep_chunk_scores { float y[SUBCHUNKS][2][4]; };

static __device__ __forceinline__ void copy_scores(float (*to)[2][4],
                                                   const float (*from)[2][4])
{
    #pragma unroll
    for (int i = 0; i < 8 * SUBCHUNKS; i++)
        to[i / 8][i / 4 % 2][i % 4] = from[i / 8][i / 4 % 2][i % 4];
}

// Does the work of rows_to_scores for a chunk with deep channels. Not inlined, so that
// the main loop needs no registers for this code.
template <int K>
static __device__ __noinline__ void deep_chunk(const struct forward_params &x, int c,
                                               int n, int warp,
                                               struct deep_chunk_scores &to)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct kda_prepare_storage<K> &smem = *(struct kda_prepare_storage<K> *)shared;
    const struct thread_rows<K> w = thread_rows_of<K>(warp);
    const int of_k = warp % 2;
    float G[thread_rows<K>::ROWS][2], y[SUBCHUNKS][2][4] = {};
    __syncthreads();                     // G is stored
    const int steps = deep_steps_of<K>(w.I, smem);
    deep_scores<K>(w.I, of_k, steps, smem, y[3]);
    load_deep_decays<K>(w, smem, G);
    __syncthreads();                     // all warps have read G
    rows_to_scores<K, 1>(x, c, n, w, G, steps >> w.channel / 16 & 1, of_k, smem, y);
    copy_scores(to.y, y);
}

// Stores the factors that depend on scores. A is computed from the scores of k: each
// warp with of_k = 1 inverts one diagonal block, then each warp with of_k = 0 computes
// one block column of A.
template <int K>
static __device__ __forceinline__ void scores_to_factors(
    const struct forward_params &x, int c, int n, int I, int of_k,
    struct kda_prepare_storage<K> &smem, float (*y)[2][4])
{
    const struct inverse_storage storage = inverse_storage_of(smem);
    struct chunk_factors<K> *r = chunk_factors_of<K>(x, c, n);
    if (of_k) invert_k_scores(I, y, storage);
    else store_q_scores(I, y, smem.diagonal, r->Aqk);
    __syncthreads();
    if (of_k) store_diagonal_inverse(I, storage, r->Ab);
    else invert_block_column(I, storage, r->Ab);
}

// v7_by_head: returns 1 if chunk c of head n needs factors. In other chunks the bytes
// of the factors may hold records of steps, which the one-kernel forward stores.
static __device__ __forceinline__ int needs_factors(const struct forward_params &x,
                                                    int c, int n)
{
    return is_deep(x, x.a.NS == 1 ? 0 : ((const int *)x.a.sc)[c], n);
}

// Returns how many chunks this block computes, from chunk `last` downwards: at most
// `count`, and the lowest of them needs factors. Dependent kernels start after the
// wait, so x.deep is stored before.
template <int by_head>
static __device__ __forceinline__ int needed_chunks(const struct forward_params &x,
                                                    int n, int last, int count)
{
    if (by_head && x.deep) griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (!by_head || !x.deep) return count;
    if (x.a.NS == 1) return needs_factors(x, 0, n) ? count : 0;
    while (count && !needs_factors(x, last - count + 1, n)) count--;
    return count;
}

// Bound: memory. Per token and head 6K bytes are read and 6K + 2.5C bytes are written.
// The issue rate is nearly as strict a bound, with 15,000 instructions per chunk.
// Flops per chunk and head: 448 products of 16 x 8 x 16, and the inverse. Shared
// memory: 75 KiB. Registers: 80, three blocks per SM.
//
// Ownership: a block processes several chunks of a head, last chunk first. Two of the
// block's eight warps share each subchunk, one for q and one for k. The last subchunk
// has the most scores, so the assignment of subchunks to the SM's four schedulers
// rotates with the head. One thread, the producer, loads the next rows as soon as all
// warps have read the tiles.
//
// Barriers. `smem.full`: the rows have arrived. `__syncthreads` marks, in order: norms
// and sums are stored; beta and the operands of the scores are stored; the scores are
// computed, so new rows may arrive; L and the inverted diagonal blocks are stored.
//
// half: q and k are fp16. The warps of k round them to bf16 before the norms.
template <int K, int form, enum kcp_type gate, int half>
static __global__ __launch_bounds__(256, 3) void kda_chunk_prepare_kernel(
    const __grid_constant__ struct forward_params x,
    const __grid_constant__ struct row_descriptors from, int chunks)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct kda_prepare_storage<K> &smem = *(struct kda_prepare_storage<K> *)shared;
    static_assert(3 * (sizeof smem + 1024) <= 228 * 1024, "three blocks on an SM");
    const struct kcp_forward &a = x.a;
    const int n = blockIdx.x;
    const int warp = __shfl_sync(~0u, (threadIdx.x / 32 + n) % 8, 0), of_k = warp % 2;
    const int last = launched_chunks(x) - 1 - blockIdx.y * chunks;
    enum {
        by_head = K == 128 && form != KCP_GATE_BOUNDED && gate == KCP_TYPE_BF16 && !half
    };
    const int count =
        needed_chunks<by_head>(x, n, x.first + last, min(chunks, last + 1));

    if (!count) return;
    if (threadIdx.x == 0) {
        mbarrier_init(&smem.full, 1);
        mbarrier_fence_init();
        load_first_chunk<K, gate>(x, from, x.first + last, n, smem);
    }
    __syncthreads();
    #pragma unroll 1
    for (int chunk = 0; chunk < count; chunk++) {
        const int c = x.first + last - chunk;
        // Factors that are not needed go to the place of the block's lowest chunk.
        const int to = by_head && x.deep && x.a.NS > 1 && !needs_factors(x, c, n)
                           ? x.first + last - count + 1 : c;
        float G[thread_rows<K>::ROWS][2];
        struct thread_rows<K> w = thread_rows_of<K>(warp);
        struct token_range z = position_of(smem, chunk);
        const struct gate_operands loaded = load_gate_operands(a, z, n, w.channel);
        if (gate == KCP_TYPE_F32) load_gates<K>(a, z, n, w, G);
        mbarrier_wait(&smem.full, chunk);
        if (z.len < CHUNK) zero_past_end(z.len, smem);
        if (half && of_k) rows_to_bf16<K>(w.I * SUBCHUNK, smem);
        if (of_k) row_norms<K>(x, z.len, c, w.I * SUBCHUNK, smem);
        int deep = decay_sums<K, form, gate>(a, loaded, z.len, w, smem, G);
        if (form == KCP_GATE_BOUNDED) {  // never deep, because lower_bound >= -5
            __syncthreads();
            deep = 0;
        } else deep = __syncthreads_or(deep);
        if (threadIdx.x < CHUNK)
            smem.beta[threadIdx.x] = beta_of_row(x, z.len, c, n, loaded.beta);
        w = thread_rows_of<K>(warp);
        if (K == 64) sums_of_subchunk<K>(w, smem, G);
        float y[SUBCHUNKS][2][4] = {};
        if (__builtin_expect(deep, 0)) { // else the main loop spills registers
            struct deep_chunk_scores of;
            store_deep_decays<K>(w, G, smem);
            deep_chunk<K>(x, to, n, warp, of);
            copy_scores(y, of.y);
        } else rows_to_scores<K, 0>(x, to, n, w, G, 0, of_k, smem, y);
        fence_proxy_async();
        __syncthreads();
        if (chunk + 1 < count && threadIdx.x == 0)
            load_next_chunk<K, gate>(a, from, c - 1, chunk, n, smem);
        scores_to_factors<K>(x, to, n, w.I, of_k, smem, y);
    }
    last_block_waits();
}

template <int K, int form, enum kcp_type gate, int half>
static int launch_kda(const struct forward_params *x, int chunks)
{
    const dim3 blocks(x->a.HV, (launched_chunks(*x) + chunks - 1) / chunks);
    struct row_descriptors from;
    const int status = make_row_descriptors(&from, *x);
    if (status) return status;
    return launch_dependent(kda_chunk_prepare_kernel<K, form, gate, half>,
                            sizeof(struct kda_prepare_storage<K>), blocks, 256, x, from,
                            chunks);
}

template <int K, enum kcp_type gate, int half>
static int launch_kda_gate(const struct forward_params *x, int chunks)
{
    switch (x->a.gate) {
        case KCP_GATE_BOUNDED:
            return launch_kda<K, KCP_GATE_BOUNDED, gate, half>(x, chunks);
        case KCP_GATE_RAW: return launch_kda<K, KCP_GATE_RAW, gate, half>(x, chunks);
        default: return launch_kda<K, KCP_GATE_SOFTPLUS, gate, half>(x, chunks);
    }
}

template <int K, int half>
static int launch_kda_type(const struct forward_params *x, int chunks)
{
    switch (x->a.g_type) {
        case KCP_TYPE_F32: return launch_kda_gate<K, KCP_TYPE_F32, half>(x, chunks);
        case KCP_TYPE_F16: return launch_kda_gate<K, KCP_TYPE_F16, half>(x, chunks);
        default: return launch_kda_gate<K, KCP_TYPE_BF16, half>(x, chunks);
    }
}

// For q and k of fp16, compiled separately.
int kda_chunk_prepare_f16(const struct forward_params *x, int chunks);
