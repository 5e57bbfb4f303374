// factors.cuh -- the forward in one kernel: warps that make a step's factors.
// Book: chapter 18, "Code: kernels".  Checked by: tests/08_forward/checks.c.
// Next: step_scan.cuh.
#ifndef KCP_FORWARD_ONE_FACTORS_CUH
#define KCP_FORWARD_ONE_FACTORS_CUH

#include "storage.cuh"

// ---- gate warps (KDA)
//
// A warp has 16 rows and 32 channels of every step, and needs no other warp. A lane has
// 8 rows of 2 channels: lanes 0 to 15 the first 8 rows, lanes 16 to 31 the last, in
// groups of 4 rows whose order is reversed there, so that the halves of the warp never
// meet in a bank. Half 0 is the rows up to the anchor, whose sums begin at -a.
struct gate_place {
    int half, quarter, far, first;       // first: byte of the lane's first row
    struct gate_constants f[2];
};

static __device__ __forceinline__ struct gate_place gate_place_of(
    const struct head_params &x, int n, int half, int quarter)
{
    const int lane = threadIdx.x % 32, far = lane / 16, column = lane % 16;
    const int channel = quarter * 32 + column * 2;
    const int piece = (quarter % 2 * 4 + column / 4) ^ far * 4;
    const int first = half * 2048 + far * 1024 + (piece << 4) + column % 4 * 4;
    return { half, quarter, far, first,
             { gate_constants_of<KCP_GATE_BOUNDED>(x.f.a, n, channel),
               gate_constants_of<KCP_GATE_BOUNDED>(x.f.a, n, channel + 1) } };
}

// Rows past the stretch's end become 0: what is there may be another sequence's.
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

// |q|^2 of rows, a quarter of the channels each: where the last rows of Aqk will be.
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

// ragged: the step has fewer than 32 rows. sum: where this half's sum of decays goes.
template <int ragged>
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
    for (int r = 0; r < 8; r++) g[r] = ld_shared_b32(ROW_AT(r) + ROW_G * STEP_TILE);
    add_q_squares(s, w.half, w.quarter);
    compiler_fence();
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        F[r][0] = ex2_approx(fmaf(w.f[0].times, bf16x2_low(g[r]), w.f[0].plus));
        F[r][1] = ex2_approx(fmaf(w.f[1].times, bf16x2_high(g[r]), w.f[1].plus));
    }
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        const int past = ragged && w.half * 16 + w.far * 8 + (r ^ w.far * 4) >= rows;
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const float sigmoid = past ? 0.0f : rcp_approx(1.0f + F[r][j]);
            F[r][j] = r % 4 ? fmaf(w.f[0].top, sigmoid, F[r - 1][j])
                            : w.f[0].top * sigmoid;
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
            q[i] = ld_shared_b32(ROW_AT(rr + i) + ROW_Q * STEP_TILE);
            k[i] = ld_shared_b32(ROW_AT(rr + i) + ROW_K * STEP_TILE);
        }
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
            st_shared_b32(at + ROW_Q * STEP_TILE,
                          pack_bf16x2(bf16x2_low(q[i]) * F0, bf16x2_high(q[i]) * F1));
            st_shared_b32(at + ROW_K * STEP_TILE, pack_bf16x2(k0 * F0, k1 * F1));
            st_shared_b32(at + ROW_G * STEP_TILE,
                          pack_bf16x2(k0 * rcp_approx(F0), k1 * rcp_approx(F1)));
        }
    }
    #undef ROW_AT
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

// ---- scores of a step: a warp has its A beta, another one its Aqk

// Byte of row i, columns 8 piece .. 8 piece + 7 of a triangle [32,32].
static __device__ __forceinline__ int step_triangle_offset(int i, int piece)
{
    return i * 64 + ((piece ^ (i >> 1 & 3)) << 4);
}

