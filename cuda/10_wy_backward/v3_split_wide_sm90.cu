// v3_split_wide_sm90.cu -- v3's first kernel for K = 256, by warpgroups.
// Book: chapter 18, "Keys of 256 channels".
#include "cuda/tile/launch_shared.cuh"
#include "cuda/tile/wide_scan.cuh"
#include "v3_split_storage.cuh"

// h and dS alone are 256 KiB at V = 256, so a block computes one half of K, as a sum
// over panels of 64 columns of V. Each of two warpgroups has 64 rows of h and dS, and
// P, Q and W [64,64] in registers. Both compute dvb, which is operand A of Q. Blocks of
// the first half also compute dv, dL and dbeta. Bound: memory, 4 K V bytes of h and dS
// per chunk and head. Panels are copied two ahead. The barrier of a panel separates its
// copies from the reads, and the reads of the previous panel from the next copies.
enum { PANELS = 3, HALF = ROWS_K / 2 };

struct panel {
    bf16 h[2][SWIZZLE128_TILE], dS[2][SWIZZLE128_TILE];
    bf16 dO[SWIZZLE128_TILE], dU[SWIZZLE128_TILE];
    bf16 v_new[SWIZZLE128_TILE], v[SWIZZLE128_TILE];
};

struct wide_solve_storage {
    struct panel at[PANELS];
    bf16 A[SWIZZLE128_TILE], out[SWIZZLE128_TILE];
    float beta[CHUNK];
};

// A warpgroup's results. dL and the sums over v are those of the first warpgroup.
struct solved {
    float P[8][4], Q[8][4], W[8][4], dL[8][4], by_v[2], by_v_new[2], h_dS;
};

static __device__ __forceinline__ void load_panel(const struct kcp_wy_backward &a,
                                                  struct token_range z, int c, int n,
                                                  int first, int v0, int group,
                                                  struct panel &to)
{
    const int i = threadIdx.x % 128;
    const int64_t ld = (int64_t)a.HV * a.V, rows = (z.t * a.HV + n) * a.V + v0;
    const int64_t state = ((int64_t)c * a.HV + n) * ROWS_K * a.V
                        + (int64_t)(first + 64 * group) * a.V + v0;
    cp_async_tiles<1>(to.h[group], (const bf16 *)a.h + state, a.V, CHUNK, i);
    cp_async_tiles<1>(to.dS[group], (const bf16 *)a.dh + state, a.V, CHUNK, i);
    if (group == 0) {
        cp_async_tiles<1>(to.dU, (const bf16 *)a.dU + rows, ld, z.len, i);
        cp_async_tiles<1>(to.dO, (const bf16 *)a.do_ + rows, ld, z.len, i);
    } else {
        cp_async_tiles<1>(to.v_new, (const bf16 *)a.v_new + rows, ld, z.len, i);
        if (first == 0) cp_async_tiles<1>(to.v, (const bf16 *)a.v + rows, ld, z.len, i);
    }
}

// Returns this lane's part of sum_v h dS: half of a row of 64 columns.
static __device__ __forceinline__ float dot_half_row(const bf16 *h, const bf16 *dS)
{
    const int row = threadIdx.x % 128 / 2;
    float x = 0.0f;
    #pragma unroll
    for (int p = 0; p < 4; p++) {
        const int at = swizzle128_offset(row, threadIdx.x % 2 * 4 + p);
        const uint4 y = *(const uint4 *)((const char *)h + at);
        const uint4 z = *(const uint4 *)((const char *)dS + at);
        const uint32_t *f = &y.x, *g = &z.x;
        #pragma unroll
        for (int j = 0; j < 4; j++)
            x += bf16x2_low(f[j]) * bf16x2_low(g[j])
               + bf16x2_high(f[j]) * bf16x2_high(g[j]);
    }
    return x;
}

// Stores D tiles [64,64], times f[0] in the lane's first row and f[1] in its second, to
// a swizzle128 tile. A barrier must follow.
static __device__ __forceinline__ void store_tile(bf16 *X, const float (*y)[4],
                                                  float f0, float f1)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    char *at = (char *)X + lane % 4 * 4;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        *(uint32_t *)(at + swizzle128_offset(row, i)) =
            pack_bf16x2(f0 * y[i][0], f0 * y[i][1]);
        *(uint32_t *)(at + swizzle128_offset(row + 8, i)) =
            pack_bf16x2(f1 * y[i][2], f1 * y[i][3]);
    }
}

