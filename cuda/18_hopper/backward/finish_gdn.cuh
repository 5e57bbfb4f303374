// finish_gdn.cuh -- GDN's finishing kernel: storage, producer, and gate warps.
// Book: chapter 18c.
#pragma once

#include "finish_producer.cuh"
#include "cuda/tile/softplus.cuh"

// Tensors that are loaded and released together form a part. GDN_QK (two stages)
// contains q, k and their norms for a query/key head. For a value head, GDN_dO contains
// dO and v_new, GDN_h contains dv and h, and GDN_dS contains dS.
enum { GDN_QK, GDN_dO = GDN_QK + 2, GDN_h, GDN_dS, GDN_PARTS };

// G of a chunk's rows, which the gate warp computes one chunk in advance.
struct gdn_gate {
    float G[CHUNK];
};

// Sums per row that the consumers compute for the gradient warp. `rows` sums over a
// row's pairs with earlier rows, and `columns` sums over the row's pairs with later
// rows. `last` sums the terms of k dk that contain dS. `states` sums the terms of q dq
// and k dk that contain h, minus `last`. `dv_v_new` is the diagonal of dv v_new^T.
struct gdn_sums {
    float rows[2][CHUNK], columns[2][SUBCHUNKS][CHUNK]; // of dA, of dB
    float states[2][CHUNK], last[2][CHUNK];             // per warpgroup
    float h_dS[8], dv_v_new[CHUNK];
};

template <int K>
struct gdn_finish_storage {
    unsigned char h[K / 64][K / 64][TILE_BYTES], dS[K / 64][K / 64][TILE_BYTES];
    unsigned char dO[K / 64][TILE_BYTES], v_new[K / 64][TILE_BYTES];
    unsigned char dv[K / 64][TILE_BYTES];
    unsigned char q[2][K / 64][TILE_BYTES], k[2][K / 64][TILE_BYTES];
    unsigned char dA[2][TILE_BYTES], dB[2][TILE_BYTES];
    struct {
        float rstd_q[CHUNK], rstd_k[CHUNK];
    } norm[2];
    float dots[2][2][CHUNK]; // per warpgroup: q dq, k dk
    struct gdn_gate gate[2];
    struct gdn_sums sums;
    uint64_t full[GDN_PARTS], empty[GDN_PARTS];
    uint64_t gate_full[2], gate_empty[2], sums_full, sums_empty;
};

struct gdn_maps {
    CUtensorMap q, k, dO, dv;
};

template <int K>
static int make_gdn_maps(struct gdn_maps *m, const struct kcp_backward &a)
{
    const int made = tensor_map_of_heads(&m->q, a.q_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->k, a.k_raw, a.T, a.H, K, CHUNK)
                     && tensor_map_of_heads(&m->dO, a.do_, a.T, a.HV, K, CHUNK)
                     && tensor_map_of_heads(&m->dv, a.dv, a.T, a.HV, K, CHUNK);
    return made ? KCP_OK : KCP_CUDA;
}

// Loads q, k and their norms of the (chunk, query/key head) pair i.pair. Argument
// `pair` counts this block's pairs and selects the stage.
template <int K>
static __device__ __forceinline__ void load_qk_part(const struct backward_params &x,
                                                    const struct gdn_maps &from,
                                                    const struct block_chunk &i,
                                                    int pair,
                                                    struct gdn_finish_storage<K> &smem)
{
    const struct kcp_backward &a = x.a;
    const int stage = pair % 2, m = i.pair % a.H;
    const int t = (int)finish_tokens(a, chunk_of(a, i)).t;
    uint64_t *full = &smem.full[GDN_QK + stage];
    if (pair > 1) mbarrier_wait(&smem.empty[GDN_QK + stage], pair / 2 - 1);
    mbarrier_arrive_expect_tx(full, 2 * sizeof smem.q[0] + sizeof smem.norm[0]);
    for (int d = 0; d < K / 64; d++) {
        tma_load_3d(smem.q[stage][d], from.q, d * 64, m, t, full);
        tma_load_3d(smem.k[stage][d], from.k, d * 64, m, t, full);
    }
    tma_load_1d(smem.norm[stage].rstd_q, x.rstd_q + (int64_t)i.pair * CHUNK,
                sizeof smem.norm[0].rstd_q, full);
    tma_load_1d(smem.norm[stage].rstd_k, x.rstd_k + (int64_t)i.pair * CHUNK,
                sizeof smem.norm[0].rstd_k, full);
}

