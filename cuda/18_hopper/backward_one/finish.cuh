// finish.cuh -- the backward in one kernel: gradients of a step except dv and dbeta.
// Book: chapter 18c, "One kernel".
#ifndef KCP_BACKWARD_ONE_FINISH_CUH
#define KCP_BACKWARD_ONE_FINISH_CUH

#include "chain.cuh"

static __device__ __forceinline__ float pair_half(uint32_t x, int j)
{
    return j ? bf16x2_high(x) : bf16x2_low(x);
}

// Sums y[0] (for q) and y[1] (for k) over a warp's 16 channels. A lane passes the sums
// over its 2 channels for 8 tokens. Lane l returns the sums for q (l < 16) or k (l >=
// 16) of two tokens, t = 8 (l / 4 % 4) + 2 (l % 4) and t + 1.
static __device__ __forceinline__ float2 sum_over_quads(float (*y)[8])
{
    const int lane = threadIdx.x % 32;
    float z[8], u[4];
    const int k = lane / 16, t2 = lane / 8 % 2, t1 = lane / 4 % 2;
    #pragma unroll
    for (int i = 0; i < 8; i++)
        z[i] = (k ? y[1][i] : y[0][i])
               + __shfl_xor_sync(~0u, k ? y[0][i] : y[1][i], 16);
    #pragma unroll
    for (int i = 0; i < 4; i++)
        u[i] = (t2 ? z[4 + i] : z[i]) + __shfl_xor_sync(~0u, t2 ? z[i] : z[4 + i], 8);
    float2 sum;
    sum.x = (t1 ? u[2] : u[0]) + __shfl_xor_sync(~0u, t1 ? u[0] : u[2], 4);
    sum.y = (t1 ? u[3] : u[1]) + __shfl_xor_sync(~0u, t1 ? u[1] : u[3], 4);
    return sum;
}

// Sets each row of dG to `last` plus the sum of dG over this row and all later rows.
static __device__ __forceinline__ void sum_from_step_end(float (*dG)[4], float *last)
{
    const int q4 = threadIdx.x % 4;
    #pragma unroll
    for (int t = 3; t >= 0; t--)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float *y = dG[t] + 2 * h;
            const float own = y[0] + y[1], x1 = __shfl_xor_sync(~0u, own, 1);
            const float pair = own + x1, x2 = __shfl_xor_sync(~0u, pair, 2);
            y[1] += last[h] + (q4 & 1 ? 0.0f : x1) + (q4 & 2 ? 0.0f : x2);
            y[0] += y[1];
            last[h] += pair + x2;
        }
}

// Stores dx, the gradient of the raw gate x. Adds the terms of ddt_bias and dA_log to
// `sums`, without the factors that all tokens of a head share. With u of step_gate:
//     bounded   dx = dg lower_bound exp(A_log) p (1 - p), p = 1 / (1 + 2^u)
//     softplus  dx = -dg exp(A_log) (1 - p)
struct parameter_sums { float dA[2], ddt[2]; };

// Returns the factor of ddt_bias's terms, which is also that of dx.
template <int form>
static __device__ __forceinline__ float slope_of(const struct backward_one_params &x,
                                                 const struct step_gate &gate)
{
    if (form == KCP_GATE_RAW) return 1.0f;
    if (form == KCP_GATE_SOFTPLUS) return gate.top;
    return x.lower_bound * -gate.times * 0.693147180559945309f;
}

