// chunk_prepare_sm90.cu -- GDN: the factors of a chunk, one warp per value head.
// Book: chapter 18.
#include "cuda/18_hopper/deep_steps.cuh"
#include "blocks.cuh"

// Computes the factors of row i: in `to` (global memory) the factors for the scan, and
// in `f` the factors for this kernel's 16x16 blocks.
static __device__ __forceinline__ void store_gdn_row_factors(
    const struct head_of_chunk &w, int i, struct gdn_row_factors &to,
    struct pair_factors &f)
{
    //> gdn-rows
    const float2 n = w.norm[i];
    const float G = w.G[i], last = w.G[CHUNK - 1], to_start = ex2_approx(G);
    const float to_first = ex2_approx(G - w.G[i / SUBCHUNK * SUBCHUNK]);
    to.F[i] = to_start * n.y;
    to.Q[i] = to_start * n.x;
    to.B[i] = ex2_approx(last - G) * n.y;
    if (i < 8) to.decay[i] = ex2_approx(last);
    //< gdn-rows
    f.q[i] = n.x * to_first;
    f.k[i] = -n.y * w.beta[i] * to_first;
}

// One warp, or the whole block, stores all row factors of a head.
template <int threads>
static __device__ __forceinline__ void store_factors(
    const struct head_of_chunk &w, struct gdn_row_factors &to, struct pair_factors &f)
{
    const int t = threadIdx.x % threads;
    #pragma unroll
    for (int i = 0; i < CHUNK; i += threads)
        if (i + t < CHUNK) store_gdn_row_factors(w, i + t, to, f);
    #pragma unroll
    for (int i = 0; i < row_pairs_before(SUBCHUNKS); i += threads) {
        const int y = i + t;
        int I = 3;
        if (y < row_pairs_before(2)) I = 1;
        else if (y < row_pairs_before(3)) I = 2;
        const int j = y - row_pairs_before(I);
        if (y < row_pairs_before(SUBCHUNKS))
            f.to[y] = w.norm[j].y * ex2_approx(w.G[I * SUBCHUNK] - w.G[j]);
    }
}

template <int heads_by_warp, class Storage>
static __device__ __forceinline__ struct head_of_chunk head_of_chunk(
    const struct forward_params &x, int I, const Storage &smem)
{
    struct head_of_chunk w = {};
    const int own = heads_by_warp ? I : 0, n = smem.n + own;
    w.G = smem.G[own];
    w.beta = smem.beta[own];
    w.norm = smem.norm;
    w.to = gdn_head_factors_of(x, smem.c, n)->Ab + opaque(lane_offset());
    return w;
}

// Computes a head's factors with one warp. Below the diagonal, L is beta k k^T with
// decays. A (1 + L) = 1 and N = -L give the block columns of A, the last one first:
//     A_IJ = (sum_M A_IM N_MJ) A_JJ,  J < M <= I.
// All of A is in registers. Of N, only one block column is needed at a time. Two
// diagonal blocks are inverted at a time, each by half a warp.
static __device__ __forceinline__ void head_by_warp(const struct head_of_chunk &w,
                                                    const scores &qk, const scores &kk,
                                                    struct head_storage<2> &own)
{
    struct split_operand A[SUBCHUNKS][SUBCHUNKS];       // [J][I]
    #pragma unroll
    for (int I = 1; I < SUBCHUNKS; I++)
        #pragma unroll
        for (int J = 0; J < I; J++) scale_scores(w, I, J, qk, own.f);
    #pragma unroll
    for (int J = SUBCHUNKS - 1; J >= 0; J--) {
        float d[2][4], y[SUBCHUNKS][2][4] = {};
        __syncwarp();
        if (J % 2) {
            diagonal_scores(w, J - 1, qk, kk, own.block16[0]);
            diagonal_scores(w, J, qk, kk, own.block16[1]);
            __syncwarp();
            const int column = (threadIdx.x + 4 * J) % 16; // 4 J saves a register
            invert_block16(own.block16[threadIdx.x % 32 / 16].x, column);
        }
        load_block16(d, own.block16[J % 2]);
        store_inverse(w, J, J, d);
        A[J][J] = split_accumulator(d);
        //> gdn-inverse
        #pragma unroll
        for (int M = SUBCHUNKS - 1; M > J; M--)
            mma_split_blocks(y + M, A[M] + M, minus_L(M, J, kk, own.f), SUBCHUNKS - M);
        if (J == SUBCHUNKS - 1) continue;
        const struct split_operand B = block16_as_b(own.block16[J % 2]);
        #pragma unroll
        for (int I = J + 1; I < SUBCHUNKS; I++) {
            float u[2][4] = {};
            const struct split_operand of_y = split_accumulator(y[I]);
            mma_split_blocks(&u, &of_y, B, 1);
            store_inverse(w, I, J, u);
            A[J][I] = split_accumulator(u);
        }
        //< gdn-inverse
    }
}