// 32 rows of X against 32 rows of Y (bytes of their tiles in a stage): the 16x16 blocks
// (0,0), (1,0), (1,1). squares: |x|^2 too, the diagonals of d[4].
template <int kda, int squares>
static __device__ __forceinline__ void step_scores(const struct step_stage<kda> &s,
                                                   int X, int Y, float (*y)[2][4],
                                                   float (*d)[4])
{
    const int lane = lane_id();
    const int a_at = X + swizzle128_offset(lane % 16, lane / 16);
    const int b_at = Y + swizzle128_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        const unsigned char *from = s.rows[0][0] + i / 4 * head_shape<kda>::HALF;
        uint32_t a[2][4], b[2][4];
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            ldmatrix_x4(a[r], (const bf16 *)(from + (a_at ^ i % 4 << 5) + r * 2048));
            ldmatrix_x4(b[r], (const bf16 *)(from + (b_at ^ i % 4 << 5) + r * 2048));
        }
        #pragma unroll
        for (int t = 0; t < 2; t++) {
            mma_m16n8k16(y[0][t], a[0], b[0][2 * t], b[0][2 * t + 1]);
            mma_m16n8k16(y[1][t], a[1], b[0][2 * t], b[0][2 * t + 1]);
            mma_m16n8k16(y[2][t], a[1], b[1][2 * t], b[1][2 * t + 1]);
        }
        #pragma unroll
        for (int r = 0; r < 2 && squares; r++) {
            mma_m16n8k16(d[2 * r], a[r], a[r][0], a[r][2]);
            mma_m16n8k16(d[2 * r + 1], a[r], a[r][1], a[r][3]);
        }
    }
}

// This lane's row of a tensor [T,HV]; 0 past the end.
static __device__ __forceinline__ bf16 row_value(const struct head_params &x,
                                                 const struct head_walk &w,
                                                 const void *of, int row)
{
    const bf16 *p = (const bf16 *)of + (w.begin + (int64_t)row) * x.f.a.HV + w.n;
    return row < w.len ? *p : (bf16)0.0f;
}

// GDN: a lane has a row, and the sum G of log2 decays up to it.
static __device__ __forceinline__ float decay_to_row(struct gate_constants f, float raw,
                                                     int there)
{
    const int lane = threadIdx.x % 32;
    float G = there ? f.top * rcp_approx(1.0f + ex2_approx(fmaf(f.times, raw, f.plus)))
                    : 0.0f;
    #pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const float u = __shfl_up_sync(~0u, G, o);
        if (lane >= o) G += u;
    }
    return G;
}

// ---- A beta: (I + L)^-1 by 8x8, 16x16 and 32x32 blocks, as in chunk_prepare.cuh
//
// The two 16x16 blocks on the diagonal lie in fp32 where A beta will: row i of block b
// at (i ^ b) 64 bytes, in swizzled pieces of 16 bytes.
static __device__ __forceinline__ int block16_at(int b, int i, int piece)
{
    return b * 1024 + (i ^ b) * 64 + ((piece ^ (i >> 1 & 3)) << 4);
}

static __device__ __forceinline__ float block16_element(const unsigned char *Ab, int b,
                                                        int i, int j)
{
    return *(const float *)(Ab + block16_at(b, i, j / 4) + j % 4 * 4);
}

// d += x y^T, 16x16 blocks in registers.
static __device__ __forceinline__ void mma_split_registers(
    float (*d)[4], const struct split_operand &x, const struct split_operand &y)
{
    #pragma unroll
    for (int t = 0; t < 2; t++) {
        mma_m16n8k16(d[t], x.top, y.top[t], y.top[t + 2]);
        mma_m16n8k16(d[t], x.top, y.rest[t], y.rest[t + 2]);
        mma_m16n8k16(d[t], x.rest, y.top[t], y.top[t + 2]);
    }
}

static __device__ __forceinline__ void mma_split_pair(float *d,
                                                      const struct split_operand &x,
                                                      const struct split_operand &y,
                                                      int at)
{
    mma_m16n8k16(d, x.top, y.top[at], y.top[at + 1]);
    mma_m16n8k16(d, x.top, y.rest[at], y.rest[at + 1]);
    mma_m16n8k16(d, x.rest, y.top[at], y.top[at + 1]);
}

static __device__ __forceinline__ void set_split_pair(struct split_operand &p, int i,
                                                      float low, float high)
{
    p.top[i] = pack_bf16x2(low, high);
    unpack_residual(p.top[i], low, high);
    p.rest[i] = pack_bf16x2(low, high);
}

// Scores times their factors: L_10 stays in registers, L_00 and L_11 go to memory.
static __device__ __forceinline__ struct split_operand scores_to_blocks(
    unsigned char *Ab, float (*y)[2][4], const float *rows, const float *columns)
{
    const int lane = lane_id(), g = lane / 4, e = lane % 4 * 2;
    float column[4][2], row[4];
    #pragma unroll
    for (int t = 0; t < 4; t++) {
        const float2 f = *(const float2 *)&columns[8 * t + e];
        column[t][0] = f.x;
        column[t][1] = f.y;
        row[t] = rows[8 * t + g];
    }
    #pragma unroll
    for (int B = 0; B < 3; B++)
        #pragma unroll
        for (int j = 0; j < 8; j++)
            y[B][j / 4][j % 4] *= row[(B ? 2 : 0) + j % 4 / 2]
                                  * column[(B == 2 ? 2 : 0) + j / 4][j % 2];
    #pragma unroll
    for (int b = 0; b < 2; b++)
        #pragma unroll
        for (int h = 0; h < 4; h++)
            *(float2 *)(Ab + block16_at(b, g + h % 2 * 8, h / 2 * 2 + e / 4)
                        + e % 4 * 4) =
                make_float2(y[2 * b][h / 2][h % 2 * 2], y[2 * b][h / 2][h % 2 * 2 + 1]);
    return split_accumulator(y[1]);
}

