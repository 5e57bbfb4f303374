// deep_scores.cuh -- KDA: scores within subchunks in channels that decay strongly.
// Book: chapter 18.
#pragma once

#include "cuda/tile/decay.cuh"
#include "rows.cuh"

// A gate may be so strong that exp2(G_i) or exp2(-G_j) of two rows of a subchunk is
// outside the range of bf16. Such a channel is deep. In 16 channels (one step of mma)
// of which one is deep, the scores within the subchunk are sums over levels s = 8, 4,
// 2, 1 instead of one product. Level s has the pairs of a row i in an odd block of s
// rows and a row j in the preceding block, i.e. the pairs for which s is the highest
// bit of i ^ j. With a = G of row j's block's last row, the decay from j to i is
// exp2(G_i - a) exp2(a - G_j). Both factors are at most 1, so underflow to 0 is
// correct.

// G relative to the subchunk's start [CHUNK][64], which overwrites the tile of the gate
// and the operands `ahead` of 64 channels. Rows are swizzled to avoid bank conflicts.
static __device__ __forceinline__ float2 *deep_decays_at(struct channel_half &m,
                                                         int row, int channel)
{
    static_assert(offsetof(struct channel_half, g) + CHUNK * 64 * sizeof(float)
                      <= sizeof m, "replaces the gate and operands");
    return (float2 *)((float *)m.g + row * 64 + (channel ^ row % 4 * 8));
}

// Stores G, and which threads of the warp have deep channels.
template <int K>
static __device__ __forceinline__ void store_deep_decays(
    const struct thread_rows<K> &w, const float (*G)[2],
    struct kda_prepare_storage<K> &smem)
{
    const int part = w.row / thread_rows<K>::ROWS;
    const float2 sum = *(const float2 *)(smem.sum[0] + part * K + w.channel);
    const uint32_t threads = __ballot_sync(~0u, has_deep_channel<K>(sum));
    smem.deep[part * (K / 64) + w.channel / 64] = threads;
    #pragma unroll
    for (int r = 0; r < w.ROWS; r++)
        *deep_decays_at(smem.half[w.channel / 64], w.row + r, w.channel % 64) =
            make_float2(G[r][0], G[r][1]);
}

template <int K>
static __device__ __forceinline__ void load_deep_decays(
    const struct thread_rows<K> &w, struct kda_prepare_storage<K> &smem, float (*G)[2])
{
    #pragma unroll
    for (int r = 0; r < w.ROWS; r++) {
        const float2 x = *deep_decays_at(smem.half[w.channel / 64], w.row + r,
                                         w.channel % 64);
        G[r][0] = x.x;
        G[r][1] = x.y;
    }
}

// Returns a bit mask of the steps of 16 channels that are deep in subchunk I.
template <int K>
static __device__ __forceinline__ int deep_steps_of(
    int I, const struct kda_prepare_storage<K> &smem)
{
    int steps = 0;
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        uint32_t threads = smem.deep[2 * I + i / 4];
        if (K == 64) threads |= smem.deep[2 * I + 1];
        if (threads >> i % 4 * 8 & 0xff) steps |= 1 << i;
    }
    return steps;
}

// Computes one warp's scores within subchunk I over the deep steps: q or k times k,
// from raw rows. The same lanes hold operand A and operand B of equal rows and
// channels.
template <int K>
static __device__ __forceinline__ void deep_scores(int I, int of_k, int steps,
                                                   struct kda_prepare_storage<K> &smem,
                                                   float (*to)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    const int at = swizzle128_offset(I * SUBCHUNK + lane % 16, lane / 16);
    float y[4][2][4] = {};
    #pragma unroll 1
    for (int i = 0; i < K / 16; i++) {
        if (!(steps >> i & 1)) continue;
        struct channel_half &m = smem.half[i / 4];
        const int step = i % 4 << 5, channel = i % 4 * 16 + e;
        uint32_t row[4], k[4], a[4], b[4];
        float2 G[4];
        ldmatrix_x4(row, (const bf16 *)((of_k ? m.k : m.q) + (at ^ step)));
        ldmatrix_x4(k, (const bf16 *)(m.k + (at ^ step)));
        #pragma unroll
        for (int j = 0; j < 4; j++)
            G[j] = *deep_decays_at(m, I * SUBCHUNK + g + j % 2 * 8,
                                   channel + j / 2 * 8);
        #pragma unroll
        for (int l = 0; l < 4; l++) {
            const int s = 8 >> l;
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const int last = ((g + j % 2 * 8) & -2 * s) + s - 1;
                const float2 anchor = *deep_decays_at(m, I * SUBCHUNK + last,
                                                      channel + j / 2 * 8);
                const float2 f = { ex2_approx(-fabsf(G[j].x - anchor.x)),
                                   ex2_approx(-fabsf(G[j].y - anchor.y)) };
                a[j] = scale_bf16x2(row[j], f);
                b[j] = scale_bf16x2(k[j], f);
            }
            mma_m16n8k16(y[l][0], a, b[0], b[2]);
            if (l) mma_m16n8k16(y[l][1], a, b[1], b[3]);
        }
    }
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        const int i = I * SUBCHUNK + h % 4 / 2 * 8 + g;
        const int j = I * SUBCHUNK + h / 4 * 8 + e + h % 2, level = (i ^ j) % 8;
        float x = y[3][h / 4][h % 4];
        if (level & 2) x = y[2][h / 4][h % 4];
        if (level & 4) x = y[1][h / 4][h % 4];
        if ((i ^ j) & 8) x = y[0][h / 4][h % 4];
        const float2 norm = smem.norm[i];
        to[h / 4][h % 4] = x * (of_k ? norm.y : norm.x) * smem.norm[j].y;
    }
}