template <int form, int whole>
static __device__ __forceinline__ void put_gate_gradient(
    const struct backward_one_params &x, const struct backward_walk &w,
    const struct step_gate &gate, int s, int f, const float (*dg)[4],
    struct parameter_sums &sums, struct backward_one_storage &m)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, e = lane % 4 * 2;
    const int channel = f * 64 + warp * 16 + lane / 4;
    const int len = w.begin + w.len - w.token(s);
    const int is_softplus = form == KCP_GATE_SOFTPLUS;
    const float slope = slope_of<form>(x, gate);
    const uint32_t tile = smem_addr(m.gated[(s + 2) % GATED].half[f].F)
                          + swizzle128_offset(lane % 8 + lane / 16 * 8,
                                              warp * 2 + lane / 8 % 2);
    const float plus[2] = { gate.times * m.dt_bias[channel],
                            gate.times * m.dt_bias[channel + 8] };
    bf16 *to = (bf16 *)x.a.dg_raw + ((int64_t)(w.token(s) + e) * x.a.HV + w.n) * 128
               + channel;
    const int64_t row = (int64_t)x.a.HV * 128;
    uint32_t raw[2][4];
    mbarrier_wait(&m.again[f], s);
    ldmatrix_trans_at(raw[0], tile);
    ldmatrix_trans_at(raw[1], tile + 2048);
    warp_arrive(&m.again_empty);
    #pragma unroll
    for (int c = 0; c < 2; c++) {
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 2; j++) {
                const int t = 2 * c + i / 2, h = i % 2;
                const float u = fmaf(gate.times, pair_half(raw[c][i], j), plus[h]);
                const float p = ex2_approx(-fabsf(u)), r = rcp_approx(1.0f + p);
                const float y = dg[t][2 * h + j];
                const float dx = is_softplus ? y * (u >= 0.0f ? r : p * r)
                                 : form == KCP_GATE_RAW ? y : y * (p * r) * r;
                const int there = whole || 8 * t + e + j < len;
                const float factor = is_softplus ? softplus_log2(u, p) : u;
                const float dA = fmaf(is_softplus ? y : dx, factor, sums.dA[h]);
                sums.dA[h] = there ? dA : sums.dA[h];
                sums.ddt[h] += there ? dx : 0.0f;
                if (there) to[(8 * t + j) * row + h * 8] = (bf16)(slope * dx);
            }
    }
}

// Stores one stretch's gradients of the head's parameters: dA_log (a sum over all
// channels) and ddt_bias of each channel. A stretch is a sequence.
template <int form>
static __device__ __forceinline__ void put_parameters(
    const struct backward_one_params &x, const struct backward_walk &w,
    const struct step_gate &gate, int f, struct parameter_sums &sums,
    struct backward_one_storage &m)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int channel = f * 64 + warp * 16 + lane / 4;
    const float ln2 = 0.693147180559945309f;
    const int softplus = form == KCP_GATE_SOFTPLUS;
    const float slope_A = softplus ? gate.top * ln2 : -x.lower_bound * ln2;
    const float slope = softplus ? gate.top : slope_A * gate.times;
    float *dA = (float *)m.triangles;    // all products are over
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        float A = sums.dA[h], dt = sums.ddt[h];
        A += __shfl_xor_sync(~0u, A, 1);
        A += __shfl_xor_sync(~0u, A, 2);
        dt += __shfl_xor_sync(~0u, dt, 1);
        dt += __shfl_xor_sync(~0u, dt, 2);
        if (lane % 4) continue;
        dA[channel + 8 * h] = A;
        if (x.ddt_rows)
            x.ddt_rows[((int64_t)w.row * x.a.HV + w.n) * 128 + channel + 8 * h] =
                slope * dt;
    }
    named_barrier_sync(1, 256);          // both warpgroups' sums are there
    if (f || warp) return;
    float A = dA[lane] + dA[lane + 32] + dA[lane + 64] + dA[lane + 96];
    #pragma unroll
    for (int b = 16; b; b /= 2) A += __shfl_xor_sync(~0u, A, b);
    if (lane == 0 && x.dA_rows) x.dA_rows[(int64_t)w.row * x.a.HV + w.n] = slope_A * A;
}

