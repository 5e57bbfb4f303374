// finish_consumer.cuh -- KDA's finishing kernel: the work of a consumer warpgroup.
// Book: chapter 18c.
#pragma once

#include "finish_gate.cuh"

// Products use raw q and k. Norms (rstd, 1 / length of q or k) multiply rows of each
// product and, in dA and dB, columns. Per chunk and value head, D_ij = exp2(G_i - G_j):
//
//     dA = scale tril(dO v_new^T)   dB = beta dL = -tril(dv v_new^T, -1)
//     P  = scale dO h^T    Q = -dv h^T    W = v_new dS^T
//     dq_i = exp2(G_i) P_i + sum_{j<i} dA_ij D_ij k_j + dA_ii k_i
//     dk_i = exp2(G_i) Q_i + sum_{j<i} dB_ij D_ij k_j
//            + exp2(G_last - G_i) W_i + sum_{j>i} (dA_ji q_j + dB_ji k_j) D_ji
//            + dA_ii q_i
//
// The anchor b of a subchunk (16 tokens) and channel is an integer near the middle of
// the range of G. For i in subchunk I and j in subchunk J, D_ij = exp2(G_i - b_I)
// exp2(b_I - b_J) exp2(b_J - G_j). The middle factor is a power of two, so each operand
// is rounded only once. Before the terms of G_last (dG_last) are added to the last row,
// dG_i is q_i times the first two terms of dq_i, plus k_i times the first two terms of
// dk_i, minus k_i times the next two terms of dk_i. In dG the bf16 operands replace q
// and k: qf and kf multiply the sums over j < i, which contain kb, and kb multiplies
// the sums over j > i, which contain qf and kf. So each pair (i, j) adds a product to
// row i of dG and subtracts exactly the same product from row j.
struct operands {
    pairs_of_tokens kb, kf, qf; // k exp2(b-G), k exp2(G-b), q exp2(G-b)
};

static __device__ __forceinline__ uint32_t mul_bf16x2(uint32_t x, uint32_t y)
{
    const __nv_bfloat162 z =
        __hmul2(*(const __nv_bfloat162 *)&x, *(const __nv_bfloat162 *)&y);
    return *(const uint32_t *)&z;
}

// `operand_a` returns subchunk I of a warp's rows as operand A. `scaled_operand_a` also
// multiplies each channel of the operand by a power of two, which is exact.
static __device__ __forceinline__ void operand_a(uint32_t *a, const pairs_of_tokens &x,
                                                 int I)
{
    a[0] = x[2 * I][0];
    a[1] = x[2 * I][1];
    a[2] = x[2 * I + 1][0];
    a[3] = x[2 * I + 1][1];
}

static __device__ __forceinline__ void scaled_operand_a(uint32_t *a,
                                                        const pairs_of_tokens &x, int I,
                                                        const uint32_t *power)
{
    operand_a(a, x, I);
    #pragma unroll
    for (int i = 0; i < 4; i++) a[i] = mul_bf16x2(a[i], power[i % 2]);
}

// A gate may decay so much within a subchunk (16 tokens) that factors relative to the
// subchunk's anchor underflow in bf16. Each warp tests this for its 16 channels and
// sets `deep`. In a deep warp anchor I is G just before subchunk I, rounded, and anchor
// I + 1 is the column anchor of subchunk I, so no exponent is above 1/2. Then only
// pairs of different subchunks use anchors, and finish_deep.cuh adds the pairs within
// subchunks.
static __device__ __forceinline__ int deep_channels(const float (*bound)[2])
{
    float deepest = 0.0f;
    #pragma unroll
    for (int I = 0; I < SUBCHUNKS; I++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
            deepest = fminf(deepest, bound[I + 1][h] - bound[I][h]);
    return __any_sync(~0u, deepest < -118.0f); // else factors are normal bf16 numbers
}

// Anchor b_I of subchunk I for rows, and for columns unless `deep`. `step[I]` is a pair
// of bf16, both exp2(b_(I+1) - b_I). The last anchor is set only if `deep`.
struct anchors {
    float at[SUBCHUNKS + 1][2];
    uint32_t step[SUBCHUNKS - 1][2];
};

static __device__ __forceinline__ uint32_t power_bf16x2(float exponent)
{
    return __byte_perm(__float_as_uint(ex2_approx(exponent)), 0, 0x3232);
}

static __device__ __forceinline__ struct anchors anchors_of(int deep,
                                                            const float (*bound)[2])
{
    struct anchors b;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        #pragma unroll
        for (int I = 0; I < SUBCHUNKS; I++) {
            const float middle = 0.5f * (bound[I][h] + bound[I + 1][h]);
            b.at[I][h] = rintf(deep ? bound[I][h] : middle);
            if (I) b.step[I - 1][h] = power_bf16x2(b.at[I][h] - b.at[I - 1][h]);
        }
        b.at[SUBCHUNKS][h] = rintf(bound[SUBCHUNKS][h]);
    }
    return b;
}