// The producer is one thread, which loads q and k of the next pair in advance.
template <int K>
static __device__ __forceinline__ void gdn_finish_producer(
    const struct backward_params &x, const struct gdn_maps &from,
    struct gdn_finish_storage<K> &smem)
{
    struct block_chunk i;
    int more = first_of_block(x.a, i), pair = 0;
    if (more) load_qk_part<K>(x, from, i, pair++, smem);
    while (more) {
        load_chunk<K, GDN_dO>(x, from, i, smem);
        more = next_of_block(x.a, i);
        if (more && i.head == 0) load_qk_part<K>(x, from, i, pair++, smem);
    }
}

// ---- the gate: y = x + dt_bias (KCP_GATE_RAW: y = x); its log2 decay is at least -200

static __device__ __forceinline__ float gdn_gate_input(const struct kcp_backward &a,
                                                       int64_t t, int n)
{
    const int given = a.gate == KCP_GATE_RAW || !a.dt_bias;
    const float dt = given ? 0.0f : ((const float *)a.dt_bias)[n];
    const uint32_t bits = load_bits(a.g_raw, t * a.HV + n, a.g_type);
    return float_of_bits(bits, a.g_type) + dt;
}

static __device__ __forceinline__ float gdn_exp_A(const struct kcp_backward &a, int n)
{
    return a.A_log ? expf(((const float *)a.A_log)[n]) : 1.0f;
}

static __device__ __forceinline__ float gdn_decay(const struct kcp_backward &a, float y,
                                                  float exp_A)
{
    const float base_2 = 1.44269504088896341f;
    float g = base_2 * y;
    if (a.gate == KCP_GATE_BOUNDED)
        g = __fdividef((float)a.lower_bound * base_2, 1.0f + __expf(-exp_A * y));
    if (a.gate == KCP_GATE_SOFTPLUS) g = -exp_A * softplus_log2(base_2 * y);
    return max_or_nan(g, -200.0f);
}

// Returns the raw gate's gradient from dg. Adds the element's term of dA_log to *dA.
static __device__ __forceinline__ float gdn_gate_back(const struct kcp_backward &a,
                                                      float y, float exp_A, float dg,
                                                      float *dA)
{
    if (a.gate == KCP_GATE_BOUNDED) { // sigma' = e / (1 + e)^2 loses no digits
        const float e = __expf(-exp_A * fabsf(y)), s = __fdividef(1.0f, 1.0f + e);
        const float dx = dg * (float)a.lower_bound * exp_A * e * s * s;
        *dA += dx * y;
        return dx;
    }
    if (a.gate == KCP_GATE_SOFTPLUS) {
        const float base_2 = 1.44269504088896341f, u = base_2 * y;
        const float e = ex2_approx(-fabsf(u)), s = __fdividef(1.0f, 1.0f + e);
        *dA -= dg * exp_A * softplus_log2(u, e) * (1.0f / base_2);
        return -exp_A * (y >= 0.0f ? s : e * s) * dg;
    }
    return dg;
}