static __device__ __forceinline__ float component(const float4 &l, int i)
{
    if (i == 0) return l.x;
    if (i == 1) return l.y;
    return i == 2 ? l.z : l.w;
}

// Inverses of the four 8x8 blocks on the diagonal, in their place: a lane has a column.
static __device__ __forceinline__ void invert_blocks8(unsigned char *Ab)
{
    const int lane = lane_id(), b = lane / 16, H = lane / 8 % 2, j = lane % 8;
    const int other = H * 32;            // pieces 2 and 3, where the block's begin
    const unsigned char *row[2] = { Ab + b * 1088 + H * 512, Ab + b * 960 + H * 512 };
    float x[8];
    float4 l[8];
    #pragma unroll
    for (int i = 0; i < 8; i++) x[i] = i == j;
    #pragma unroll
    for (int p = 0; p < 8; p += 4) {
        #pragma unroll
        for (int i = p + 1; i < 8; i++) {
            const int piece = p / 4 ^ (i >> 1 & 3);
            l[i] = *(const float4 *)(row[i % 2] + (piece & 2 ? -other : other) + i * 64
                                     + (piece << 4));
        }
        #pragma unroll
        for (int m = p; m < p + 4; m++)
            #pragma unroll
            for (int i = m + 1; i < 8; i++) x[i] -= component(l[i], m % 4) * x[m];
    }
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < 8; i++)
        *(float *)(Ab + block16_at(b, 8 * H + i, 2 * H + j / 4) + j % 4 * 4) = x[i];
    __syncwarp();
}

// X_10 = -X_11 L_10 X_00 of 8x8 blocks, for both 16x16 blocks at once, which come to
// registers: a[b], and the first one's transpose as an operand.
static __device__ __forceinline__ struct split_operand join_blocks8(
    const unsigned char *Ab, float (*a)[2][4])
{
    const int lane = lane_id(), g = lane / 4, e = lane % 4 * 2;
    struct split_operand x, y, T;
    float c[4] = {}, r[4] = {};
    #pragma unroll
    for (int b = 0; b < 2; b++) {
        const float2 first =
            *(const float2 *)(Ab + block16_at(b, g, e / 4) + e % 4 * 4);
        const float2 last =
            *(const float2 *)(Ab + block16_at(b, 8 + g, 2 + e / 4) + e % 4 * 4);
        a[b][0][0] = first.x;
        a[b][0][1] = first.y;
        a[b][1][0] = a[b][1][1] = 0.0f;
        a[b][1][2] = last.x;
        a[b][1][3] = last.y;
        set_split_pair(x, 3 * b, last.x, last.y);
        set_split_pair(y, b, block16_element(Ab, b, 8 + e, g),
                       block16_element(Ab, b, 9 + e, g));
        set_split_pair(y, 2 + b, block16_element(Ab, b, e, g),
                       block16_element(Ab, b, e + 1, g));
    }
    x.top[1] = x.top[2] = x.rest[1] = x.rest[2] = 0;
    set_split_pair(T, 3, block16_element(Ab, 0, 8 + e, 8 + g),
                   block16_element(Ab, 0, 9 + e, 8 + g));
    mma_split_pair(c, x, y, 0);
    set_split_pair(x, 0, c[0], c[1]);
    set_split_pair(x, 3, c[2], c[3]);
    mma_split_pair(r, x, y, 2);
    #pragma unroll
    for (int b = 0; b < 2; b++) {
        a[b][0][2] = -r[2 * b];
        a[b][0][3] = -r[2 * b + 1];
    }
    set_split_pair(T, 2, a[0][0][2], a[0][0][3]);
    T.top[2] = movmatrix_trans(T.top[2]);
    T.rest[2] = movmatrix_trans(T.rest[2]);
    T.top[0] = y.top[2];
    T.rest[0] = y.rest[2];
    T.top[1] = T.rest[1] = 0;
    return T;
}