// For two channels and I > J, computes exp2(b_I - b_J) from row anchor b_I and column
// anchor b_J (b_(J+1) if `deep`).
template <int deep>
static __device__ __forceinline__ void power_between(const struct anchors &b, int I,
                                                     int J, uint32_t *power)
{
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        power[h] = deep && J + 1 == I ? 0x3f803f80 : b.step[J + deep][h]; // 1 or a step
        #pragma unroll
        for (int M = J + deep + 1; M < I; M++)
            power[h] = mul_bf16x2(power[h], b.step[M][h]);
    }
}

// `make_operands` replaces each G in its array `G` by the row factor exp2(G - b), with
// anchor b. The column factor is exp2(b - G). If `deep`, the row factor may be 0, so
// the array holds G - b_I until add_deep_subchunks.
template <int deep>
static __device__ __forceinline__ float column_factor(const struct anchors &b, int I,
                                                      int h, float G)
{
    if (!deep) return rcp_approx(G);
    return ex2_approx(b.at[I + 1][h] - b.at[I][h] - G);
}

// Computes a warp's operands. Replaces the values in G as described above.
template <int deep>
static __device__ __forceinline__ void make_operands(const struct anchors &b,
                                                     const unsigned char *q_tile,
                                                     const unsigned char *k_tile,
                                                     float (*G)[4], struct operands &o)
{
    pairs_of_tokens q, k;
    load_channels(k, k_tile);
    load_channels(q, q_tile);
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const float row = b.at[t / 2][h], column = b.at[t / 2 + deep][h];
            const float k0 = bf16x2_low(k[t][h]), k1 = bf16x2_high(k[t][h]);
            float *u = G[t] + 2 * h;
            o.kb[t][h] = pack_bf16x2(k0 * ex2_approx(column - u[0]),
                                     k1 * ex2_approx(column - u[1]));
            const float f0 = ex2_approx(u[0] - row), f1 = ex2_approx(u[1] - row);
            o.kf[t][h] = pack_bf16x2(k0 * f0, k1 * f1);
            o.qf[t][h] =
                pack_bf16x2(bf16x2_low(q[t][h]) * f0, bf16x2_high(q[t][h]) * f1);
            u[0] = deep ? u[0] - row : f0;
            u[1] = deep ? u[1] - row : f1;
        }
}

// Converts a warp's rows of X = dO v_new^T or Y = dv v_new^T to bf16 rows of dA or dB.
// Also stores the diagonal of dA (with norms) or of Y (without norms) in fp32.
template <int K>
static __device__ __forceinline__ void store_triangle(
    int of_dv, float scale, const struct finish_vectors<K> &of, const float (*d)[4],
    struct kda_finish_storage<K> &smem)
{
    const struct mma_coords p = mma_coords_of_thread();
    unsigned char *to = of_dv ? smem.dB : smem.dA;
    float *diagonal = of_dv ? smem.dv_v_new : smem.dA_diagonal;
    const float *rstd = of_dv ? of.rstd_k : of.rstd_q;
    const int i = p.warp * 16 + p.g;
    //> finish-triangle
    const float row[2] = { (of_dv ? -1.0f : scale) * rstd[i],
                           (of_dv ? -1.0f : scale) * rstd[i + 8] };
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        const int j = 8 * t + p.e;
        if (t / 2 > p.warp) continue;
        const float2 column = *(const float2 *)&of.rstd_k[j];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int ih = i + 8 * h;
            float x = row[h] * column.x * d[t][2 * h];
            float y = row[h] * column.y * d[t][2 * h + 1];
            if (t / 2 == p.warp) {
                if (j == ih) diagonal[ih] = of_dv ? d[t][2 * h] : x;
                if (j + 1 == ih) diagonal[ih] = of_dv ? d[t][2 * h + 1] : y;
                x = j < ih ? x : 0.0f;
                y = j + 1 < ih ? y : 0.0f;
            }
            *(uint32_t *)(to + swizzle128_offset(ih, t) + p.e * 2) = pack_bf16x2(x, y);
        }
    }
    //< finish-triangle
}