// Stores each warp's sums of q dq and k dk over its channels, as [warp][64]. A copy of
// the sums of all warps overwrites kb in each half of the stage. In these bytes, the
// results of norm_factors (64 per warp) follow the sums.
static __device__ __forceinline__ void put_dots(float2 sum, int f, int st,
                                                struct backward_one_storage &m)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int at = (f * 4 + warp) * 64 + lane / 16 * 32 + lane / 4 % 4 * 8
                   + lane % 4 * 2;
    #pragma unroll
    for (int h = 0; h < 2; h++)
        *(float2 *)((float *)m.gated[st].half[h].g + at) = sum;
    fence_proxy_async();                 // rows will be loaded there
    warp_arrive(&m.dots);
}

// Returns a factor n_q per token, followed by a factor n_k per token. To add the
// gradient through the norms, finish_warpgroup subtracts n_q qf / F from dq, and
// n_k F kb from dk. With l2norm, `norm_q` is 1 / scale^2 and `norm_k` is 1. Without
// l2norm, both are 0.
static __device__ __forceinline__ const float *norm_factors(
    float norm_q, float norm_k, int f, int s, struct backward_one_storage &m)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, st = s % GATED;
    float *const sums = (float *)m.gated[st].half[f].g;
    float *const to = sums + 512 + warp * 64;
    mbarrier_wait(&m.dots, s);
    float2 y = make_float2(0.0f, 0.0f);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        const float2 z = *(const float2 *)&sums[i * 64 + 2 * lane];
        y.x += z.x;
        y.y += z.y;
    }
    const int t = 2 * lane % ROWS, k = lane / 16;
    const struct token_factors &of = m.factors[s % FACTORS];
    const float2 r = *(const float2 *)&(k ? of.rstd_k : of.q_factor)[t];
    y.x *= k ? norm_k * r.x * r.x : norm_q * r.x;
    y.y *= k ? norm_k * r.y * r.y : norm_q * r.y;
    *(float2 *)&to[2 * lane] = y;
    __syncwarp();
    return to;
}

// Issues W = dSa w^T and D = (Sa dO, Sa dv), where Sa = 2^a S. `of_values` and `state`
// are addresses of descriptors. Meanwhile computes sum_v Sa dSa per channel in `last`.
static __device__ __forceinline__ void begin_state_products(
    int f, int s, int dS_offset, int state_offset, uint32_t of_values, uint32_t state,
    float (*W)[4], float (*D)[4], float *last, struct backward_one_storage &m)
{
    const int rs = s % VALUES, w_offset = offsetof(struct value_stage, w);
    uint32_t d[8][4];
    float M[2][4] = {};          // two sums, so that fewer products wait
    #pragma unroll
    for (int i = 0; i < 8; i++)
        ldmatrix_at(d[i],
                    smem_addr(m.dS) + i / 4 * 8192 + (dS_offset ^ i % 4 << 5));
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < 8; i++)
        wgmma_step_rs<1, 0>(W, d[i],
                            smem_desc_at(of_values, DESC_HIGH_CORES,
                                         DESC_LEAD_CORES, w_offset + i * 256), i);
    wgmma_commit();
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t p[4];
        ldmatrix_trans_at(p, smem_addr(m.state) + state_offset + i * 256);
        #pragma unroll
        for (int j = 0; j < 4; j++) p[j] = times_bf16x2(p[j], d[i][j]);
        mma_m16n8k16(M[i % 2], p, 0x3f803f80u, 0x3f803f80u);     // times ones
    }
    mbarrier_wait(&m.dv_full[rs], s / VALUES);
    __syncwarp();
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < 8; i++)
        wgmma_two_steps_ss<1, 0>(
            D, smem_desc_at(state, DESC_HIGH_CORES, DESC_LEAD_CORES,
                            f * 16384 + i * 256),
            smem_desc_at(of_values, DESC_HIGH_128, 1,
                         i / 4 * 2 * HALF_BYTES + i % 4 * 32), i);
    wgmma_commit();
    last[0] = M[0][0] + M[1][0];
    last[1] = M[0][2] + M[1][2];
}

