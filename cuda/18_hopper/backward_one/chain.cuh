// chain.cuh -- the backward in one kernel: the gates, and the recurrence of dS and dv.
// Book: chapter 18c, "One kernel".
#ifndef KCP_BACKWARD_ONE_CHAIN_CUH
#define KCP_BACKWARD_ONE_CHAIN_CUH

#include "storage.cuh"

// ---- gates: compute the operands of a step in place of q, k and g

// With u = `times` (x + dt_bias), the log2 decay is `top` / (1 + 2^u) for a bounded
// gate, and `top` log2(1 + 2^u) for softplus. For a raw gate it is `top` x.
struct step_gate { float times, top; };

template <int form>
static __device__ __forceinline__ struct step_gate step_gate_of(
    const struct backward_one_params &x, int n)
{
    const float base_2 = 1.44269504088896341f;
    if (form == KCP_GATE_RAW) return { base_2, base_2 };
    const float e = x.a.A_log ? expf(((const float *)x.a.A_log)[n]) : 1.0f;
    if (form == KCP_GATE_SOFTPLUS) return { base_2, -e };
    return { -e * base_2, x.lower_bound * base_2 };
}

// Returns the part of a log2 decay that step_gate::top multiplies. The functions are
// those of the forward, whose records depend on them.
template <int form>
static __device__ __forceinline__ float decay_begin(const struct step_gate &gate,
                                                    float x, float plus)
{
    return form == KCP_GATE_RAW ? x : ex2_approx(fmaf(gate.times, x, plus));
}

template <int form>
static __device__ __forceinline__ float decay_end(float x)
{
    if (form == KCP_GATE_RAW) return x;
    return form == KCP_GATE_BOUNDED ? rcp_approx(1.0f + x) : log2_1p(x);
}

// A warp has 16 rows (if `upper` is 1, the last 16) and 32 channels of a step. A lane
// has 8 rows of 2 channels: lanes 0 to 15 have the warp's first 8 rows, and lanes 16 to
// 31 (`far` = 1) have the warp's last 8 rows. Lanes 16 to 31 have rows r and r + 4 in
// the opposite order to lanes 0 to 15, so that no two lanes access the same bank. Row r
// of a lane is token 16 upper + 8 far + (r ^ 4 far).
struct gate_lane {
    int upper, far, channel;
    uint32_t row[2];                     // base addresses of rows r < 4 and r >= 4

    __device__ __forceinline__ uint32_t at(int r) const
    {
        return (row[r / 4] ^ r << 4) + r * 128;
    }
    __device__ __forceinline__ int token(int r) const
    {
        return 16 * upper + 8 * far + (r ^ 4 * far);
    }
};

static __device__ __forceinline__ struct gate_lane gate_lane_of(
    int f, int warp, const struct gated_half &half)
{
    const int lane = threadIdx.x % 32, far = lane / 16, upper = warp / 2;
    const int piece = (warp % 2 * 4 + lane % 16 / 4) ^ far * 4;
    const uint32_t base = smem_addr(half.q) + upper * 2048 + far * 1024 + piece * 16
                          + lane % 4 * 4;
    return { upper, far, f * 64 + warp % 2 * 32 + lane % 16 * 2,
             { base + far * 512, base - far * 512 } };
}

