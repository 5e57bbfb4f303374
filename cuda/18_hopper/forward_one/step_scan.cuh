// step_scan.cuh -- the forward in one kernel: the scan of the state over steps.
// Book: chapter 18b.
#ifndef KCP_FORWARD_ONE_STEP_SCAN_CUH
#define KCP_FORWARD_ONE_STEP_SCAN_CUH

#include "gate_warps.cuh"
#include "query_warps.cuh"
#include "cuda/tile/warpgroup_store.cuh"

// Loads v^T of this warp's 16 columns as pairs of bf16, with 0 past the sequence's end.
template <int ragged>
static __device__ __forceinline__ void load_step_v(uint32_t (*v)[4],
                                                   const unsigned char *from, int left)
{
    ldmatrix_x4_trans(v[0], (const bf16 *)from);
    ldmatrix_x4_trans(v[1], (const bf16 *)(from + 2048));
    #pragma unroll
    for (int i = 0; i < 8 && ragged; i++) {
        const int row = i / 4 * 16 + i % 4 / 2 * 8 + threadIdx.x % 4 * 2;
        if (row >= left) v[i / 4][i % 4] = 0;
        else if (row + 1 >= left) v[i / 4][i % 4] &= 0xffffu;
    }
}

// Stores operand A in a record as core matrices (core_offset). The operand [64, 16 *
// steps] has one row per state column. A warp has 16 of these rows, and stores 128
// contiguous bytes per register.
template <int steps>
static __device__ __forceinline__ void keep_operand_cores(unsigned char *to,
                                                          const uint32_t (*a)[4])
{
    const int lane = threadIdx.x % 32;
    unsigned char *at = to + threadIdx.x / 32 * 256 + lane * 4;
    #pragma unroll
    for (int i = 0; i < steps; i++)
        #pragma unroll
        for (int r = 0; r < 4; r++)
            *(uint32_t *)(at + (2 * i + r / 2) * 2048 + r % 2 * 128) = a[i][r];
}

// The products of a step (storage.cuh). The critical path computes y = v - kf S, then
// v_new = A beta y, then S. The products for o overlap with this path. A lane has
// columns 8 t + e, 8 t + e + 1 of tile t of S^T [64,128], y^T [64,32] and o^T [64,32].
template <int kda, int keep, int by_head>
struct step_consumer {
    enum {
        AB = offsetof(struct step_stage<kda>, Ab),
        AQK = offsetof(struct step_stage<kda>, Aqk),
    };
    struct head_storage<kda> &smem;
    const struct head_params &x;
    const struct head_walk &w;
    int wg, e, is_storer, v_at;          // v_at: this lane's bytes of v, for ldmatrix
    uint64_t *stored;                    // `empty` of the stage from which TMA copies o
    float y[8][4];                       // (qf S)^T, then (kf S)^T