// Adds kb . W of each channel, over the step's tokens, to `last`.
static __device__ __forceinline__ void add_kb_W(const uint32_t (*kb)[4],
                                                const float (*W)[4], float *last)
{
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        float y = 0.0f;
        #pragma unroll
        for (int t = 0; t < 4; t++) {
            const uint32_t k = kb[t / 2][t % 2 * 2 + h];
            y = fmaf(bf16x2_low(k), W[t][2 * h], y);
            y = fmaf(bf16x2_high(k), W[t][2 * h + 1], y);
        }
        y += __shfl_xor_sync(~0u, y, 1);
        y += __shfl_xor_sync(~0u, y, 2);
        last[h] += y;
    }
}

// Sums q dq and k dk over the warp's channels, for put_dots.
static __device__ __forceinline__ float2 sum_dots(
    const uint32_t (*qf)[4], const uint32_t (*kf)[4], const uint32_t (*kb)[4],
    const float (*W)[4], const float (*D)[4])
{
    float dots[2][8];
    #pragma unroll
    for (int t = 0; t < 4; t++)
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            float q_sum = 0.0f, k_sum = 0.0f;
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = 2 * h + j, in = t % 2 * 2 + h;
                q_sum = fmaf(pair_half(qf[t / 2][in], j), D[t][at], q_sum);
                k_sum = fmaf(pair_half(kb[t / 2][in], j), W[t][at], k_sum);
                k_sum = fmaf(-pair_half(kf[t / 2][in], j), D[4 + t][at], k_sum);
            }
            dots[0][2 * t + j] = q_sum;
            dots[1][2 * t + j] = k_sum;
        }
    return sum_over_quads(dots);
}

// Computes dG of the step's tokens. `last` belongs to the last token.
static __device__ __forceinline__ void make_dG(
    const uint32_t (*qf)[4], const uint32_t (*kf)[4], const uint32_t (*kb)[4],
    const float (*W)[4], const float (*D)[4], float *last, float (*dG)[4])
{
    //> one-dG
    #pragma unroll
    for (int t = 0; t < 4; t++)
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const int j = i % 2, in = t % 2 * 2 + i / 2;
            const float less = fmaf(pair_half(kf[t / 2][in], j), D[4 + t][i],
                                    pair_half(kb[t / 2][in], j) * W[t][i]);
            dG[t][i] = fmaf(pair_half(qf[t / 2][in], j), D[t][i], -less);
        }
    sum_from_step_end(dG, last);
    //< one-dG
}

// Stores the staged rows of a step that has fewer than 32 tokens.
static __device__ __forceinline__ void store_ragged(
    const struct backward_one_params &x, const struct backward_walk &w, int f, int t0,
    const struct gated_half &rows)
{
    const int64_t at = ((int64_t)t0 * x.a.HV + w.n) * 128 + f * 64;
    const int len = w.begin + w.len - t0;
    copy_swizzled_rows<ROWS>(x.dq + at, (int64_t)x.a.HV * 128, len,
                             (const bf16 *)rows.q);
    copy_swizzled_rows<ROWS>(x.dk + at, (int64_t)x.a.HV * 128, len,
                             (const bf16 *)rows.k);
}

// Adds the products with the triangles dA and dB at `triangles`.
static __device__ __forceinline__ void add_triangles(
    uint32_t triangles, const uint32_t (*qf)[4], const uint32_t (*kf)[4],
    const uint32_t (*kb)[4], float (*W)[4], float (*D)[4])
{
    //> one-triangles
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint64_t rows = smem_desc_at(triangles, DESC_HIGH_64, 1, i * 32);
        const uint64_t dA = smem_desc_at(triangles, DESC_HIGH_64, 1, i * 1024);
        wgmma_two_steps_rs(D, kb[i], rows);
        wgmma_step_rs<1, 0>(W, qf[i], dA, 1);
        wgmma_step_rs<1, 1>(W, kf[i], dA + (2048 >> 4), 1);
    }
    //< one-triangles
}