// Sums the log2 decays of the lane's rows in groups of four. Row r has the factor F =
// 2^(G[r] + from[r / 4]). `all` receives the sum over the warp's 16 rows.
template <int form, int whole>
static __device__ __forceinline__ void sum_decays(
    const struct step_gate &gate, const struct gate_lane &l, int len,
    const float *plus, const uint32_t *raw, float (*G)[2], float (*from)[2], float *all)
{
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        const uint32_t x = whole || l.token(r) < len ? raw[r] : 0;
        G[r][0] = decay_begin<form>(gate, bf16x2_low(x), plus[0]);
        G[r][1] = decay_begin<form>(gate, bf16x2_high(x), plus[1]);
    }
    #pragma unroll
    for (int r = 0; r < 8; r++)
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const int past = !whole && l.token(r) >= len;
            const float top = past ? 0.0f : gate.top;
            // Of a row past the end, x = 0: softplus(dt_bias) may be infinite.
            const float decay = form == KCP_GATE_SOFTPLUS && past
                                    ? 0.0f : decay_end<form>(G[r][j]);
            G[r][j] = r % 4 ? fmaf(top, decay, G[r - 1][j]) : top * decay;
        }
    #pragma unroll
    for (int j = 0; j < 2; j++) {
        const float own = G[3][j] + G[7][j], other = __shfl_xor_sync(~0u, own, 16);
        all[j] = own + other;
        const float before = l.upper ? 0.0f : -all[j];
        from[0][j] = l.far ? before + other + G[7][j] : before;
        from[1][j] = l.far ? before + other : before + G[3][j];
    }
}

// Stores the factors by which dSa = 2^(E - a) dS (storage.cuh) decays in this warp's
// channels. `all` has the sums of log2 decays over the warp's 16 rows.
static __device__ __forceinline__ void put_decays(const struct gate_lane &l, int f,
                                                  int warp, int s, const float *all,
                                                  struct backward_one_storage &m)
{
    const int st = s % GATED;
    if (!l.upper) {
        if (l.far) return;
        *(float2 *)&m.sum_to_anchor[s % 2][l.channel] = make_float2(all[0], all[1]);
        *(float2 *)&m.anchor[st][l.channel] =
            make_float2(ex2_approx(all[0]), ex2_approx(all[1]));
        return;
    }
    float2 a = make_float2(0.0f, 0.0f);  // of the step after
    if (s) a = *(const float2 *)&m.sum_to_anchor[(s - 1) % 2][l.channel];
    const int deep = __any_sync(~0u, fminf(all[0] + a.x, all[1] + a.y) < -120.0f);
    if (deep) a = make_float2(0.0f, 0.0f);
    if (!l.far)
        *(float2 *)&m.decay[st][l.channel] =
            make_float2(ex2_approx(all[0] + a.x), ex2_approx(all[1] + a.y));
    if (threadIdx.x % 32 == 0) m.deep[st][f * 2 + warp % 2] = deep;
}

// Computes the gates of step s for the 64 channels of warpgroup f. If the step has
// fewer than 32 rows, rows from `len` on are set to 0 and do not decay.
template <int form, int whole>
static __device__ __forceinline__ void gate_step(const struct step_gate &gate, int s,
                                                 int f, int warp, int len,
                                                 struct backward_one_storage &m)
{
    const int st = s % GATED;
    const struct gate_lane l = gate_lane_of(f, warp, m.gated[st].half[f]);
    const struct token_factors &of = m.factors[s % FACTORS];
    const float2 dt = *(const float2 *)&m.dt_bias[l.channel];
    const float plus[2] = { gate.times * dt.x, gate.times * dt.y };
    float F[8][2], from[2][2], all[2];
    uint32_t raw[8];
    mbarrier_wait(&m.raw[st], s / GATED);
    if (s >= 2) mbarrier_wait(&m.again_empty, s - 2);        // F is written below
    __syncwarp();
    #pragma unroll
    for (int r = 0; r < 8; r++) raw[r] = word_at(l.at(r) + 2 * HALF_BYTES);
    sum_decays<form, whole>(gate, l, len, plus, raw, F, from, all);
    #pragma unroll
    for (int rr = 0; rr < 8; rr += 4) {
        const float4 nq = *(const float4 *)&of.q_factor[l.token(rr)];
        const float4 nk = *(const float4 *)&of.rstd_k[l.token(rr)];
        uint32_t q[4], k[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            q[i] = word_at(l.at(rr + i));
            k[i] = word_at(l.at(rr + i) + HALF_BYTES);
            if (whole || l.token(rr + i) < len) continue;
            q[i] = k[i] = 0;
        }
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                F[rr + i][j] = ex2_approx(F[rr + i][j] + from[rr / 4][j]);
        const float by_q[4] = { nq.x, nq.y, nq.z, nq.w };
        const float by_k[4] = { nk.x, nk.y, nk.z, nk.w };
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t p = l.at(rr + i);
            const float F0 = F[rr + i][0], F1 = F[rr + i][1];
            const float cq = by_q[i], ck = by_k[i];
            put_word(p, times_bf16x2(q[i], pack_bf16x2(F0 * cq, F1 * cq)));
            put_word(p + HALF_BYTES, times_bf16x2(k[i], pack_bf16x2(F0 * ck, F1 * ck)));
            put_word(p + 2 * HALF_BYTES,
                     times_bf16x2(k[i], pack_bf16x2(rcp_approx(F0), rcp_approx(F1))));
            put_word(p + 3 * HALF_BYTES, pack_bf16x2(F0, F1));
        }
    }
    put_decays(l, f, warp, s, all, m);
    fence_proxy_async();
    warp_arrive(&m.gated_full[st]);
}

