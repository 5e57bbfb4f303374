// v2_halves_pairs.cuh -- Aqk and L of a chunk, by recursive halving with anchors.
// Book: chapter T, "Chapter 03: scores and the inverse".
#include "cuda/tile/triangle_inverse.cuh"

enum { LD = CHUNK + 4 }; // 16-byte aligned rows without bank conflicts

// The strict lower triangle of a chunk is divided into blocks: one block with rows
// 32-63 and columns 0-31, then two blocks of half the size, and so on down to single
// pairs (i, i-1). In a block of size s with first row a (the anchor), D_ij = exp2(G_i -
// G_a) exp2(G_a - G_j). The exponents G_i - G_a and G_a - G_j are <= 0 for any gate, so
// the block is a product of two scaled matrices within the range of bf16. All blocks of
// one size together have 32 rows and 32 columns, computed as tiles of 16 x 16.
//
// Bound: 7 C K exponentials (v1: C^2 K/2), plus 2 C K for kg, qg and k~ = exp2(G) k. An
// SM computes 16 exponentials per cycle, so at K = 128 one chunk of one head takes at
// least 2.6 us of an SM. Shared memory (112 KiB) holds q, k, G, L, A and Aqk. Later the
// product A diag(beta) overwrites Aqk, and v overwrites G. A barrier separates phases
// that use the same memory.
template <int K>
struct wy_storage {
    union {
        float G[CHUNK][K + PAD];
        bf16 v[CHUNK][2 * K + PAD];
    };
    bf16 q[CHUNK][K + PAD], k[CHUNK][K + PAD];
    float L[CHUNK][LD], A[CHUNK][LD], beta[CHUNK];
    bf16 Aqk[CHUNK][CHUNK + PAD];
};

// Computes a 16 x 16 tile of the products q k^T and k k^T. The tile has rows 16 rg to
// 16 rg + 15 and columns 16 cg to 16 cg + 15, numbered across all blocks of this size.
// For KDA, both operands are scaled by exp2 of G relative to the anchor's G.
template <int K, int kda>
static __device__ void block_scores(const struct wy_storage<K> &s, int size, int rg,
                                    int cg, float (*qk)[4], float (*kk)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const int r = 16 * rg, c = 16 * cg, across = lane % 8 + lane / 16 * 8;
    const int row = size ? block_row(r + lane % 16, size) : r + lane % 16;
    const int col = size ? block_column(c + across, size) : c + across;
    const bf16 *q = &s.q[row][lane / 16 * 8], *k = &s.k[row][lane / 16 * 8];
    const bf16 *kj = &s.k[col][lane / 8 % 2 * 8];

    for (int d = 0; d < K; d += 16) {
        uint32_t a[4], b[4], x[4];
        ldmatrix_x4(a, q + d);
        ldmatrix_x4(b, k + d);
        ldmatrix_x4(x, kj + d);
        #pragma unroll
        for (int h = 0; h < 4 && kda; h++) {
            const int at = d + e + h / 2 * 8, i = r + g + h % 2 * 8;
            const float2 D = decay_between(&s.G[block_row(i, size)][at],
                                           &s.G[block_anchor(i, size)][at]);
            a[h] = scale_bf16x2(a[h], D);
            b[h] = scale_bf16x2(b[h], D);
        }
        #pragma unroll
        for (int h = 0; h < 4 && kda; h++) {
            const int at = d + e + h % 2 * 8, j = c + g + h / 2 * 8;
            x[h] = scale_bf16x2(x[h], decay_between(&s.G[block_anchor(j, size)][at],
                                                    &s.G[block_column(j, size)][at]));
        }
        mma_m16n16k16(qk, a, x);
        mma_m16n16k16(kk, b, x);
    }
}

// Computes the pairs for KDA in 14 tiles: four for the largest block, and two for each
// of the five smaller sizes. Then computes the diagonal of Aqk, where D_ii = 1.
template <int K>
static __device__ void pairs_kda(const struct kcp_wy &a, struct wy_storage<K> &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int task = warp; task < 14; task += warps) {
        const int size = task < 4 ? 32 : 32 >> (task - 2) / 2;
        const int rg = task < 4 ? task / 2 : task % 2, cg = task % 2;
        float qk[2][4] = {}, kk[2][4] = {};
        block_scores<K, 1>(s, size, rg, cg, qk, kk);
        #pragma unroll
        for (int h = 0; h < 8; h++) {
            const int r = 16 * rg + lane / 4 + h % 4 / 2 * 8;
            const int c = 16 * cg + h / 4 * 8 + lane % 4 * 2 + h % 2;
            if ((r ^ c) & ~(size - 1)) continue; // r and c are in different blocks
            const int i = block_row(r, size), j = block_column(c, size);
            s.Aqk[i][j] = (float)a.scale * qk[h / 4][h % 4];
            s.L[i][j] = s.beta[i] * kk[h / 4][h % 4];
        }
    }
    for (int i = warp; i < CHUNK; i += warps) {
        float x = 0.0f;
        for (int d = lane; d < K; d += 32) x += (float)s.q[i][d] * (float)s.k[i][d];
        for (int b = 16; b; b /= 2) x += __shfl_xor_sync(~0u, x, b);
        if (lane == 0) s.Aqk[i][i] = (float)a.scale * x;
    }
}

// Computes the pairs for GDN: multiplies unscaled rows in the ten tiles on and below
// the diagonal, then scales each product by exp2(G_i - G_j).
template <int K>
static __device__ void pairs_gdn(const struct kcp_wy &a, struct wy_storage<K> &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int task = warp; task < 16; task += warps) {
        const int rg = task / 4, cg = task % 4;
        float qk[2][4] = {}, kk[2][4] = {};
        if (cg > rg) continue;
        block_scores<K, 0>(s, 0, rg, cg, qk, kk);
        #pragma unroll
        for (int h = 0; h < 8; h++) {
            const int i = 16 * rg + lane / 4 + h % 4 / 2 * 8;
            const int j = 16 * cg + h / 4 * 8 + lane % 4 * 2 + h % 2;
            if (j > i) continue;
            const float D = exp2f(s.G[i][0] - s.G[j][0]);
            s.Aqk[i][j] = (float)a.scale * qk[h / 4][h % 4] * D;
            if (j < i) s.L[i][j] = s.beta[i] * kk[h / 4][h % 4] * D;
        }
    }
}