// Stores dv of a step that has fewer than 32 tokens.
static __device__ __forceinline__ void store_ragged_dv(
    const struct backward_one_params &x, const struct backward_walk &w, int f, int t0,
    const struct value_stage &values)
{
    copy_swizzled_rows<ROWS>(x.dv + ((int64_t)t0 * x.a.HV + w.n) * 128 + f * 64,
                             (int64_t)x.a.HV * 128,
                             w.begin + w.len - t0,
                             (const bf16 *)values.half[f].dv);
}

static __device__ __forceinline__ void load_rows(uint32_t tiles, uint32_t (*qf)[4],
                                                 uint32_t (*kf)[4])
{
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        ldmatrix_trans_at(qf[i], tiles + i * 2048);
        ldmatrix_trans_at(kf[i], tiles + HALF_BYTES + i * 2048);
    }
}

// Loads the factors of two pairs of tokens from `token` on.
static __device__ __forceinline__ void load_factors(
    const float *norm, const struct token_factors &of, int token, float2 *gq,
    float2 *gk, float2 *cq, float2 *ck)
{
    #pragma unroll
    for (int i = 0; i < 2; i++, token += 8) {
        gq[i] = *(const float2 *)&norm[token];
        gk[i] = *(const float2 *)&norm[ROWS + token];
        cq[i] = *(const float2 *)&of.q_factor[token];
        ck[i] = *(const float2 *)&of.rstd_k[token];
    }
}

// Computes the gradients of q and k from those of qf, kf and kb, for token j of a pair
// and one channel. F = 2^G; p: factors of the norms; n: factors of the rows.
static __device__ __forceinline__ void through_gate(
    int j, uint32_t F, uint32_t qf, uint32_t kb, float2 pq, float2 pk, float2 nq,
    float2 nk, float dQ, float dK, float dB, float &yq, float &yk)
{
    const float F1 = pair_half(F, j), B1 = rcp_approx(F1);
    const float g1 = j ? pq.y : pq.x, g2 = j ? pk.y : pk.x;
    const float dqf = (j ? nq.y : nq.x) * dQ;
    const float dkf = (j ? nk.y : nk.x) * dK;
    yq = fmaf(F1, dqf, -(g1 * B1) * pair_half(qf, j));
    yk = fmaf(B1, dB, -F1 * fmaf(g2, pair_half(kb, j), dkf));
}