    // Starts qf S and kf S as one product: rows of qf precede those of kf in memory, so
    // qf and kf form one operand.
    __device__ __forceinline__ void begin(int c, int st, uint32_t address,
                                          float (*S)[4])
    {
        uint32_t a[8][4];
        //> one-begin
        if (kda && smem.decay[st][e] < 0.0f)       // same sign in all lanes
            #pragma unroll
            for (int t = 0; t < 16; t++) scale_tile(S[t], &smem.carried[st][8 * t + e]);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            if (kda)
                #pragma unroll
                for (int t = 2 * i; t < 2 * i + 2; t++)
                    scale_tile(S[t], &smem.decay[st][8 * t + e]);
            pack_accumulator<2>(a + i, S + 2 * i);
        }
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 8; i++)
            wgmma_m64n64k16_rs<0>(
                y, a[i], smem_desc_at(address, DESC_HIGH_128, 1,
                                      i / 4 * head_shape<kda>::HALF + i % 4 * 32), i);
        wgmma_commit();
        //< one-begin
        if (keep)
            keep_operand_cores<8>(step_state_at<by_head>(x.records, x.states,
                                                         w.record + c, x.f.a.HV, w.n),
                                  a);
    }

    static __device__ __forceinline__ void scale_tile(float *S, const float *factor)
    {
        const float2 f = *(const float2 *)factor;
        S[0] *= f.x;
        S[1] *= f.y;
        S[2] *= f.x;
        S[3] *= f.y;
    }

    // Releases the stage of the previous step as soon as TMA has read o from the stage.
    __device__ __forceinline__ void release_stored(int step)
    {
        if (!is_storer || !step) return;
        tma_store_wait_read();
        mbarrier_arrive(stored);
    }

    // Overwrites this warp's columns of v, which no other warp reads, with o. Copies o
    // to global memory by TMA, or by rows if the sequence ends within the step.
    template <int ragged>
    __device__ __forceinline__ void store_o(int st, int t, int left, float (*o)[4])
    {
        unsigned char *tile = smem.stage[st].v[wg];
        uint32_t packed[2][4];
        pack_accumulator<4>(packed, o);
        const uint32_t to = smem_addr(tile + v_at);
        stmatrix_x4_trans(to, packed[0]);
        stmatrix_x4_trans(to + 2048, packed[1]);
        fence_proxy_async();
        warpgroup_sync();
        if (ragged) {
            const int64_t stride = (int64_t)x.f.a.HV * 128;
            copy_swizzled_rows<STEP_ROWS>(
                out<bf16>(x.f.a.o, t, x.f.a.HV, w.n, 128) + 64 * wg, stride, left,
                (const bf16 *)tile);
        } else if (is_storer) {
            tma_store_3d(x.o, tile, 64 * wg, w.n, t);
            stored = &smem.empty[st];
        }
    }

    template <int ragged>
    __device__ __forceinline__ void step(int c, struct step_position at, float (*S)[4])
    {
        const int st = at.stage, t0 = c * STEP_ROWS, left = w.len - t0;
        const uint32_t address = smem_addr(&smem.stage[st]) >> 4;
        uint32_t v[2][4], b[2][4], b_state[2][4];
        float2 k_factor[4], q_factor[4];
        float v_new[4][4], o[4][4];
        //> one-step
        mbarrier_wait(&smem.raw[st], at.phase);
        mbarrier_wait(&smem.decayed[st], at.phase);
        begin(c, st, address, S);
        release_stored(c);
        load_step_v<ragged>(v, smem.stage[st].v[wg] + v_at, left);
        if (kda) mbarrier_wait(&smem.inverted[st], at.phase);
        wgmma_wait<0>();
        fence_operand<8>(y);
        if (!kda) {                      // S decays while A beta is made
            scale_state(S, 16, smem.decay[st][STEP_ROWS]);
            mbarrier_wait(&smem.inverted[st], at.phase);
        }
        #pragma unroll
        for (int t = 0; t < 4; t++)
            k_factor[t] = *(const float2 *)&smem.k_factor[st][8 * t + e];
        #pragma unroll
        for (int t = 0; t < 4; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t pair = v[t / 2][t % 2 * 2 + j / 2];
                y[4 + t][j] = fmaf(j % 2 ? -k_factor[t].y : -k_factor[t].x, y[4 + t][j],
                                   j % 2 ? bf16x2_high(pair) : bf16x2_low(pair));
            }
        pack_accumulator<4>(b, y + 4);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 2; i++)
            wgmma_step_rs<0, 0>(v_new, b[i],
                                smem_desc_at(address, DESC_HIGH_64, 1, AB + 32 * i), i);
        wgmma_commit();
        mbarrier_wait(&smem.scored[st], at.phase);
        #pragma unroll
        for (int t = 0; t < 4; t++)
            q_factor[t] = *(const float2 *)&smem.q_factor[st][8 * t + e];
        #pragma unroll
        for (int t = 0; t < 4; t++)
            #pragma unroll
            for (int j = 0; j < 4; j++)
                o[t][j] = y[t][j] * (j % 2 ? q_factor[t].y : q_factor[t].x);
        wgmma_wait<0>();
        fence_operand<4>(v_new);
        pack_accumulator<4>(b, v_new);
        if (!kda) pack_accumulator_times<4>(b_state, v_new, smem.decay[st]);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 2; i++)
            wgmma_step_rs<0, 0>(
                o, b[i], smem_desc_at(address, DESC_HIGH_64, 1, AQK + 32 * i), 1);
        wgmma_commit();
        #pragma unroll
        for (int i = 0; i < 2; i++)
            wgmma_m64n128k16_rs<1>(S, kda ? b[i] : b_state[i],
                                   smem_desc_at(address, DESC_HIGH_128,
                                                head_shape<kda>::HALF / 16,
                                                head_shape<kda>::KB + 2048 * i));
        wgmma_commit();
        if (keep) keep_operand_cores<2>(kept_record<by_head>(x, w, c)->w, b);
        wgmma_wait<1>();
        fence_operand<4>(o);
        store_o<ragged>(st, w.begin + t0, left, o);
        wgmma_wait<0>();
        fence_operand<16>(S);
        warp_arrive(&smem.empty[st]);
        //< one-step
    }
};

// Scans a sequence. Each warpgroup has 64 columns of the state.
template <int kda, int keep, int by_head>
static __device__ __forceinline__ void scan_warpgroup(const struct head_params &x,
                                                      const struct head_walk &w,
                                                      struct head_storage<kda> &smem)
{
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
    const int v = threadIdx.x / 32 * 16;
    const int v_at = swizzle128_offset(lane % 8 + lane / 16 * 8,
                                       threadIdx.x / 32 % 4 * 2 + lane / 8 % 2);
    float S[16][4];
    {
        const struct state_view h =
            state_view_of(x.f.a, x.f.a.h0, x.f.a.layout, w.row, w.n, v);
        load_state<128>(S, h.p, h.dv, h.di);
    }
    struct step_consumer<kda, keep, by_head> consumer = { smem, x, w, wg, lane % 4 * 2,
                                           threadIdx.x % 128 == 0, v_at };
    struct step_position at = {};
    int c = 0;
    #pragma unroll 1
    for (; (c + 1) * STEP_ROWS <= w.len; c++, at.advance(1))
        consumer.template step<0>(c, at, S);
    if (c < w.steps) consumer.template step<1>(c, at, S);
    if (kda) scale_columns<16>(S, smem.end);
    const struct state_view h =
        state_view_of(x.f.a, x.f.a.ht, x.f.a.layout, w.row, w.n, v);
    store_state<128>(h.p, h.dv, h.di, S);
    if (consumer.is_storer) tma_store_wait_read();
}

#endif