// Multiplies d = W^T = dS v_new^T by exp2(G_last - anchor) and by the norm of k.
template <int K>
static __device__ __forceinline__ void scale_columns_of_W(
    const struct finish_vectors<K> &of, int deep, const struct anchors &b,
    const float *G_last, float (*d)[4])
{
    const int e = mma_coords_of_thread().e;
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        const float2 norm = *(const float2 *)&of.rstd_k[8 * t + e];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const float anchor = deep ? b.at[t / 2 + 1][h] : b.at[t / 2][h];
            const float f = ex2_approx(G_last[h] - anchor);
            d[t][2 * h] *= f * norm.x;
            d[t][2 * h + 1] *= f * norm.y;
        }
    }
}

// In the chunk's last row, the factor of W is exp2(0) = 1, so W adds nothing to dG.
// `take_star` moves this term of dk to `star`, and `add_star` later adds it to dk.
static __device__ __forceinline__ void take_star(int len, float (*d)[4], float *star)
{
    const int at = len - 1 - mma_coords_of_thread().e;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        star[h] = 0.0f;
        if (len == CHUNK) {
            if (at == 57) star[h] = d[7][2 * h + 1];
            if (at == 57) d[7][2 * h + 1] = 0.0f;
            continue;
        }
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 2; j++) {
                if (at == 8 * t + j) star[h] = d[t][2 * h + j];
                if (at == 8 * t + j) d[t][2 * h + j] = 0.0f;
            }
    }
}

template <int deep>
static __device__ __forceinline__ void add_star(int len, const struct anchors &b,
                                                const float (*G)[4], const float *star,
                                                float (*dk)[4])
{
    const int at = len - 1 - mma_coords_of_thread().e;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        if (len == CHUNK) {
            const float y =
                star[h] * column_factor<deep>(b, 3, h, G[7][2 * h + 1]);
            dk[7][2 * h + 1] += y;
            continue;
        }
        float y = 0.0f;
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                if (at == 8 * t + j)
                    y = star[h]
                        * column_factor<deep>(b, t / 2, h, G[t][2 * h + j]);
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                if (at == 8 * t + j) dk[t][2 * h + j] += y;
    }
}

// Adds to `last` (dG_last) this lane's sum of kb d, where d is the scaled W^T.
static __device__ __forceinline__ void add_to_dG_last(const pairs_of_tokens &kb,
                                                      const float (*d)[4], float *last)
{
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t k = kb[t][h];
            const float low = __uint_as_float(__byte_perm(k, 0, 0x1044));
            const float high = __uint_as_float(__byte_perm(k, 0, 0x3244));
            last[h] = fmaf(low, d[t][2 * h], last[h]);
            last[h] = fmaf(high, d[t][2 * h + 1], last[h]);
        }
}

// Sets dk to exp2(b - G) z and dG to -k exp2(b - G) z, where z has the column sums.
template <int deep>
static __device__ __forceinline__ void spread_columns(const struct anchors &b,
                                                      const float (*G)[4],
                                                      const pairs_of_tokens &kb,
                                                      const float (*z)[4],
                                                      float (*dk)[4], float (*dG)[4])
{
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int h = j / 2;
            const float k = j % 2 ? bf16x2_high(kb[t][h]) : bf16x2_low(kb[t][h]);
            dk[t][j] = column_factor<deep>(b, t / 2, h, G[t][j]) * z[t][j];
            dG[t][j] = -k * z[t][j];
        }
}

// Adds to d the sum over rows i of (dA_ij q_i + dB_ij k_i) D_ij, without the factor
// exp2(b_J - G_j).
template <int deep, int K>
static __device__ __forceinline__ void add_column_products(
    const struct kda_finish_storage<K> &smem, const struct operands &o,
    const struct anchors &b, float (*d)[4])
{
    const int lane = opaque_thread_id() % 32;
    #pragma unroll
    for (int I = deep; I < SUBCHUNKS; I++)
        #pragma unroll
        for (int J = 0; J <= I - deep; J++) {
            const int at = swizzle128_offset(16 * I + lane % 16, 2 * J + lane / 16);
            uint32_t a[4], y[4], power[2];
            if (J < I) power_between<deep>(b, I, J, power);
            ldmatrix_x4_trans(y, (const bf16 *)(smem.dA + at));
            if (J == I) operand_a(a, o.qf, I);
            else scaled_operand_a(a, o.qf, I, power);
            mma_m16n16k16(d + 2 * J, a, y);
            ldmatrix_x4_trans(y, (const bf16 *)(smem.dB + at));
            if (J == I) operand_a(a, o.kf, I);
            else scaled_operand_a(a, o.kf, I, power);
            mma_m16n16k16(d + 2 * J, a, y);
        }
}

