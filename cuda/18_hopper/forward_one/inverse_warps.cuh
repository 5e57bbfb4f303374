// inverse_warps.cuh -- the forward in one kernel: warps that compute A beta of a step.
// Book: chapter 18b.
#ifndef KCP_FORWARD_ONE_INVERSE_WARPS_CUH
#define KCP_FORWARD_ONE_INVERSE_WARPS_CUH

#include "storage.cuh"

// ---- scores of a step: one warp computes A beta from scores of k, another warp Aqk

// Computes the 16x16 blocks (0,0), (1,0) and (1,1) of X Y^T in y[0] to y[2]. X and Y
// are byte offsets of tiles of 32 rows in a stage. If `squares` is set, also computes
// |x|^2 of each row x of X, on the diagonals of d[0] to d[3].
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

// Return the bits of g or beta at row `row` of the sequence, or 0 past the sequence's
// end.
static __device__ __forceinline__ uint32_t row_bits(const struct head_params &x,
                                                    const struct head_walk &w,
                                                    const void *of, int row,
                                                    enum kcp_type type)
{
    const int64_t at = (w.begin + (int64_t)row) * x.f.a.HV + w.n;
    return row < w.len ? load_bits(of, at, type) : 0;
}

// KDA reads beta as bf16, because a branch by the type makes its steps 3 % longer.
template <int kda>
static __device__ __forceinline__ enum kcp_type beta_type_of(
    const struct head_params &x)
{
    return kda ? KCP_TYPE_BF16 : x.f.a.beta_type;
}

template <int kda>
static __device__ __forceinline__ uint32_t row_beta(const struct head_params &x,
                                                    const struct head_walk &w, int row)
{
    return row_bits(x, w, x.f.a.beta_raw, row, beta_type_of<kda>(x));
}

static __device__ __forceinline__ uint32_t row_gate(const struct head_params &x,
                                                    const struct head_walk &w, int row)
{
    return row_bits(x, w, x.f.a.g_raw, row, x.f.a.g_type);
}

// GDN: returns the constants of a head's gate, of any form.
static __device__ __forceinline__ struct gate_constants head_gate_of(
    const struct kcp_forward &a, int n)
{
    if (a.gate == KCP_GATE_BOUNDED) return gate_constants_of<KCP_GATE_BOUNDED>(a, n, 0);
    return gate_constants_of<KCP_GATE_SOFTPLUS>(a, n, 0);
}

// GDN: returns G of this lane's row, the sum of log2 decays up to that row. Each log2
// decay is at least -200, because 2^-200 is 0 in fp32, and sums of such numbers stay
// accurate.
static __device__ __forceinline__ float decay_to_row(enum kcp_gate_form form,
                                                     struct gate_constants f, float raw,
                                                     int there)
{
    const int lane = threadIdx.x % 32;
    float G;
    if (form == KCP_GATE_BOUNDED)
        G = f.top * rcp_approx(1.0f + ex2_approx(fmaf(f.times, raw, f.plus)));
    else if (form == KCP_GATE_RAW)
        G = max_or_nan(log2_decay<KCP_GATE_RAW>(f, raw), -200.0f);
    else G = max_or_nan(log2_decay<KCP_GATE_SOFTPLUS>(f, raw), -200.0f);
    if (!there) G = 0.0f;
    #pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const float u = __shfl_up_sync(~0u, G, o);
        if (lane >= o) G += u;
    }
    return G;
}

// GDN: the factors of a step's rows and columns of scores, whose product is the decay
// from column j to row i, 2^(G_i - a) 2^(a - G_j) with a = G of row 15. In a deep step
// such a factor could overflow. Then factors are 1, and decay_scores multiplies each
// score.
struct step_decays { float to_row, from_row; int deep; };

static __device__ __forceinline__ struct step_decays step_decays_of(float G,
                                                                    float *sums)
{
    const float x = G - __shfl_sync(~0u, G, 15);
    if (!__any_sync(~0u, fabsf(x) > 116.0f))
        return { ex2_approx(x), ex2_approx(-x), 0 };
    sums[threadIdx.x % 32] = G;
    return { 1.0f, 1.0f, 1 };
}

// Multiplies the scores of the blocks (0,0), (1,0) and (1,1) by the decay from each
// column j to each row i, which is at most 1. Elements above the diagonal are not used.
static __device__ __forceinline__ void decay_scores(const float *sums, float (*y)[2][4])
{
    const int lane = lane_id(), g = lane / 4, e = lane % 4 * 2;
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < 24; i++) {
        const int B = i / 8, t = i / 4 % 2, row = (B ? 16 : 0) + i % 4 / 2 * 8 + g;
        const int column = (B == 2 ? 16 : 0) + 8 * t + e + i % 2;
        y[B][t][i % 4] *= ex2_approx(-fabsf(sums[row] - sums[column]));
    }
}

// ---- A beta: A = (I + L)^-1 [32,32], from inverses of 8x8, then of 16x16 blocks
//
// Before A beta is stored, `Ab` holds the two diagonal 16x16 blocks in fp32: row i of
// block b is at byte 1024 b + 64 (i ^ b), in swizzled pieces of 16 bytes.
static __device__ __forceinline__ int block16_at(int b, int i, int piece)
{
    return b * 1024 + (i ^ b) * 64 + ((piece ^ (i >> 1 & 3)) << 4);
}