// Adds dvb v and dvb v_new to the sums, and stores dv = beta dvb.
static __device__ __forceinline__ void use_dvb(const struct kcp_wy_backward &a,
                                               struct token_range z, int n, int v0,
                                               const float (*dvb)[4],
                                               struct wide_solve_storage &s,
                                               const struct panel &x, struct solved &y)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        const int at = swizzle128_offset(row + i % 2 * 8, i / 2) + lane % 4 * 4;
        const uint32_t v = *(const uint32_t *)((const char *)x.v + at);
        const uint32_t w = *(const uint32_t *)((const char *)x.v_new + at);
        const float *d = dvb[i / 2] + i % 2 * 2;
        y.by_v[i % 2] += d[0] * bf16x2_low(v) + d[1] * bf16x2_high(v);
        y.by_v_new[i % 2] += d[0] * bf16x2_low(w) + d[1] * bf16x2_high(w);
    }
    warpgroup_sync();                    // the copies of the previous panel are done
    store_tile(s.out, dvb, s.beta[row], s.beta[row + 8]);
    warpgroup_sync();
    copy_swizzled_rows<CHUNK>(out<bf16>(a.dv, z.t, a.HV, n, a.V) + v0,
                              (int64_t)a.HV * a.V, z.len, s.out);
}

// Adds the terms of one panel: dvb = A^T dU, P += dO h^T, W += v_new dS^T, Q += dvb h^T
// and, if `all` is set, dL += dvb v_new^T.
static __device__ __forceinline__ void add_panel(const struct kcp_wy_backward &a,
                                                 struct token_range z, int n, int v0,
                                                 int group, int all,
                                                 struct wide_solve_storage &s,
                                                 const struct panel &x,
                                                 struct solved &y)
{
    const uint64_t h = smem_desc_k_major(x.h[group]);
    float dvb[8][4];
    uint32_t p[4][1][4];
    #pragma unroll
    for (int i = 0; i < 32; i++) dvb[i / 4][i % 4] = 0.0f;
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_m64n64k16_ss_trans<1, 1>(
            dvb, smem_desc_mn_major(s.A) + i * DESC_STEP_MN_MAJOR,
            smem_desc_mn_major(x.dU) + i * DESC_STEP_MN_MAJOR);
    wgmma_commit();
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = i * DESC_STEP_K_MAJOR;
        wgmma_m64n64k16_ss(y.P, smem_desc_k_major(x.dO) + step, h + step, 1);
        wgmma_m64n64k16_ss(y.W, smem_desc_k_major(x.v_new) + step,
                           smem_desc_k_major(x.dS[group]) + step, 1);
    }
    wgmma_commit();
    y.h_dS += dot_half_row(x.h[group], x.dS[group]);
    wgmma_wait<1>();
    fence_operand<8>(dvb);
    pack_accumulator<8>((uint32_t(*)[4])p, dvb);
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_m64n64k16_rs<0>(y.Q, p[i][0], h + i * DESC_STEP_K_MAJOR, 1);
    if (all)
        #pragma unroll
        for (int i = 0; i < 4; i++)
            wgmma_m64n64k16_rs<0>(y.dL, p[i][0], smem_desc_k_major(x.v_new)
                                                     + i * DESC_STEP_K_MAJOR, 1);
    wgmma_commit();
    if (all) use_dvb(a, z, n, v0, dvb, s, x, y);
    wgmma_wait<0>();
    keep_operand(p);
    fence_operand<8>(y.P);
    fence_operand<8>(y.W);
    fence_operand<8>(y.Q);
    fence_operand<8>(y.dL);
}