// Adds to d the sum over columns j of A_ij k_j D_ij, without the factor exp2(G_i -
// b_I). `A` is dA or dB.
template <int deep>
static __device__ __forceinline__ void add_row_products(const unsigned char *A,
                                                        const struct operands &o,
                                                        const struct anchors &b,
                                                        float (*d)[4])
{
    const int lane = opaque_thread_id() % 32;
    #pragma unroll
    for (int I = deep; I < SUBCHUNKS; I++)
        #pragma unroll
        for (int J = 0; J <= I - deep; J++) {
            const int at = swizzle128_offset(16 * I + lane % 8 + lane / 16 * 8,
                                             2 * J + lane / 8 % 2);
            uint32_t a[4], y[4], power[2];
            if (J < I) power_between<deep>(b, I, J, power);
            ldmatrix_x4(y, (const bf16 *)(A + at));
            if (J == I) operand_a(a, o.kb, J);
            else scaled_operand_a(a, o.kb, J, power);
            mma_m16n16k16(d + 2 * I, a, y);
        }
}

// Multiplies d = P^T or Q^T by exp2(anchor), by `factor` and by the norms of the rows.
static __device__ __forceinline__ void scale_rows_of_state(const struct anchors &b,
                                                           float factor,
                                                           const float *rstd,
                                                           float (*d)[4])
{
    const int e = mma_coords_of_thread().e;
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        const float2 norm = *(const float2 *)&rstd[8 * t + e];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const float f = ex2_approx(b.at[t / 2][h]) * factor;
            d[t][2 * h] *= f * norm.x;
            d[t][2 * h + 1] *= f * norm.y;
        }
    }
}

// Adds exp2(G_last) sum_v h dS to dG_last, once per channel.
template <int K>
static __device__ __forceinline__ void add_h_dS(struct kda_finish_storage<K> &smem,
                                                const float *G_last, float *last)
{
    const struct mma_coords p = mma_coords_of_thread();
    if (p.e) return;
    #pragma unroll
    for (int h = 0; h < 2; h++)
        last[h] = fmaf(ex2_approx(G_last[h]), *h_dS_of(smem, p.channel + 8 * h),
                       last[h]);
}

// Adds the sum of dG_last over a channel's four lanes to dG of the chunk's last row.
static __device__ __forceinline__ void add_to_last_row(int len, const float *last,
                                                       float (*dG)[4])
{
    const int e = mma_coords_of_thread().e;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float2 other = quad_sums(last[h]);
        const float sum = last[h] + other.x + other.y;
        if (len == CHUNK) {
            if (e == 6) dG[7][2 * h + 1] += sum;
            continue;
        }
        #pragma unroll
        for (int t = 0; t < 8; t++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                if (8 * t + e + j == len - 1) dG[t][2 * h + j] += sum;
    }
}

// Adds to dq and dk the terms of each token paired with itself (the diagonal of dA).
static __device__ __forceinline__ void add_own_pairs(const float *dA_diagonal,
                                                     const pairs_of_tokens &q,
                                                     const pairs_of_tokens &k,
                                                     pairs_of_tokens &dq,
                                                     float (*dk)[4])
{
    const int e = mma_coords_of_thread().e;
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        const float2 A = *(const float2 *)&dA_diagonal[8 * t + e];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float *y = dk[t] + 2 * h;
            y[0] = fmaf(A.x, bf16x2_low(q[t][h]), y[0]);
            y[1] = fmaf(A.y, bf16x2_high(q[t][h]), y[1]);
            dq[t][h] =
                pack_bf16x2(fmaf(A.x, bf16x2_low(k[t][h]), bf16x2_low(dq[t][h])),
                            fmaf(A.y, bf16x2_high(k[t][h]), bf16x2_high(dq[t][h])));
        }
    }
}

