// query_warps.cuh -- the forward in one kernel: warps that compute Aqk and decays.
// Book: chapter 18b.
#ifndef KCP_FORWARD_ONE_QUERY_WARPS_CUH
#define KCP_FORWARD_ONE_QUERY_WARPS_CUH

#include "inverse_warps.cuh"

// Stores Aqk: the lower triangle of the scores of q and k, times a factor per row and,
// if `columns` is not NULL, a factor per column.
static __device__ __forceinline__ void store_step_Aqk(unsigned char *Aqk,
                                                      float (*y)[2][4],
                                                      const float *rows,
                                                      const float *columns)
{
    const int lane = lane_id(), g = lane / 4, e = lane % 4 * 2;
    float row[4];
    #pragma unroll
    for (int r = 0; r < 4; r++) row[r] = rows[8 * r + g];
    #pragma unroll
    for (int B = 0; B < 3; B++)
        #pragma unroll
        for (int t = 0; t < 2; t++) {
            float2 column = make_float2(1.0f, 1.0f);
            if (columns)
                column = *(const float2 *)&columns[(B == 2 ? 16 : 0) + 8 * t + e];
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const int i = g + 8 * h, j = 8 * t + e, below = B == 1;
                const float f = row[(B ? 2 : 0) + h], *x = &y[B][t][2 * h];
                const float low = x[0] * (f * column.x), high = x[1] * (f * column.y);
                const int at =
                    triangle64_offset((B ? 16 : 0) + i, (B == 2 ? 2 : 0) + t);
                *(uint32_t *)(Aqk + at + e * 2) =
                    pack_bf16x2(below || j <= i ? low : 0.0f,
                                below || j + 1 <= i ? high : 0.0f);
            }
        }
}

static __device__ __forceinline__ float4 exp2_times(float4 x, float by)
{
    return make_float4(by * ex2_approx(x.x), by * ex2_approx(x.y), by * ex2_approx(x.z),
                       by * ex2_approx(x.w));
}

// KDA: computes the factor of the state at the start of a step, 2^(E - a + a'), from a'
// of this step and E - a of the previous step. This factor may underflow in fp32
// although 2^(E - a) and 2^a' do not. If the factor may underflow in any channel,
// `decay` is -2^a' and `carried` is -2^(E - a) in all channels. The scan tests the sign
// and multiplies by both factors. `carry` is E - a of the previous step in this lane's
// channels. E and a are sums of log2 decays (storage.cuh).
static __device__ __forceinline__ void state_decay(struct head_storage<1> &smem, int st,
                                                   int is_last, float4 &carry)
{
    const int lane = threadIdx.x % 32;
    float4 *const decay = (float4 *)smem.decay[st] + lane;
    float4 *const carried = (float4 *)smem.carried[st] + lane;
    float4 a = *decay;
    const float4 next = *carried;
    const float lowest = fminf(fminf(a.x + carry.x, a.y + carry.y),
                               fminf(a.z + carry.z, a.w + carry.w));
    if (__any_sync(~0u, lowest < -120.0f)) {
        *decay = exp2_times(a, -1.0f);
        *carried = exp2_times(carry, -1.0f);
    } else {
        a = make_float4(a.x + carry.x, a.y + carry.y, a.z + carry.z, a.w + carry.w);
        *decay = exp2_times(a, 1.0f);
    }
    if (is_last) ((float4 *)smem.end)[lane] = exp2_times(next, 1.0f);
    carry = next;
}

// KDA: loads the rows of all steps, and computes the factors of the state and of rows
// of q. While waiting for gate warps, loads the next step if a stage is free.
template <int keep, int by_head>
static __device__ __forceinline__ void decay_warp(const struct head_params &x,
                                                  const struct head_walk &w,
                                                  struct head_storage<1> &smem)
{
    const int lane = threadIdx.x % 32;
    const float scale = (float)x.f.a.scale;
    struct step_loader<1> loader = {};
    struct step_position at = {};
    float4 carry = { 0.0f, 0.0f, 0.0f, 0.0f };
    #pragma unroll 1
    for (int c = 0; c < w.steps;) {
        const int st = at.stage;
        loader.poll(x, w, smem);
        if (!mbarrier_test(&smem.gated[st], at.phase)) continue;
        __syncwarp();
        const float *square = q_squares_of(smem.stage[st]) + lane;
        const float sum = square[0] + square[32] + square[64] + square[96];
        const float factor = x.f.a.l2norm ? rsqrtf(sum + 1e-6f) * scale : scale;
        smem.q_factor[st][lane] = factor;
        if (keeps_records<keep, by_head>(x))
            kept_record<by_head>(x, w, c)->q_factor[lane] = factor;
        state_decay(smem, st, c + 1 == w.steps, carry);
        warp_arrive(&smem.decayed[st]);
        c++;
        at.advance(1);
    }
}