// diag(norm) A diag(beta) to its place. a: the blocks on the diagonal; u: -A_10^T.
static __device__ __forceinline__ void store_step_inverse(unsigned char *Ab,
                                                          float (*a)[2][4],
                                                          float (*u)[4],
                                                          const float *norm,
                                                          const float *beta)
{
    const int lane = lane_id(), g = lane / 4, e = lane % 4 * 2;
    float row[4];
    #pragma unroll
    for (int t = 0; t < 4; t++) row[t] = norm[8 * t + g];
    #pragma unroll
    for (int b = 0; b < 2; b++)
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const float2 column = *(const float2 *)&beta[b * 16 + h / 2 * 8 + e];
            const float f = row[2 * b + h % 2], *x = &a[b][h / 2][h % 2 * 2];
            *(uint32_t *)(Ab + step_triangle_offset(b * 16 + g + h % 2 * 8,
                                                    2 * b + h / 2) + e * 2) =
                pack_bf16x2(x[0] * column.x * f, x[1] * column.y * f);
        }
    const float column[2] = { beta[g], beta[g + 8] };
    #pragma unroll
    for (int h = 0; h < 4; h++) {        // rows 16 + 8 (h / 2) .., columns 8 (h % 2) ..
        const float *x = &u[h / 2][h % 2 * 2], f = row[2 + h / 2];
        const uint32_t pair = movmatrix_trans(
            pack_bf16x2(-column[h % 2] * x[0], -column[h % 2] * x[1]));
        *(uint32_t *)(Ab + step_triangle_offset(16 + 8 * (h / 2) + g, h % 2) + e * 2) =
            pack_bf16x2(f * bf16x2_low(pair), f * bf16x2_high(pair));
    }
    *(uint4 *)(Ab + step_triangle_offset(lane / 2, 2 + lane % 2)) =
        make_uint4(0, 0, 0, 0);
}

// Warp `warp` of two has every second step.
template <int kda>
static __device__ __forceinline__ void inverse_warp(const struct head_params &x,
                                                    const struct head_walk &w,
                                                    struct head_storage<kda> &smem,
                                                    int warp)
{
    static_assert(STEP_STAGES % INVERSE_WARPS == 0, "every phase of a barrier");
    const int lane = threadIdx.x % 32, l2norm = x.f.a.l2norm;
    struct gate_constants f = {};
    if (!kda) f = gate_constants_of<KCP_GATE_BOUNDED>(x.f.a, w.n, 0);
    int row = warp * STEP_ROWS + lane;
    bf16 raw_beta = row_value(x, w, x.f.a.beta_raw, row), raw_gate = {};
    if (!kda) raw_gate = row_value(x, w, x.f.a.g_raw, row);
    float *const norm = smem.k_norm[warp], *const beta = smem.beta[warp];
    struct step_position at = { warp, 0 };
    #pragma unroll 1
    for (int c = warp; c < w.steps; c += INVERSE_WARPS, at.advance(INVERSE_WARPS)) {
        const int st = at.stage, there = row < w.len;
        struct step_stage<kda> &s = smem.stage[st];
        const float b = there ? beta_from_raw(x.f, (float)raw_beta) : 0.0f;
        const float gate = (float)raw_gate;
        row += INVERSE_WARPS * STEP_ROWS;
        raw_beta = row_value(x, w, x.f.a.beta_raw, row);
        if (!kda) raw_gate = row_value(x, w, x.f.a.g_raw, row);
        float to_row = 1.0f, from_row = 1.0f, to_state = 1.0f;
        if (!kda) {
            const float G = decay_to_row(f, gate, there);
            const float anchor = __shfl_sync(~0u, G, 15);
            to_row = ex2_approx(G - anchor);
            from_row = ex2_approx(anchor - G);
            to_state = ex2_approx(G);
        }
        mbarrier_wait(kda ? &smem.gated[st] : &smem.raw[st], at.phase);
        if (!kda && (c + 1) * STEP_ROWS > w.len)   // rows past the end are 0 from then
            mbarrier_wait(&smem.decayed[st], at.phase);
        __syncwarp();
        float y[3][2][4] = {};
        step_scores<kda, 0>(s, ROW_K * STEP_TILE, head_shape<kda>::KB, y, NULL);
        beta[lane] = b;
        const int g = lane / 4;
        if (lane % 4 == g / 2)           // |k|^2 is the diagonal of the scores
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = &y[i / 2 * 2][i % 2][i % 2 * 2];
                norm[8 * i + g] = rsqrtf((g % 2 ? pair[1] : pair[0]) + 1e-6f);
            }
        __syncwarp();
        const float k_norm = l2norm ? norm[lane] : 1.0f;
        norm[lane] = k_norm;
        smem.k_factor[st][lane] = k_norm * to_state;
        smem.row[warp][lane] = b * k_norm * to_row;
        smem.column[warp][lane] = k_norm * from_row;
        __syncwarp();
        float a[2][2][4], z[2][4] = {}, u[2][4] = {};
        const struct split_operand L10 =
            scores_to_blocks(s.Ab, y, smem.row[warp], smem.column[warp]);
        __syncwarp();
        invert_blocks8(s.Ab);
        mma_split_registers(z, join_blocks8(s.Ab, a), L10);
        mma_split_registers(u, split_accumulator(z), split_accumulator(a[1]));
        __syncwarp();
        store_step_inverse(s.Ab, a, u, norm, beta);
        fence_proxy_async();
        warp_arrive(&smem.inverted[st]);
        if (kda && x.records) {          // this warp alone writes Ab of the stage
            struct step_record *to = kept_record(x, w, c);
            keep_triangle(to->Ab, s.Ab);
            to->rstd_k[lane] = k_norm;
            to->beta[lane] = b;
        }
    }
}