// Computes all gradients except dv, dbeta and dh0, for the warpgroup's 64 channels.
template <int form>
static __device__ __forceinline__ void finish_warpgroup(
    const struct backward_one_params &x, const struct backward_walk &w, int f,
    struct backward_one_storage &m)
{
    const int lane = threadIdx.x % 32, e = lane % 4 * 2;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    const int row_offset = swizzle128_offset(lane % 8 + lane / 16 * 8,
                                          warp * 2 + lane / 8 % 2);
    const int dS_offset = f * 16384 + warp * 2048
                          + swizzle128_offset(lane % 16, lane / 16);
    const int state_offset = core_offset(f * 64 + warp * 16 + lane / 8 % 2 * 8,
                                     lane / 16 * 8 + lane % 8);
    const struct step_gate gate = step_gate_of<form>(x, w.n);
    const float norm_q = x.a.l2norm ? 1.0f / (x.scale * x.scale) : 0.0f;
    const float norm_k = x.a.l2norm ? 1.0f : 0.0f;
    struct parameter_sums sums = {};
    int st = 0;
    #pragma unroll 1
    for (int s = 0; s < w.steps; s++) {
        const int rs = s % VALUES, t0 = w.token(s);
        struct value_stage &values = m.values[rs];
        const uint32_t of_values = smem_addr(&values) >> 4;
        const uint32_t state = smem_addr(m.state) >> 4;
        const uint32_t triangles = smem_addr(m.triangles) >> 4;
        const int whole = w.whole(s);
        float W[4][4], D[8][4], last[2];

        // ---- W = dSa w^T, sum_v Sa dSa, then Sa dO and Sa dv, where Sa = 2^a S
        mbarrier_wait(&m.value_full[rs], s / VALUES);
        mbarrier_wait(&m.state_full, s);
        mbarrier_wait(&m.dS_full, s);
        __syncwarp();
        const uint32_t tiles = smem_addr(m.gated[st].half[f].q) + row_offset;
        uint32_t qf[2][4], kf[2][4], kb[2][4];
        begin_state_products(f, s, dS_offset, state_offset, of_values, state, W, D,
                             last, m);
        #pragma unroll
        for (int i = 0; i < 2; i++)
            ldmatrix_trans_at(kb[i], tiles + 2 * HALF_BYTES + i * 2048);
        wgmma_wait<1>();
        fence_operand<4>(W);
        warp_arrive(&m.dS_empty);
        add_kb_W(kb, W, last);
        load_rows(tiles, qf, kf);
        if (!whole) store_ragged_dv(x, w, f, t0, values);

        // ---- adds the products with the triangles
        mbarrier_wait(&m.triangles_full, s);
        __syncwarp();
        wgmma_wait<0>();
        fence_operand<8>(D);
        wgmma_fence();
        add_triangles(triangles, qf, kf, kb, W, D);
        wgmma_commit();
        mbarrier_wait(&m.dS_empty, s);   // kb has been read, so put_dots may write
        wgmma_wait<0>();
        fence_operand<8>(D);
        fence_operand<4>(W);

        // ---- sums of q dq and k dk over channels, and dG
        put_dots(sum_dots(qf, kf, kb, W, D), f, st, m);
        float dG[4][4];
        make_dG(qf, kf, kb, W, D, last, dG);

        // ---- stages dq and dk in the bytes of qf and kf
        const float *norm = norm_factors(norm_q, norm_k, f, s, m);
        #pragma unroll
        for (int c = 0; c < 2; c++) {
            uint32_t F[4], dq[4], dk[4];
            float2 gq[2], gk[2], cq[2], ck[2];     // g: norm_factors; c: row factors
            ldmatrix_trans_at(F, tiles + 3 * HALF_BYTES + c * 2048);
            load_factors(norm, m.factors[s % FACTORS], 16 * c + e, gq, gk, cq, ck);
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const int t = 2 * c + i / 2, h = i % 2;
                const float2 pq = gq[i / 2], pk = gk[i / 2];
                const float2 nq = cq[i / 2], nk = ck[i / 2];
                float yq[2], yk[2];
                #pragma unroll
                for (int j = 0; j < 2; j++)
                    through_gate(j, F[i], qf[c][i], kb[c][i], pq, pk, nq, nk,
                                 D[t][2 * h + j], D[4 + t][2 * h + j], W[t][2 * h + j],
                                 yq[j], yk[j]);
                dq[i] = pack_bf16x2(yq[0], yq[1]);
                dk[i] = pack_bf16x2(yk[0], yk[1]);
            }
            stmatrix_x4_trans(tiles + c * 2048, dq);
            stmatrix_x4_trans(tiles + HALF_BYTES + c * 2048, dk);
        }
        if (!whole) {
            named_barrier_sync(2 + f, 128);        // the warpgroup's rows are staged
            store_ragged(x, w, f, t0, m.gated[st].half[f]);
        }
        fence_proxy_async();             // TMA reads dq, dk; overwrites F, sums
        warp_arrive(&m.staged);

        // ---- gradient of the gate, computed last, when only dG and sums are live
        if (whole) put_gate_gradient<form, 1>(x, w, gate, s, f, dG, sums, m);
        else put_gate_gradient<form, 0>(x, w, gate, s, f, dG, sums, m);
        if (++st == GATED) st = 0;
    }
    if (form != KCP_GATE_RAW) put_parameters<form>(x, w, gate, f, sums, m);
}

#endif