// KDA: computes Aqk of every step.
template <int keep, int by_head>
static __device__ __forceinline__ void query_warp(const struct head_params &x,
                                                  const struct head_walk &w,
                                                  struct head_storage<1> &smem)
{
    struct step_position at = {};
    #pragma unroll 1
    for (int c = 0; c < w.steps; c++, at.advance(1)) {
        const int st = at.stage;
        struct step_stage<1> &s = smem.stage[st];
        float y[3][2][4] = {};
        mbarrier_wait(&smem.gated[st], at.phase);
        __syncwarp();
        step_scores<1, 0>(s, ROW_Q * STEP_TILE, ROW_G * STEP_TILE, y, NULL);
        mbarrier_wait(&smem.decayed[st], at.phase);    // squares have been read
        __syncwarp();
        store_step_Aqk(s.Aqk, y, smem.q_factor[st], NULL);
        fence_proxy_async();
        __syncwarp();
        if (keeps_records<keep, by_head>(x))
            keep_triangle(kept_record<by_head>(x, w, c)->Aqk, s.Aqk);
        warp_arrive(&smem.scored[st]);
    }
}

// GDN: zeroes the rows of q and k past the sequence's end, in all channels.
static __device__ __forceinline__ void zero_step_rows(struct step_stage<0> &s, int rows)
{
    for (int i = rows * 8 + (int)threadIdx.x % 32; i < STEP_ROWS * 8; i += 32)
        for (int tile = 0; tile < 4; tile++)
            *(uint4 *)(s.rows[tile / 2][tile % 2] + i * 16) = make_uint4(0, 0, 0, 0);
}

// GDN: computes Aqk and the decays of steps `warp`, `warp` + 2, ...
static __device__ __forceinline__ void query_warp(const struct head_params &x,
                                                  const struct head_walk &w,
                                                  struct head_storage<0> &smem,
                                                  int warp)
{
    enum { WARPS = head_shape<0>::QUERY_WARPS };
    static_assert(STEP_STAGES % WARPS == 0, "every phase of a barrier");
    const int lane = threadIdx.x % 32;
    const float scale = (float)x.f.a.scale;
    const struct gate_constants f = head_gate_of(x.f.a, w.n);
    float *const rows = smem.row[INVERSE_WARPS + warp];
    float *const columns = smem.column[INVERSE_WARPS + warp];
    float *const sums = smem.carried[INVERSE_WARPS + warp];
    int row = warp * STEP_ROWS + lane;
    uint32_t raw_gate = row_gate(x, w, row);
    struct step_position at = { warp, 0 };
    #pragma unroll 1
    for (int c = warp; c < w.steps; c += WARPS, at.advance(WARPS)) {
        const int st = at.stage, g = lane / 4;
        struct step_stage<0> &s = smem.stage[st];
        const float raw = float_of_bits(raw_gate, x.f.a.g_type);
        const float G = decay_to_row(x.f.a.gate, f, raw, row < w.len);
        const float last = __shfl_sync(~0u, G, 31);
        row += WARPS * STEP_ROWS;
        raw_gate = row_gate(x, w, row);
        const struct step_decays decays = step_decays_of(G, sums);
        const float to_state = ex2_approx(G), to_end = ex2_approx(last - G);
        mbarrier_wait(&smem.raw[st], at.phase);    // loads wait for the scan's reads
        smem.decay[st][lane] = to_end;
        if (lane == STEP_ROWS - 1) smem.decay[st][STEP_ROWS] = to_state;
        if ((c + 1) * STEP_ROWS > w.len) zero_step_rows(s, w.len - c * STEP_ROWS);
        fence_proxy_async();
        warp_arrive(&smem.decayed[st]);
        float y[3][2][4] = {}, d[4][4] = {};
        step_scores<0, 1>(s, ROW_Q * STEP_TILE, ROW_K * STEP_TILE, y, d);
        if (lane % 4 == g / 2)
            #pragma unroll
            for (int r = 0; r < 4; r++)
                smem.q_factor[st][8 * r + g] =
                    rsqrtf((g % 2 ? d[r][r % 2 * 2 + 1] : d[r][r % 2 * 2]) + 1e-6f);
        __syncwarp();
        const float norm = x.f.a.l2norm ? smem.q_factor[st][lane] * scale : scale;
        smem.q_factor[st][lane] = norm * to_state;
        rows[lane] = norm * decays.to_row;
        columns[lane] = decays.from_row;
        __syncwarp();
        if (__builtin_expect(decays.deep, 0)) decay_scores(sums, y);
        store_step_Aqk(s.Aqk, y, rows, columns);
        fence_proxy_async();
        warp_arrive(&smem.scored[st]);
    }
}

#endif