// ---- Aqk, and the decay of the state

// tril of the scores, times factors of rows and, where columns is not NULL, columns.
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
                    step_triangle_offset((B ? 16 : 0) + i, (B == 2 ? 2 : 0) + t);
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

// KDA: the factor of the state from the step before, 2^(E - a + a'), may be below what
// fp32 holds although its two parts are not. Then the parts are written, with a minus
// sign in all channels, which tells the scan. carry: E - a of the step before, of this
// lane's four channels.
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

// KDA: the warp that loads, and writes factors of the state and of the rows of q. It
// never waits for gate warps while a stage is free to be loaded.
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
        if (x.records) kept_record(x, w, c)->q_factor[lane] = factor;
        state_decay(smem, st, c + 1 == w.steps, carry);
        warp_arrive(&smem.decayed[st]);
        c++;
        at.advance(1);
    }
}

// KDA: Aqk of every step.
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
        if (x.records) keep_triangle(kept_record(x, w, c)->Aqk, s.Aqk);
        warp_arrive(&smem.scored[st]);
    }
}

// GDN: rows past the end become 0, in both halves of q and k.
static __device__ __forceinline__ void zero_step_rows(struct step_stage<0> &s, int rows)
{
    for (int i = rows * 8 + (int)threadIdx.x % 32; i < STEP_ROWS * 8; i += 32)
        for (int tile = 0; tile < 4; tile++)
            *(uint4 *)(s.rows[tile / 2][tile % 2] + i * 16) = make_uint4(0, 0, 0, 0);
}

// GDN: warp `warp` of two has every second step.
static __device__ __forceinline__ void query_warp(const struct head_params &x,
                                                  const struct head_walk &w,
                                                  struct head_storage<0> &smem,
                                                  int warp)
{
    enum { WARPS = head_shape<0>::QUERY_WARPS };
    static_assert(STEP_STAGES % WARPS == 0, "every phase of a barrier");
    const int lane = threadIdx.x % 32;
    const float scale = (float)x.f.a.scale;
    const struct gate_constants f =
        gate_constants_of<KCP_GATE_BOUNDED>(x.f.a, w.n, 0);
    float *const rows = smem.row[INVERSE_WARPS + warp];
    float *const columns = smem.column[INVERSE_WARPS + warp];
    int row = warp * STEP_ROWS + lane;
    bf16 raw_gate = row_value(x, w, x.f.a.g_raw, row);
    struct step_position at = { warp, 0 };
    #pragma unroll 1
    for (int c = warp; c < w.steps; c += WARPS, at.advance(WARPS)) {
        const int st = at.stage, g = lane / 4;
        struct step_stage<0> &s = smem.stage[st];
        const float G = decay_to_row(f, (float)raw_gate, row < w.len);
        const float anchor = __shfl_sync(~0u, G, 15), last = __shfl_sync(~0u, G, 31);
        row += WARPS * STEP_ROWS;
        raw_gate = row_value(x, w, x.f.a.g_raw, row);
        const float to_row = ex2_approx(G - anchor), from_row = ex2_approx(anchor - G);
        const float to_state = ex2_approx(G), to_end = ex2_approx(last - G);
        mbarrier_wait(&smem.raw[st], at.phase);    // so the stage's factors are free
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
        rows[lane] = norm * to_row;
        columns[lane] = from_row;
        __syncwarp();
        store_step_Aqk(s.Aqk, y, rows, columns);
        fence_proxy_async();
        warp_arrive(&smem.scored[st]);
    }
}

#endif
