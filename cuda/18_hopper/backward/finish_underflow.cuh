// finish_underflow.cuh -- KDA's finishing kernel: pairs of tokens, one by one.
// Book: chapter 18, "Code: kernels".
// Checked by: bench/finish.cu, tests/13_backward/checks.c.
// Next: finish_kda.cuh.
#ifndef KCP_FINISH_UNDERFLOW_CUH
#define KCP_FINISH_UNDERFLOW_CUH

#include "finish_consumer.cuh"

// A gate may forget so much within a subchunk that no anchor holds the decay of two of
// its rows. A first pass marks such a chunk; the second takes it again, with pairs of
// one subchunk made here: slowly, and exactly at any decay.

static __device__ __forceinline__ void mark_underflow(const float (*bound)[2],
                                                      unsigned char *mark)
{
    float deepest = 0.0f;
    #pragma unroll
    for (int I = 0; I < SUBCHUNKS; I++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
            deepest = fminf(deepest, bound[I + 1][h] - bound[I][h]);
    if (deepest < -118.0f) *mark = 1; // exp2 of it is still a number of bf16
}

// What a lane has of a subchunk and one channel: four tokens.
struct four_tokens {
    float G[4], q[4], k[4];
};

static __device__ __forceinline__ struct four_tokens four_tokens_of(
    const pairs_of_tokens &q, const pairs_of_tokens &k, const float (*G)[4], int I,
    int h)
{
    struct four_tokens x;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t qj = q[2 * I + j / 2][h], kj = k[2 * I + j / 2][h];
        x.G[j] = G[2 * I + j / 2][2 * h + j % 2];
        x.q[j] = j % 2 ? bf16x2_high(qj) : bf16x2_low(qj);
        x.k[j] = j % 2 ? bf16x2_high(kj) : bf16x2_low(kj);
    }
    return x;
}

static __device__ __forceinline__ struct four_tokens of_other_lane(
    const struct four_tokens &x, int mask)
{
    struct four_tokens y;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        y.G[j] = __shfl_xor_sync(~0u, x.G[j], mask);
        y.q[j] = __shfl_xor_sync(~0u, x.q[j], mask);
        y.k[j] = __shfl_xor_sync(~0u, x.k[j], mask);
    }
    return y;
}

static __device__ __forceinline__ float element_of(const unsigned char *triangle, int i,
                                                   int j)
{
    return (float)*(const bf16 *)(triangle + swizzle128_offset(i, j / 8) + j % 8 * 2);
}

// Rows and columns of subchunk I against those of lane ^ mask:
//     row_q_i = sum_{j<i} dA_ij D_ij k_j    row_k_i likewise with dB
//     column_j = sum_{i>j} (dA_ij q_i + dB_ij k_i) D_ij
struct pair_sums {
    float row_q[4], row_k[4], column[4];
};

template <int K>
static __device__ __forceinline__ void add_pairs(const struct shared_storage<K> &smem,
                                                 int first, int e, int e_other,
                                                 const struct four_tokens &x,
                                                 const struct four_tokens &y,
                                                 struct pair_sums &s)
{
    #pragma unroll
    for (int m = 0; m < 4; m++)
        #pragma unroll
        for (int l = 0; l < 4; l++) {
            const int mine = first + m / 2 * 8 + e + m % 2;
            const int other = first + l / 2 * 8 + e_other + l % 2;
            if (other == mine) continue;
            const int i = max(mine, other), j = min(mine, other);
            const float A = element_of(smem.dA, i, j), B = element_of(smem.dB, i, j);
            const float D = ex2_approx(-fabsf(x.G[m] - y.G[l]));
            if (other < mine) {
                s.row_q[m] = fmaf(A * D, y.k[l], s.row_q[m]);
                s.row_k[m] = fmaf(B * D, y.k[l], s.row_k[m]);
            } else s.column[m] = fmaf(D, fmaf(A, y.q[l], B * y.k[l]), s.column[m]);
        }
}

// All pairs within subchunks, to dq, dk and dG.
template <int K>
static __device__ __noinline__ void add_pairs_of_subchunks(
    const struct shared_storage<K> &smem, const unsigned char *q_tile,
    const unsigned char *k_tile, const float (*G)[4], pairs_of_tokens &dq,
    float (*dk)[4], float (*dG)[4])
{
    const int e = place_of_thread().e;
    pairs_of_tokens q, k;
    load_channels(q, q_tile);
    load_channels(k, k_tile);
    #pragma unroll 1
    for (int I = 0; I < SUBCHUNKS; I++)
        #pragma unroll 1
        for (int h = 0; h < 2; h++) {
            const struct four_tokens x = four_tokens_of(q, k, G, I, h);
            struct pair_sums s = {};
            #pragma unroll 1
            for (int mask = 0; mask < 4; mask++)
                add_pairs<K>(smem, 16 * I, e, e ^ 2 * mask, x, of_other_lane(x, mask),
                             s);
            #pragma unroll
            for (int m = 0; m < 4; m++) {
                const int t = 2 * I + m / 2, at = 2 * h + m % 2;
                const float low = bf16x2_low(dq[t][h]) + (m % 2 ? 0.0f : s.row_q[m]);
                const float high = bf16x2_high(dq[t][h]) + (m % 2 ? s.row_q[m] : 0.0f);
                dq[t][h] = pack_bf16x2(low, high);
                dk[t][at] += s.row_k[m] + s.column[m];
                dG[t][at] += x.q[m] * s.row_q[m] + x.k[m] * (s.row_k[m] - s.column[m]);
            }
        }
}

#endif