static __device__ __forceinline__ float block16_element(const unsigned char *Ab, int b,
                                                        int i, int j)
{
    return *(const float *)(Ab + block16_at(b, i, j / 4) + j % 4 * 4);
}

// Computes d += x y^T for 16x16 blocks in registers.
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

// Multiplies the scores of k by factors per row and per column, which gives the 16x16
// blocks of L. Returns L_10 in registers, and stores L_00 and L_11 in shared memory.
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

// Replaces the four 8x8 blocks on the diagonal by their inverses. A lane computes one
// column of one inverse.
static __device__ __forceinline__ void invert_blocks8(unsigned char *Ab)
{
    const int lane = lane_id(), b = lane / 16, H = lane / 8 % 2, j = lane % 8;
    const int other = H * 32;            // if H = 1, the block starts at piece 2
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

// Computes the 8x8 block (1,0) of the inverse X of each 16x16 block: X_10 = -X_11 L_10
// X_00. Loads the inverse of block b into a[b]. Returns a[0]^T as an operand.
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

// Stores diag(norm) A diag(beta). `a` has A's diagonal blocks, and `u` is -A_10^T.
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
            *(uint32_t *)(Ab + triangle64_offset(b * 16 + g + h % 2 * 8,
                                                    2 * b + h / 2) + e * 2) =
                pack_bf16x2(x[0] * column.x * f, x[1] * column.y * f);
        }
    const float column[2] = { beta[g], beta[g + 8] };
    #pragma unroll
    for (int h = 0; h < 4; h++) {        // rows 16 + 8 (h / 2) .., columns 8 (h % 2) ..
        const float *x = &u[h / 2][h % 2 * 2], f = row[2 + h / 2];
        const uint32_t pair = movmatrix_trans(
            pack_bf16x2(-column[h % 2] * x[0], -column[h % 2] * x[1]));
        *(uint32_t *)(Ab + triangle64_offset(16 + 8 * (h / 2) + g, h % 2) + e * 2) =
            pack_bf16x2(f * bf16x2_low(pair), f * bf16x2_high(pair));
    }
    *(uint4 *)(Ab + triangle64_offset(lane / 2, 2 + lane % 2)) =
        make_uint4(0, 0, 0, 0);
}

// Computes A beta of steps `warp`, `warp` + 2, ...
template <int kda, int keep, int by_head>
static __device__ __forceinline__ void inverse_warp(const struct head_params &x,
                                                    const struct head_walk &w,
                                                    struct head_storage<kda> &smem,
                                                    int warp)
{
    static_assert(STEP_STAGES % INVERSE_WARPS == 0, "every phase of a barrier");
    const int lane = threadIdx.x % 32, l2norm = x.f.a.l2norm;
    struct gate_constants f = {};
    if (!kda) f = head_gate_of(x.f.a, w.n);
    int row = warp * STEP_ROWS + lane;
    uint32_t raw_beta = row_beta<kda>(x, w, row), raw_gate = 0;
    if (!kda) raw_gate = row_gate(x, w, row);
    float *const norm = smem.k_norm[warp], *const beta = smem.beta[warp];
    struct step_position at = { warp, 0 };
    #pragma unroll 1
    for (int c = warp; c < w.steps; c += INVERSE_WARPS, at.advance(INVERSE_WARPS)) {
        const int st = at.stage, there = row < w.len;
        struct step_stage<kda> &s = smem.stage[st];
        const float raw = float_of_bits(raw_beta, beta_type_of<kda>(x));
        const float b = there ? beta_from_raw(x.f, raw) : 0.0f;
        const float gate = float_of_bits(raw_gate, x.f.a.g_type);
        row += INVERSE_WARPS * STEP_ROWS;
        raw_beta = row_beta<kda>(x, w, row);
        if (!kda) raw_gate = row_gate(x, w, row);
        struct step_decays decays = { 1.0f, 1.0f, 0 };
        float to_state = 1.0f;
        if (!kda) {
            const float G = decay_to_row(x.f.a.gate, f, gate, there);
            decays = step_decays_of(G, smem.carried[warp]);
            to_state = ex2_approx(G);
        }
        mbarrier_wait(kda ? &smem.gated[st] : &smem.raw[st], at.phase);
        if (!kda && (c + 1) * STEP_ROWS > w.len)   // until rows past the end are 0
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
        smem.row[warp][lane] = b * k_norm * decays.to_row;
        smem.column[warp][lane] = k_norm * decays.from_row;
        if (!kda && __builtin_expect(decays.deep, 0))
            decay_scores(smem.carried[warp], y);
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
        if (kda && keeps_records<keep, by_head>(x)) {   // only this warp wrote Ab
            struct step_record *to = kept_record<by_head>(x, w, c);
            keep_triangle(to->Ab, s.Ab);
            to->rstd_k[lane] = k_norm;
            to->beta[lane] = b;
        }
    }
}

#endif
