// finish_sums.cuh -- KDA's finishing kernel: three warps beside the consumers.
// Book: chapter 18, "Code: kernels".
// Checked by: bench/finish.cu, tests/13_backward/checks.c.
// Next: finish_underflow.cuh.
#ifndef KCP_FINISH_SUMS_CUH
#define KCP_FINISH_SUMS_CUH

#include "finish_consumer.cuh"
#include "finish_producer.cuh"

enum { SUMS_THREADS = 96 };

// Sums over v of h dS of rows 8 warp .., every 24: four lanes have a row.
template <int K>
static __device__ __forceinline__ void make_h_dS(int warp,
                                                 struct shared_storage<K> &smem)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int row = 8 * warp; row < K; row += 24) {
        float sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < K / 32; i++) {
            const int at =
                swizzle128_offset(row % 64 + lane / 4, i % 2 * 4 + lane % 4);
            const uint4 h = *(const uint4 *)(smem.h[row / 64][i / 2] + at);
            const uint4 dS = *(const uint4 *)(smem.dS[row / 64][i / 2] + at);
            const uint32_t *u = &h.x, *w = &dS.x;
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                sum = fmaf(bf16x2_low(u[j]), bf16x2_low(w[j]), sum);
                sum = fmaf(bf16x2_high(u[j]), bf16x2_high(w[j]), sum);
            }
        }
        const float2 other = quad_sums(sum);
        if (lane % 4 == 0) *h_dS_of(smem, row + lane / 4) = sum + other.x + other.y;
    }
}

// dbeta of a chunk, by a warp: a lane has two tokens.
template <int K>
static __device__ __forceinline__ void store_dbeta(const struct backward_params &x,
                                                   const struct block_chunk &i,
                                                   const struct shared_storage<K> &smem)
{
    const struct kcp_backward &a = x.a;
    const int row = 2 * (threadIdx.x % 32), c = chunk_of(a, i), n = value_head_of(a, i);
    const struct token_range z = finish_tokens(a, c);
    const float2 beta =
        *(const float2 *)&x.beta[((int64_t)c * a.HV + n) * CHUNK + row];
    float *to = out<float>(a.dbeta_raw, z.t + row, 1, 0, a.HV) + n;
    named_barrier_sync(4, finish_threads<K>::CONSUMERS + 32);
    const float2 y = *(const float2 *)&smem.dv_v_new[row];
    if (row < z.len) to[0] = dbeta_raw_of(a.beta_form, beta.x, y.x);
    if (row + 1 < z.len) to[a.HV] = dbeta_raw_of(a.beta_form, beta.y, y.y);
}

// What needs no registers of a consumer: the producer's warpgroup has three warps to
// spare, and 24 registers for each of their threads.
template <int K, int underflow>
static __device__ __forceinline__ void sums_warp(const struct backward_params &x,
                                                 const unsigned char *marks, int warp,
                                                 struct shared_storage<K> &smem)
{
    struct block_chunk i;
    #pragma unroll 1
    for (int more = first_of_block<underflow>(x.a, marks, i); more;
         more = next_of_block<underflow>(x.a, marks, i)) {
        mbarrier_wait(&smem.full[PART_h], i.chunk);
        mbarrier_wait(&smem.full[PART_dS], i.chunk);
        make_h_dS<K>(warp, smem);
        mbarrier_arrive(&smem.sums_full);
        mbarrier_arrive(&smem.empty[PART_dS]);
        if (warp == 0) store_dbeta<K>(x, i, smem);
        mbarrier_arrive(&smem.empty[PART_h]);
    }
}

#endif