// ---- the chain

// A view of a warpgroup's 64 columns of a state in the caller's layout, [K,V] or [V,K]:
// element (v, k) of S^T is p[v dv + k dk]. If p is NULL, there is no state.
struct gradient_view { float *p; int64_t dv, dk; };

static __device__ __forceinline__ struct gradient_view gradient_view_of(
    const struct kcp_backward &a, const void *x, int sequence, int n, int v)
{
    const int64_t at = ((int64_t)sequence * a.HV + n) * 128 * 128;
    const int kv = a.layout == KCP_KV;
    const int64_t dv = kv ? 1 : 128, dk = kv ? 128 : 1;
    return { x ? (float *)x + at + v * dv : NULL, dv, dk };
}

// Multiplies dSa by the decay from the step of the following 32 tokens to this step: by
// one factor or, if `deep` is set, by two factors, because their product may underflow.
static __device__ __forceinline__ void decay_gradient(
    float (*S)[4], int st, int first, const struct backward_one_storage &m)
{
    const int e = threadIdx.x % 4 * 2, after = st ? st - 1 : GATED - 1;
    #pragma unroll
    for (int t = 0; t < 16; t++) {
        const float2 f = *(const float2 *)&m.decay[st][8 * t + e];
        S[t][0] *= f.x;
        S[t][1] *= f.y;
        S[t][2] *= f.x;
        S[t][3] *= f.y;
    }
    if (first || !(m.deep[st][0] | m.deep[st][1] | m.deep[st][2] | m.deep[st][3]))
        return;
    #pragma unroll
    for (int t = 0; t < 16; t++) {
        const float2 u = *(const float2 *)&m.anchor[after][8 * t + e];
        const int deep = m.deep[st][t / 4];
        const float x = deep ? u.x : 1.0f, y = deep ? u.y : 1.0f;
        S[t][0] *= x;
        S[t][1] *= y;
        S[t][2] *= x;
        S[t][3] *= y;
    }
}

// Zeroes rows `len` to 31 of one half of dO, which belong to another sequence.
static __device__ __forceinline__ void zero_rows(unsigned char *tile, int len)
{
    for (int i = len * 8 + threadIdx.x % 128; i < ROWS * 8; i += 128)
        *(uint4 *)(tile + i * 16) = make_uint4(0, 0, 0, 0);
}

// Stores the raw beta's gradient for token i of step s. dv_w = rstd_k_i dv_i . v_new_i.
static __device__ __forceinline__ void put_dbeta(const struct backward_one_params &x,
                                                 const struct backward_walk &w, int s,
                                                 int i, float dv_w,
                                                 const struct token_factors &of)
{
    const struct kcp_backward &a = x.a;
    const int t = w.token(s) + i;
    const float beta = of.beta[i];
    float y = dv_w * rcp_approx(of.rstd_k[i] * beta * beta);
    if (a.beta_form == KCP_BETA_SIGMOID) y *= beta * (1.0f - beta);
    if (a.beta_form == KCP_BETA_SIGMOID2) y *= beta * (1.0f - 0.5f * beta);
    if (t < w.begin + w.len)
        ((bf16 *)a.dbeta_raw)[(int64_t)t * a.HV + w.n] = (bf16)y;
}