// Stores in `part` [2][64] each token's sums of q dq and k dk over a warp's channels.
static __device__ __forceinline__ void store_dots(const pairs_of_tokens &q,
                                                  const pairs_of_tokens &k,
                                                  const pairs_of_tokens &dq,
                                                  const float (*dk)[4], float *part)
{
    const int lane = opaque_thread_id() % 32;
    float q_dq[16], k_dk[16];
    #pragma unroll
    for (int t = 0; t < 8; t++)
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const int i = 2 * t + j;
            q_dq[i] = k_dk[i] = 0.0f;
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const float x = j ? bf16x2_high(q[t][h]) : bf16x2_low(q[t][h]);
                const float y = j ? bf16x2_high(k[t][h]) : bf16x2_low(k[t][h]);
                const float dx = j ? bf16x2_high(dq[t][h]) : bf16x2_low(dq[t][h]);
                q_dq[i] = fmaf(x, dx, q_dq[i]);
                k_dk[i] = fmaf(y, dk[t][2 * h + j], k_dk[i]);
            }
        }
    *(float2 *)&part[2 * lane] = sum_over_channels(q_dq);
    *(float2 *)&part[CHUNK + 2 * lane] = sum_over_channels(k_dk);
}

// Replaces each norm by stage_rows' factor f: dq += f q with f = -rstd^2 sum(q dq), and
// dk += f k with f = -rstd^2 sum(k dk). Without l2norm, f is 0.
template <int K>
static __device__ __forceinline__ void projection_factors(int l2norm,
                                                          const float *dots,
                                                          struct finish_vectors<K> &of)
{
    const int i = opaque_thread_id();
    if (i >= 2 * CHUNK) return;
    float sum = 0.0f;
    #pragma unroll
    for (int w = 0; w < K / 16; w++) sum += dots[w * 2 * CHUNK + i];
    float *rstd = (i < CHUNK ? of.rstd_q : of.rstd_k) + i % CHUNK;
    *rstd = l2norm ? -sum * *rstd * *rstd : 0.0f;
}

// Adds the norms' gradient to dq and dk, and stages dq and dk in the tiles of q and k.
template <int K>
static __device__ __forceinline__ void stage_rows(const struct finish_vectors<K> &of,
                                                  unsigned char *q_tile,
                                                  unsigned char *k_tile,
                                                  pairs_of_tokens &dq,
                                                  const float (*dk)[4])
{
    const int e = mma_coords_of_thread().e;
    pairs_of_tokens q, k;
    load_channels(k, k_tile);
    load_channels(q, q_tile);
    #pragma unroll
    for (int t = 0; t < 8; t++) {
        const float2 f_q = *(const float2 *)&of.rstd_q[8 * t + e];
        const float2 f_k = *(const float2 *)&of.rstd_k[8 * t + e];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            dq[t][h] =
                pack_bf16x2(fmaf(f_q.x, bf16x2_low(q[t][h]), bf16x2_low(dq[t][h])),
                            fmaf(f_q.y, bf16x2_high(q[t][h]), bf16x2_high(dq[t][h])));
            k[t][h] = pack_bf16x2(fmaf(f_k.x, bf16x2_low(k[t][h]), dk[t][2 * h]),
                                  fmaf(f_k.y, bf16x2_high(k[t][h]), dk[t][2 * h + 1]));
        }
    }
    __syncwarp(); // the warp has read its channels
    store_channels(q_tile, dq);
    store_channels(k_tile, k);
}

// Zeroes the rows past the chunk's end, which belong to another sequence.
template <int K>
static __device__ __forceinline__ void zero_finish_rows(int len, int stage,
                                                     struct kda_finish_storage<K> &smem)
{
    struct finish_rows<K> &rows = smem.rows[stage];
    for (int at = len * 8 + threadIdx.x; at < CHUNK * 8; at += 2 * K)
        for (int d = 0; d < K / 64; d++) {
            const uint4 zero = make_uint4(0, 0, 0, 0);
            ((uint4 *)rows.q[d])[at] = ((uint4 *)rows.k[d])[at] = zero;
            ((uint4 *)rows.g[d])[at] = ((uint4 *)smem.dO[d])[at] = zero;
            ((uint4 *)smem.dv[d])[at] = ((uint4 *)smem.v_new[d])[at] = zero;
        }
    fence_proxy_async();
}