// Computes a head's factors with four warps. Warp I computes block row I of Aqk, block
// column I of N, and block row I of A.
static __device__ __forceinline__ void head_by_four_warps(
    const struct head_of_chunk &w, int I, const scores &qk, const scores &kk,
    struct head_storage<SUBCHUNKS> &own, struct shared_blocks &to)
{
    struct split_operand A[SUBCHUNKS - 1];
    float d[2][4];
    diagonal_scores(w, I, qk, kk, own.block16[I]);
    __syncwarp();
    invert_block16(own.block16[I].x, threadIdx.x % 16);
    if (I < SUBCHUNKS - 1) store_fragments(to.B[I], block16_as_b(own.block16[I]));
    #pragma unroll 1
    for (int M = I + 1; M < SUBCHUNKS; M++)
        store_fragments(to.N[below_diagonal(M, I)], minus_L(M, I, kk, own.f));
    #pragma unroll 1
    for (int J = 0; J < I; J++) scale_scores(w, I, J, qk, own.f);
    load_block16(d, own.block16[I]);
    store_inverse(w, I, I, d);
    A[0] = split_accumulator(d);
    __syncthreads();
    #pragma unroll
    for (int below_I = 1; below_I < SUBCHUNKS; below_I++) {
        const int J = I - below_I;
        if (J < 0) continue;
        float y[2][4] = {}, u[2][4] = {};
        #pragma unroll
        for (int m = 0; m < below_I; m++)
            mma_split(y, A[m], to.N[below_diagonal(I - m, J)]);
        mma_split(u, split_accumulator(y), to.B[J]);
        store_inverse(w, I, J, u);
        if (below_I < SUBCHUNKS - 1) A[below_I] = split_accumulator(u);
    }
}

// `blocks` thread blocks share `kv` value heads. A block has at most `heads` heads.
struct head_shares { int kv, heads; uint32_t blocks, H; };

// Bound: memory. Per token and query/key head 4K bytes are read and up to 4K bytes are
// written. Per token and value head 2.5C + 13 bytes are written. Flops: 4 C^2 K per
// chunk and query/key head, plus the inverses. Registers: 80, six blocks per SM.
//
// Ownership: a block has up to four value heads of one query/key head. The rows are
// loaded by cp.async and stored by TMA. After the barriers, each value head is computed
// by one warp. If `kv` is 1, the block's four warps share the value head instead.
//
// Barriers, in order: rows, G and beta have arrived; rows of q have been read and norms
// are stored; rows of k have been read; the products are stored. If four warps share
// one head, the last barrier is instead: N and the inverted diagonal blocks are stored.
template <int K, int heads_by_warp>
static __global__ __launch_bounds__(128, 6) void
gdn_chunk_prepare_kernel(const struct forward_params x, struct head_shares share)
{
    griddepcontrol_launch_dependents();
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct gdn_prepare_storage<K, heads_by_warp> &smem =
        *(struct gdn_prepare_storage<K, heads_by_warp> *)on_chip;
    const int part = blockIdx.x % share.blocks, m = blockIdx.x / share.blocks % share.H;
    const int c =
        x.first + launched_chunks(x) - 1 - blockIdx.x / share.blocks / share.H;
    const int n = m * share.kv + part * share.heads;
    const int heads = min(share.heads, share.kv - part * share.heads);
    const int I = __shfl_sync(~0u, threadIdx.x / 32, 0), own = heads_by_warp ? I : 0;
    const struct token_range z = tokens_of_chunk(x.a, c);
    float d[2 * SUBCHUNKS][4];

    gdn_load_rows<K>(x, z, m, smem.raw);
    cp_async_commit();
    if (I < heads) cumulative_decay(x, z, n + I, smem.G[own], smem.beta[own]);
    if (threadIdx.x == 0) {
        smem.z = z;
        smem.c = c;
        smem.n = n;
        smem.heads = heads;
    }
    cp_async_wait<0>();
    fence_proxy_async();
    __syncthreads();
    const int unread = part || (x.raw_rows && smem.z.len == CHUNK);
    products<K, heads_by_warp>(x, I, m, unread ? NULL : gdn_qk_rows_of<K>(x, c, m), d,
                               smem);
    const struct head_of_chunk w = head_of_chunk<heads_by_warp>(x, I, smem);
    struct gdn_row_factors &to = gdn_head_factors_of(x, smem.c, smem.n + own)->f;
    if (!heads_by_warp) store_factors<128>(w, to, smem.head[0].f);
    wgmma_wait<0>();
    fence_operand<2 * SUBCHUNKS>(d);
    __syncthreads();
    store_blocks(I, I, SUBCHUNKS - 1, d, 1, smem.kk);
    if constexpr (heads_by_warp) {
        if (I < smem.heads) store_factors<32>(w, to, smem.head[I].f);
        __syncthreads();
        if (I < smem.heads) head_by_warp(w, smem.qk, smem.kk, smem.head[I]);
    } else {
        __syncwarp();
        head_by_four_warps(w, I, smem.qk, smem.kk, smem.head[0], smem.four[0]);
    }
    if (x.saved.beta) save_row_scalars(x, smem, share.kv);
    last_block_waits();
}

template <int K, int heads_by_warp>
static int launch_gdn_heads(const struct forward_params *x, struct head_shares s)
{
    return launch_dependent(gdn_chunk_prepare_kernel<K, heads_by_warp>,
                            sizeof(struct gdn_prepare_storage<K, heads_by_warp>),
                            launched_chunks(*x) * s.H * s.blocks, 128, x, s);
}

template <int K>
static int launch_gdn_rows(const struct forward_params *x)
{
    const int kv = x->a.HV / x->a.H;
    const int blocks = (kv + HEADS_PER_BLOCK - 1) / HEADS_PER_BLOCK;
    const struct head_shares s = { kv, (kv + blocks - 1) / blocks, (uint32_t)blocks,
                                   (uint32_t)x->a.H };
    return kv > 1 ? launch_gdn_heads<K, 1>(x, s) : launch_gdn_heads<K, 0>(x, s);
}

int gdn_chunk_prepare(const struct forward_params *x)
{
    return x->a.K == 128 ? launch_gdn_rows<128>(x) : launch_gdn_rows<64>(x);
}