// Called by a warpgroup. By one product, computes columns 16 wg to 16 wg + 15 of X = dO
// w^T and Y = dv w^T (w = rstd_k v_new). X is in rows 0 to 31 of the accumulator, and Y
// is in rows 32 to 63. Stores the lower triangles of X and Y as bf16 for the finish
// warpgroups, and computes dbeta from the diagonal of Y.
template <int by_head>
static __device__ __forceinline__ void make_triangles(
    const struct backward_one_params &x, const struct backward_walk &w, int wg, int s,
    struct backward_one_storage &m)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, e = lane % 4 * 2;
    const int w_offset = offsetof(struct value_stage, w), of_dv = warp / 2;
    const uint32_t of_values = smem_addr(&m.values[s % VALUES]) >> 4;
    float E[2][4];
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < 8; i++)
        wgmma_half_step_ss<0, 1>(
            E, smem_desc_at(of_values, DESC_HIGH_128, 1,
                            i / 4 * 2 * HALF_BYTES + i % 4 * 32),
            smem_desc_at(of_values, DESC_HIGH_CORES, DESC_LEAD_CORES,
                         w_offset + wg * 4096 + i * 256), i);
    wgmma_commit();
    if (s) mbarrier_wait(&m.dots, s - 1);          // all products of that step are over
    if (s && wg == 0 && threadIdx.x == 0) {
        if (s + 1 < w.steps) load_values<by_head>(x, w, s + 1, m);
        load_state_of_step<by_head>(x, w, s, m);
    }
    __syncwarp();
    wgmma_wait<0>();
    fence_operand<2>(E);
    if (s) mbarrier_wait(&m.staged, s - 1);        // so that no phase is missed
    #pragma unroll
    for (int t = 0; t < 2; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = warp * 16 + lane / 4 + 8 * h, i = row % ROWS;
            const int j = 16 * wg + 8 * t + e;
            const int at = triangle64_offset(row, 2 * wg + t) + e * 2;
            put_word(smem_addr(m.triangles) + at,
                     pack_bf16x2(j + of_dv <= i ? E[t][2 * h] : 0.0f,
                                 j + 1 + of_dv <= i ? E[t][2 * h + 1] : 0.0f));
        }
    fence_proxy_async();
    warp_arrive(&m.triangles_full);
    if (warp != 2 + wg || lane % 4 != lane / 8) return;
    #pragma unroll
    for (int h = 0; h < 2; h++)
        put_dbeta(x, w, s, 16 * wg + 8 * h + lane / 4,
                  lane / 4 % 2 ? E[h][2 * h + 1] : E[h][2 * h], m.factors[s % FACTORS]);
}