// The gate warp computes G of each chunk, the inclusive sums of the log2 decays. Past
// the chunk's end G is constant. Lane l has rows 2 l and 2 l + 1.
template <int K>
static __device__ __forceinline__ void gdn_gate_warp(const struct backward_params &x,
                                                     struct gdn_finish_storage<K> &smem)
{
    const struct kcp_backward &a = x.a;
    const int lane = threadIdx.x % 32;
    struct block_chunk i;
    for (int more = first_of_block(a, i); more; more = next_of_block(a, i)) {
        const int n = value_head_of(a, i), stage = i.chunk % 2;
        const struct token_range z = finish_tokens(a, chunk_of(a, i));
        const float exp_A = gdn_exp_A(a, n);
        float g[2];
        for (int j = 0; j < 2; j++) {
            const int row = 2 * lane + j, at = row < z.len ? row : z.len - 1;
            g[j] = gdn_decay(a, gdn_gate_input(a, z.t + at, n), exp_A);
            if (row >= z.len) g[j] = 0.0f;
        }
        float sum = g[0] + g[1];
        for (int d = 1; d < 32; d *= 2) {
            const float y = __shfl_up_sync(~0u, sum, d);
            if (lane >= d) sum += y;
        }
        if (i.chunk > 1) mbarrier_wait(&smem.gate_empty[stage], i.chunk / 2 - 1);
        *(float2 *)&smem.gate[stage].G[2 * lane] = make_float2(sum - g[1], sum);
        mbarrier_arrive(&smem.gate_full[stage]);
    }
}

// The gradient warp computes dg of a row (the sum of dG from that row to the chunk's
// last row), the gradient of the raw gate, and dbeta.
template <int K>
static __device__ __forceinline__ void gdn_gradient_warp(
    const struct backward_params &x, struct gdn_finish_storage<K> &smem)
{
    const struct kcp_backward &a = x.a;
    const struct gdn_sums &s = smem.sums;
    const int lane = threadIdx.x % 32;
    struct block_chunk i;
    for (int more = first_of_block(a, i); more; more = next_of_block(a, i)) {
        const int c = chunk_of(a, i), n = value_head_of(a, i);
        const struct token_range z = finish_tokens(a, c);
        const int64_t head = (int64_t)c * a.HV + n;
        const float exp_A = gdn_exp_A(a, n);
        float y[2], beta[2], dG[2], own[2], tail = 0.0f, dA = 0.0f, ddt = 0.0f;
        for (int j = 0; j < 2; j++) {
            const int row = 2 * lane + j, at = row < z.len ? row : z.len - 1;
            y[j] = gdn_gate_input(a, z.t + at, n);
            beta[j] = x.beta[head * CHUNK + at];
        }
        mbarrier_wait(&smem.sums_full, i.chunk);
        for (int j = 0; j < 2; j++) {
            const int row = 2 * lane + j;
            dG[j] = 0.0f;
            for (int of = 0; of < 2; of++) {
                float column = 0.0f;
                for (int w = 0; w < SUBCHUNKS; w++) column += s.columns[of][w][row];
                dG[j] += s.rows[of][row] - column;
            }
            for (int w = 0; w < K / 64; w++) {
                dG[j] += s.states[w][row];
                tail += s.last[w][row];
            }
            own[j] = s.dv_v_new[row];
        }
        float h_dS = 0.0f;
        for (int w = 0; w < K / 16; w++) h_dS += s.h_dS[w];
        __syncwarp();
        mbarrier_arrive(&smem.sums_empty);
        for (int b = 16; b; b /= 2) tail += __shfl_xor_sync(~0u, tail, b);
        for (int j = 0; j < 2; j++)
            if (2 * lane + j == z.len - 1) dG[j] += tail + h_dS;
        float sum = dG[0] + dG[1];
        for (int d = 1; d < 32; d *= 2) {
            const float later = __shfl_down_sync(~0u, sum, d);
            if (lane + d < 32) sum += later;
        }
        const float dg[2] = { sum, sum - dG[0] };
        for (int j = 0; j < 2; j++) {
            const int row = 2 * lane + j;
            if (row >= z.len) continue;
            const int64_t at = (z.t + row) * a.HV + n;
            const float dx = gdn_gate_back(a, y[j], exp_A, dg[j], &dA);
            ddt += dx;
            store_number(a.dg_raw, at, a.g_type, dx);
            store_number(a.dbeta_raw, at, a.beta_type,
                         dbeta_raw_of(a.beta_form, beta[j], own[j]));
        }
        for (int b = 16; b; b /= 2) {
            dA += __shfl_xor_sync(~0u, dA, b);
            ddt += __shfl_xor_sync(~0u, ddt, b);
        }
        if (lane == 0 && a.gate != KCP_GATE_RAW) {
            x.dA_part[head] = dA;
            x.ddt_part[head] = ddt;
        }
    }
}