// Stores dL = -tril(dvb v_new^T, -1), and dbeta (see is_divisor).
static __device__ __forceinline__ void store_triangle(const struct kcp_wy_backward &a,
                                                      const struct intermediates &b,
                                                      struct token_range z, int n,
                                                      struct wide_solve_storage &s,
                                                      struct solved &y)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    #pragma unroll
    for (int i = 0; i < 32; i++) {
        const int r = row + i % 4 / 2 * 8, j = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (j >= r) y.dL[i / 4][i % 4] = 0.0f;
    }
    warpgroup_sync();                    // the copies of the last panel are done
    store_tile(s.out, y.dL, -1.0f, -1.0f);
    warpgroup_sync();
    copy_swizzled_rows<CHUNK>(b.dL + (z.t * a.HV + n) * CHUNK, (int64_t)a.HV * CHUNK,
                              z.len, s.out);
    #pragma unroll
    for (int j = 0; j < 2; j++) {
        float v = y.by_v[j], w = y.by_v_new[j];
        for (int m = 1; m < 4; m *= 2) {
            v += __shfl_xor_sync(~0u, v, m);
            w += __shfl_xor_sync(~0u, w, m);
        }
        const int i = row + 8 * j;
        const float beta = s.beta[i];
        if (lane % 4 == 0 && i < z.len)
            out<float>(a.dbeta, z.t + i, 1, 0, a.HV)[n] =
                is_divisor(beta) ? w / beta : v;
    }
}

static __global__ __launch_bounds__(256, 1)
void wy_solve_wide(const struct kcp_wy_backward a, const struct intermediates b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct wide_solve_storage &s = *(struct wide_solve_storage *)shared;
    const int c = blockIdx.x / 2, first = blockIdx.x % 2 * HALF, n = blockIdx.y;
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), i = threadIdx.x % 128;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const int count = a.V / 64, all = group == 0 && first == 0;
    struct solved y = {};

    if (group == 0)
        cp_async_tiles<1>(s.A, in<bf16>(a.A, z.t, a.HV, n, CHUNK),
                          (int64_t)a.HV * CHUNK, z.len, i);
    for (int p = 0; p < PANELS - 1; p++) {
        if (p < count) load_panel(a, z, c, n, first, 64 * p, group, s.at[p]);
        cp_async_commit();
    }
    if (threadIdx.x < CHUNK)
        s.beta[threadIdx.x] = threadIdx.x < z.len
            ? in<float>(a.beta, z.t + threadIdx.x, 1, 0, a.HV)[n] : 0.0f;
    for (int p = 0; p < count; p++) {
        cp_async_wait<PANELS - 2>();
        fence_proxy_async();
        __syncthreads();
        const int next = p + PANELS - 1;
        if (next < count)
            load_panel(a, z, c, n, first, 64 * next, group, s.at[next % PANELS]);
        cp_async_commit();
        add_panel(a, z, n, 64 * p, group, all, s, s.at[p % PANELS], y);
    }
    if (all) store_triangle(a, b, z, n, s, y);

    const float h_dS = y.h_dS + __shfl_xor_sync(~0u, y.h_dS, 1);
    const int d = first + 64 * group;
    if (i % 2 == 0)
        b.h_dS[((int64_t)c * a.HV + n) * ROWS_K + d + i / 2] = h_dS;
    __syncthreads();                     // all products have read the panels
    store_tile(s.at[0].h[group], y.P, 1.0f, 1.0f);
    store_tile(s.at[1].h[group], y.Q, -1.0f, -1.0f);
    store_tile(s.at[2].h[group], y.W, 1.0f, 1.0f);
    warpgroup_sync();
    const int64_t row = (z.t * a.HV + n) * ROWS_K + d, ld = (int64_t)a.HV * ROWS_K;
    copy_swizzled_rows<CHUNK>(b.P + row, ld, z.len, s.at[0].h[group]);
    copy_swizzled_rows<CHUNK>(b.Q + row, ld, z.len, s.at[1].h[group]);
    copy_swizzled_rows<CHUNK>(b.W + row, ld, z.len, s.at[2].h[group]);
}

int launch_solve_wide(const struct kcp_wy_backward *a, const struct intermediates *b)
{
    const size_t bytes = sizeof(struct wide_solve_storage);
    if (a->V % 64 || !device_is_sm90()) return KCP_NA;
    return launch_shared(wy_solve_wide, dim3(2 * a->NC, a->HV), 256, bytes, a->stream,
                         *a, *b);
}
