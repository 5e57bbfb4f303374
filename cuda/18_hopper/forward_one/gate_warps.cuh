// gate_warps.cuh -- the forward in one kernel: warps that apply the gate (KDA).
// Book: chapter 18b.
#ifndef KCP_FORWARD_ONE_GATE_WARPS_CUH
#define KCP_FORWARD_ONE_GATE_WARPS_CUH

#include "storage.cuh"

// A warp processes 16 rows and 32 channels of every step, and needs no data of other
// warps. A lane has 8 rows of 2 channels: lanes 0 to 15 have the warp's first 8 rows,
// and lanes 16 to 31 (`far` = 1) have the warp's last 8 rows. Lanes 16 to 31 have rows
// r and r + 4 in the opposite order to lanes 0 to 15, so that the two halves of the
// warp never access the same bank. Warps with `half` = 0 have the rows up to the anchor
// (row 15). The running sums of these warps start at -a, where a is the sum of log2
// decays over these rows.
struct gate_place {
    int half, quarter, far, first;       // first: byte offset of the lane's 8 rows
    struct gate_constants f[2];
};

template <int form>
static __device__ __forceinline__ struct gate_place gate_place_of(
    const struct head_params &x, int n, int half, int quarter)
{
    const int lane = threadIdx.x % 32, far = lane / 16, column = lane % 16;
    const int channel = quarter * 32 + column * 2;
    const int piece = (quarter % 2 * 4 + column / 4) ^ far * 4;
    const int first = half * 2048 + far * 1024 + (piece << 4) + column % 4 * 4;
    return { half, quarter, far, first,
             { gate_constants_of<form>(x.f.a, n, channel),
               gate_constants_of<form>(x.f.a, n, channel + 1) } };
}

// Zeroes rows past the sequence's end, which may belong to another sequence.
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

// Returns the array of |q|^2, indexed [quarter of the channels][row]. The array uses
// the memory of Aqk until Aqk is written.
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

// A gate's log2 decay is gate_end(gate_begin(f, x)) times f.top, or times f.times for a
// raw gate. In a sequence and head without a deep step, 2^u of softplus is finite.
template <int form>
static __device__ __forceinline__ float gate_begin(const struct gate_constants &f,
                                                   float x)
{
    return form == KCP_GATE_RAW ? x : ex2_approx(fmaf(f.times, x, f.plus));
}

template <int form>
static __device__ __forceinline__ float gate_end(float x)
{
    if (form == KCP_GATE_RAW) return x;
    return form == KCP_GATE_BOUNDED ? rcp_approx(1.0f + x) : log2_1p(x);
}

// Replaces q, k and g of a step by scaled rows qf, kf and kb (storage.cuh). `ragged`:
// the step has fewer than 32 rows. `sum` receives the sum of log2 decays over this
// half's 16 rows.
template <int form, int ragged>
static __device__ __forceinline__ void gate_step(const struct gate_place &w, int rows,
                                                 struct step_stage<1> &s, float *sum)
{
    if (ragged) zero_gate_rows(s, w.half, w.quarter, rows);
    const uint32_t base = smem_addr(s.rows[w.quarter / 2]) + w.first;
    const uint32_t group[2] = { base + w.far * 512, base - w.far * 512 };
    #define ROW_AT(r) ((group[(r) / 4] ^ (r) << 4) + (r) * 128)
    float F[8][2];
    uint32_t g[8];
    #pragma unroll
    for (int r = 0; r < 8; r++) g[r] = word_at(ROW_AT(r) + ROW_G * STEP_TILE);
    add_q_squares(s, w.half, w.quarter);
    compiler_fence();
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        F[r][0] = gate_begin<form>(w.f[0], bf16x2_low(g[r]));
        F[r][1] = gate_begin<form>(w.f[1], bf16x2_high(g[r]));
    }
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        const int past = ragged && w.half * 16 + w.far * 8 + (r ^ w.far * 4) >= rows;
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const float decay = past ? 0.0f : gate_end<form>(F[r][j]);
            const float top = form == KCP_GATE_RAW ? w.f[0].times : w.f[0].top;
            F[r][j] = r % 4 ? fmaf(top, decay, F[r - 1][j]) : top * decay;
        }
    }
    float before[2][2], all[2];
    #pragma unroll
    for (int j = 0; j < 2; j++) {
        const float own = F[3][j] + F[7][j], other = __shfl_xor_sync(~0u, own, 16);
        all[j] = own + other;
        const float begin = w.half ? 0.0f : -all[j];
        before[0][j] = w.far ? begin + other + F[7][j] : begin;
        before[1][j] = w.far ? begin + other : begin + F[3][j];
    }
    if (!w.far) *(float2 *)sum = make_float2(all[0], all[1]);
    #pragma unroll
    for (int rr = 0; rr < 8; rr += 4) {
        uint32_t q[4], k[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            q[i] = word_at(ROW_AT(rr + i) + ROW_Q * STEP_TILE);
            k[i] = word_at(ROW_AT(rr + i) + ROW_K * STEP_TILE);
        }
        //> one-gate
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                F[rr + i][j] = ex2_approx(F[rr + i][j] + before[rr / 4][j]);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t at = ROW_AT(rr + i);
            const float F0 = F[rr + i][0], F1 = F[rr + i][1];
            const float k0 = bf16x2_low(k[i]), k1 = bf16x2_high(k[i]);
            put_word(at + ROW_Q * STEP_TILE,
                     pack_bf16x2(bf16x2_low(q[i]) * F0, bf16x2_high(q[i]) * F1));
            put_word(at + ROW_K * STEP_TILE, pack_bf16x2(k0 * F0, k1 * F1));
            put_word(at + ROW_G * STEP_TILE,
                     pack_bf16x2(k0 * rcp_approx(F0), k1 * rcp_approx(F1)));
        }
        //< one-gate
    }
    #undef ROW_AT
}

template <int form, int ragged>
static __device__ __forceinline__ void gate_one_step(const struct gate_place &w,
                                                     int rows,
                                                     struct head_storage<1> &smem,
                                                     struct step_position at,
                                                     float *sums)
{
    mbarrier_wait(&smem.raw[at.stage], at.phase);
    __syncwarp();
    gate_step<form, ragged>(w, rows, smem.stage[at.stage], sums + at.stage * 128);
    fence_proxy_async();
    warp_arrive(&smem.gated[at.stage]);
}

template <int form>
static __device__ __forceinline__ void gate_warp(const struct head_params &x,
                                                 const struct head_walk &w,
                                                 struct head_storage<1> &smem, int half,
                                                 int quarter)
{
    const struct gate_place place = gate_place_of<form>(x, w.n, half, quarter);
    float *const sums = (half ? smem.carried[0] : smem.decay[0]) + quarter * 32
                        + threadIdx.x % 16 * 2;
    struct step_position at = {};
    int left = w.len;
    #pragma unroll 1
    for (; left >= STEP_ROWS; left -= STEP_ROWS, at.advance(1))
        gate_one_step<form, 0>(place, left, smem, at, sums);
    if (left > 0) gate_one_step<form, 1>(place, left, smem, at, sums);
}

#endif