// Loads dht^T of columns v and v + 8 into the accumulator S, if the call has dht.
static __device__ __forceinline__ void load_end_gradient(
    const struct backward_one_params &x, int sequence, int n, int v, int e,
    float (*S)[4])
{
    const struct gradient_view from =
        gradient_view_of(x.a, x.a.dht, sequence, n, v);
    #pragma unroll
    for (int t = 0; t < 16 && from.p; t++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            S[t][j] = from.p[j / 2 * 8 * from.dv + (8 * t + e + j % 2) * from.dk];
}

// Computes the gates of step s. The first step may have fewer than 32 tokens.
template <int form>
static __device__ __forceinline__ void gate_of_step(
    const struct backward_walk &w, const struct step_gate &gate, int s, int wg,
    int warp, struct value_stage &values, struct backward_one_storage &m)
{
    if (s == 0 && w.len % ROWS) {
        mbarrier_wait(&m.value_full[0], 0);
        zero_rows(values.half[wg].dO, w.len % ROWS);
        gate_step<form, 0>(gate, 0, wg, warp, w.len % ROWS, m);
    } else gate_step<form, 1>(gate, s, wg, warp, ROWS, m);
}

// Issues dU = kb dSa + Aqk^T dO.
static __device__ __forceinline__ void begin_dU(uint32_t dS, uint32_t rows,
                                                uint32_t of_values,
                                                const uint32_t (*dO)[4], float (*y)[4])
{
    const int kb = offsetof(struct gated_half, g);
    const int Aqk = offsetof(struct value_stage, Aqk);
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < 8; i++)
        wgmma_step_ss<1, 0>(
            y, smem_desc_at(dS, DESC_HIGH_128, 1, i / 4 * 16384 + i % 4 * 2048),
            smem_desc_at(rows, DESC_HIGH_128, 1,
                         i / 4 * sizeof(gated_half) + kb + i % 4 * 32), i);
    #pragma unroll
    for (int i = 0; i < 2; i++)
        wgmma_step_rs<1, 0>(
            y, dO[i], smem_desc_at(of_values, DESC_HIGH_64, 1, Aqk + i * 1024), 1);
    wgmma_commit();
}

// Computes dv = Ab^T dU in y, from dU in b.
static __device__ __forceinline__ void multiply_Ab(uint32_t of_values,
                                                   const uint32_t (*b)[4],
                                                   float (*y)[4])
{
    const int Ab = offsetof(struct value_stage, Ab);
    wgmma_fence();
    wgmma_step_rs<1, 0>(y, b[0], smem_desc_at(of_values, DESC_HIGH_64, 1, Ab), 0);
    wgmma_step_rs<1, 0>(y, b[1],
                        smem_desc_at(of_values, DESC_HIGH_64, 1, Ab + 1024), 1);
    wgmma_commit();
    wgmma_wait<0>();
    fence_operand<4>(y);
}

// Stores the last step's rows, which finish_warpgroup has staged.
static __device__ __forceinline__ void store_last_step(
    const struct backward_one_params &x, const struct backward_walk &w, int wg,
    struct backward_one_storage &m)
{
    if (w.steps > 1) mbarrier_wait(&m.again_empty, w.steps - 2);
    load_gate_again(x, w, wg, w.steps - 1, m);
    mbarrier_wait(&m.staged, w.steps - 1);
    store_gated(x, w, wg, w.steps - 1, m);
}

