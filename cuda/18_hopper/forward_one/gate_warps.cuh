// gate_warps.cuh -- the forward in one kernel: warps that apply the gate (KDA).
// Book: chapter 18, "Code: kernels".  Checked by: tests/08_forward/mutants.c.
// Next: inverse_warps.cuh.
#ifndef KCP_FORWARD_ONE_GATE_WARPS_CUH
#define KCP_FORWARD_ONE_GATE_WARPS_CUH

#include "storage.cuh"
#include "cuda/18_hopper/step_gates.cuh"

// A warp processes 16 rows and 32 channels of every step (struct gate_lane), and needs
// no data of other warps. Warps with `half` = 0 have the rows up to the anchor.
struct gate_place { int half, quarter; struct gate_constants f[2]; };

static __device__ __forceinline__ struct gate_place gate_place_of(
    const struct head_params &x, int n, int half, int quarter)
{
    const int channel = quarter * 32 + threadIdx.x % 16 * 2;
    return { half, quarter,
             { gate_constants_of<KCP_GATE_BOUNDED>(x.f.a, n, channel),
               gate_constants_of<KCP_GATE_BOUNDED>(x.f.a, n, channel + 1) } };
}

// Zeroes rows past the stretch's end, because they may belong to another sequence.
static __device__ __forceinline__ void zero_gate_rows(struct step_stage<1> &s, int half,
                                                      int quarter, int rows)
{
    for (int i = threadIdx.x % 32; i < 16 * 4; i += 32) {
        const int row = half * 16 + i / 4, piece = quarter % 2 * 4 + i % 4;
        for (int tile = 0; tile < 3 && row >= rows; tile++)
            *(uint4 *)(s.rows[quarter / 2][tile] + swizzle128_offset(row, piece)) =
                make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
}

// Returns the array of |q|^2, indexed [quarter of the channels][row]. The array has the
// bytes of Aqk until Aqk is written.
static __device__ __forceinline__ float *q_squares_of(struct step_stage<1> &s)
{
    return (float *)(s.Aqk + STEP_TRIANGLE / 2);
}

static __device__ __forceinline__ void add_q_squares(struct step_stage<1> &s, int half,
                                                     int quarter)
{
    const int lane = threadIdx.x % 32, g = lane / 4;
    const int at =
        half * 2048 + swizzle128_offset(lane % 16, quarter % 2 * 4 + lane / 16);
    float d[2][4] = {};
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t a[4];
        ldmatrix_x4(a, (const bf16 *)(s.rows[quarter / 2][ROW_Q] + (at ^ i << 5)));
        mma_m16n8k16(d[0], a, a[0], a[2]);
        mma_m16n8k16(d[1], a, a[1], a[3]);
    }
    if (lane % 4 != g / 2) return;
    float *squares = q_squares_of(s) + quarter * STEP_ROWS + half * 16 + g;
    squares[0] = g % 2 ? d[0][1] : d[0][0];
    squares[8] = g % 2 ? d[1][3] : d[1][2];
}

// `ragged` = 1: the step has fewer than 32 rows. `sum`: output, the sum of log2 decays
// over the 16 rows of this half.
template <int ragged>
static __device__ __forceinline__ void gate_step(const struct gate_place &w, int rows,
                                                 struct step_stage<1> &s, float *sum)
{
    if (ragged) zero_gate_rows(s, w.half, w.quarter, rows);
    const struct gate_lane l =
        gate_lane_of(smem_addr(s.rows[w.quarter / 2]), w.half, w.quarter);
    float F[8][2], before[2][2], all[2];
    uint32_t g[8];
    #pragma unroll
    for (int r = 0; r < 8; r++) g[r] = word_at(l.at(r) + ROW_G * STEP_TILE);
    add_q_squares(s, w.half, w.quarter);
    compiler_fence();
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        F[r][0] = ex2_approx(fmaf(w.f[0].times, bf16x2_low(g[r]), w.f[0].plus));
        F[r][1] = ex2_approx(fmaf(w.f[1].times, bf16x2_high(g[r]), w.f[1].plus));
    }
    sum_decays<!ragged>(l, w.f[0].top, rows, F, before, all);
    if (!l.far) *(float2 *)sum = make_float2(all[0], all[1]);
    #pragma unroll
    for (int rr = 0; rr < 8; rr += 4) {
        uint32_t q[4], k[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            q[i] = word_at(l.at(rr + i) + ROW_Q * STEP_TILE);
            k[i] = word_at(l.at(rr + i) + ROW_K * STEP_TILE);
        }
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                F[rr + i][j] = ex2_approx(F[rr + i][j] + before[rr / 4][j]);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t at = l.at(rr + i);
            const float F0 = F[rr + i][0], F1 = F[rr + i][1];
            const float k0 = bf16x2_low(k[i]), k1 = bf16x2_high(k[i]);
            put_word(at + ROW_Q * STEP_TILE,
                     pack_bf16x2(bf16x2_low(q[i]) * F0, bf16x2_high(q[i]) * F1));
            put_word(at + ROW_K * STEP_TILE, pack_bf16x2(k0 * F0, k1 * F1));
            put_word(at + ROW_G * STEP_TILE,
                     pack_bf16x2(k0 * rcp_approx(F0), k1 * rcp_approx(F1)));
        }
    }
}

template <int ragged>
static __device__ __forceinline__ void gate_one_step(const struct gate_place &w,
                                                     int rows,
                                                     struct head_storage<1> &smem,
                                                     struct step_position at,
                                                     float *sums)
{
    mbarrier_wait(&smem.raw[at.stage], at.phase);
    __syncwarp();
    gate_step<ragged>(w, rows, smem.stage[at.stage], sums + at.stage * 128);
    fence_proxy_async();
    warp_arrive(&smem.gated[at.stage]);
}

static __device__ __forceinline__ void gate_warp(const struct head_params &x,
                                                 const struct head_walk &w,
                                                 struct head_storage<1> &smem, int half,
                                                 int quarter)
{
    const struct gate_place place = gate_place_of(x, w.n, half, quarter);
    float *const sums = (half ? smem.carried[0] : smem.decay[0]) + quarter * 32
                        + threadIdx.x % 16 * 2;
    struct step_position at = {};
    int left = w.len;
    #pragma unroll 1
    for (; left >= STEP_ROWS; left -= STEP_ROWS, at.advance(1))
        gate_one_step<0>(place, left, smem, at, sums);
    if (left > 0) gate_one_step<1>(place, left, smem, at, sums);
}

#endif