// Runs the recurrence of dSa and dv for one warpgroup's 64 columns (storage.cuh has the
// equations). Registers hold dSa^T [64,128] in fp32. Each step computes, in this order:
// the gates; dSa rounded to bf16, in shared memory; dU = kb dSa + Aqk^T dO, while dSa
// += qf^T dO runs; dv = Ab^T dU; dSa -= kf^T dv; the triangles X and Y. One thread per
// warpgroup issues all TMA copies.
template <int form>
static __device__ __forceinline__ void chain_warpgroup(
    const struct backward_one_params &x, const struct backward_walk &w, int wg,
    int sequence, struct backward_one_storage &m)
{
    const int lane = threadIdx.x % 32, e = lane % 4 * 2;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    const int column_offset = swizzle128_offset(lane % 8 + lane / 16 * 8,
                                             warp * 2 + lane / 8 % 2);
    const int v = wg * 64 + warp * 16 + lane / 4;
    const struct step_gate gate = step_gate_of<form>(x, w.n);
    const int first = threadIdx.x % 128 == 0;      // issues copies
    enum { by_head = form != KCP_GATE_BOUNDED };
    float S[16][4] = {};
    int st = 0, phase = 0;
    if (first) first_loads<by_head>(x, w, wg, m);
    __syncwarp();
    load_end_gradient(x, sequence, w.n, v, e, S);
    #pragma unroll 1
    for (int s = 0; s < w.steps; s++) {
        const int rs = s % VALUES;
        struct value_stage &values = m.values[rs];
        const uint32_t rows = smem_addr(&m.gated[st]) >> 4;
        const uint32_t of_values = smem_addr(&values) >> 4;
        const uint32_t dS_at = smem_addr(m.dS[0][wg]) + column_offset;
        const uint32_t dS = smem_addr(m.dS[0][wg]) >> 4;
        const int qf = offsetof(struct gated_half, q);
        const int kf = offsetof(struct gated_half, k);
        const int lead = sizeof(gated_half) / 16;
        uint32_t dO[2][4], b[2][4];
        float y[4][4];
        gate_of_step<form>(w, gate, s, wg, warp, values, m);
        mbarrier_wait(&m.gated_full[st], phase);
        if (s && first) load_gate_again(x, w, wg, s - 1, m);
        __syncwarp();
        mbarrier_wait(&m.value_full[rs], s / VALUES);
        if (s) mbarrier_wait(&m.dS_empty, s - 1);
        decay_gradient(S, st, s == 0, m);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t a[1][4];
            pack_accumulator<2>(a, S + 2 * i);
            stmatrix_x4_trans(dS_at + i / 4 * 16384 + i % 4 * 2048, a[0]);
        }
        const uint32_t dO_at = smem_addr(values.half[wg].dO) + column_offset;
        ldmatrix_trans_at(dO[0], dO_at);
        ldmatrix_trans_at(dO[1], dO_at + 2048);
        fence_proxy_async();
        named_barrier_sync(4 + wg, 128); // this warpgroup's columns of dSa are there
        warp_arrive(&m.dS_full);

        //> one-chain
        begin_dU(dS, rows, of_values, dO, y);
        wgmma_state_rs<0>(S, dO[0], smem_desc_at(rows, DESC_HIGH_128, lead, qf));
        wgmma_state_rs<0>(S, dO[1], smem_desc_at(rows, DESC_HIGH_128, lead, qf + 2048));
        wgmma_commit();
        wgmma_wait<1>();
        fence_operand<4>(y);
        pack_accumulator<4>(b, y);
        multiply_Ab(of_values, b, y);
        fence_operand<16>(S);
        uint32_t dv[2][4];
        pack_accumulator<4>(dv, y);
        wgmma_fence();
        wgmma_state_rs<1>(S, dv[0], smem_desc_at(rows, DESC_HIGH_128, lead, kf));
        wgmma_state_rs<1>(S, dv[1], smem_desc_at(rows, DESC_HIGH_128, lead, kf + 2048));
        wgmma_commit();
        stmatrix_x4_trans(dO_at + HALF_BYTES, dv[0]);
        stmatrix_x4_trans(dO_at + HALF_BYTES + 2048, dv[1]);
        fence_proxy_async();
        warp_arrive(&m.dv_full[rs]);
        //< one-chain
        wgmma_wait<0>();
        fence_operand<16>(S);
        mbarrier_wait(&m.dv_full[rs], s / VALUES); // of both warpgroups
        if (first && w.whole(s))
            tma_store_3d(x.to_v, values.half[wg].dv, 64 * wg, w.n, w.token(s));
        __syncwarp();
        make_triangles<by_head>(x, w, wg, s, m);
        if (s && first) {
            store_gated(x, w, wg, s - 1, m);
            if (s + 2 < w.steps) load_gated<by_head>(x, w, wg, s + 2, m);
        }
        __syncwarp();
        if (++st == GATED) {
            st = 0;
            phase++;
        }
    }
    if (first) store_last_step(x, w, wg, m);
    __syncwarp();
    const struct gradient_view to = gradient_view_of(x.a, x.a.dh0, sequence, w.n, v);
    const float *anchor = m.anchor[(w.steps - 1) % GATED];
    #pragma unroll
    for (int t = 0; t < 16 && to.p; t++)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int k = 8 * t + e + j % 2;
            to.p[j / 2 * 8 * to.dv + k * to.dk] = S[t][j] * anchor[k];
        }
}

#endif
