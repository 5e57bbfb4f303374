// v3_split.cu -- dq, dk, dv, dbeta and dg in two kernels: the solve, then the pairs.
// Book: chapter T, "Two kernels".
#include "v3_split_solve.cuh"
#include "v3_split_pairs.cuh"
#include "cuda/host/stages_v2.cuh"

// Bound of the first kernel: memory, 3330 bytes per token and head at K = V = 128, 0.61
// ms for 8192 tokens of 96 heads. Bound of the second kernel: 55,000 warp instructions
// per chunk and head, 0.7 ms at four per cycle and SM (its 3080 bytes take 0.56 ms).
// Both kernels run two blocks of eight warps per SM (112 KiB per block, 128 registers
// per thread). A barrier precedes each phase that reads what other warps wrote.

// Computes dq, dk and the terms of dbeta and dg. Stores this thread's sums over 16 rows
// in s.whole, and gates() adds these sums to dg. Rows are processed from last to first,
// so that the dkt of a row is complete before the row is processed.
template <int K, int heads>
static __device__ __forceinline__ void combine_paths(const struct kcp_wy_backward &a,
                                                     const struct intermediates &b,
                                                     struct token_range z, int m, int n,
                                                     int d0, struct pair_storage &s,
                                                     struct column &x)
{
    const int ld = a.H * K, group = a.HV / a.H;
    const int more = n > m * group, last = heads == 1 || n + 1 == (m + 1) * group;
    const int64_t first = (z.t * a.H + m) * K + d0 + x.d;
    bf16 *dq = (bf16 *)a.dq + first, *dk = (bf16 *)a.dk + first;
    float by_rows = 0.0f, by_columns = 0.0f, up = 0.0f, far[4] = {};
    #pragma unroll
    for (int r = 0; r < 16; r++) x.dkt[r] = 0.0f;
    #pragma unroll
    for (int r = 15; r >= 0; r--) {
        const int i = 16 * x.B + r;
        const float q = s.q[i][x.d], k = x.k[r], beta = s.beta[i];
        const float A = s.diagonal[i][r].x, E = ex2_approx(x.G[r]);
        const float P = (float)a.scale * E * (float)s.raw[0][i][x.d];
        const float W = ex2_approx(s.G_last[x.d] - x.G[r]) * (float)s.raw[1][i][x.d];
        const float Q = E * (float)s.raw[2][i][x.d];
        float dq2 = 0.0f, dk2 = 0.0f, dkt = 0.0f;
        row_pairs(s, r, q, beta * k, x, dq2, dk2);
        up += q * dq2 + k * (beta * dk2 - x.dkt[r]);
        dq2 += P;
        dk2 += Q;
        float rows = q * P + beta * k * Q;
        by_rows += rows;
        if (x.B) {
            const float E16 = ex2_approx(x.G[r] - x.G[0]);
            const float y0 = E16 * (float)s.qE[0][x.B - 1][r][x.d];
            const float y1 = E16 * (float)s.qE[1][x.B - 1][r][x.d];
            rows += q * y0 + beta * k * y1;
            dq2 += y0;
            dk2 += y1;
        }
        #pragma unroll
        for (int I = 1; I < 4; I++)
            if (I > x.B) {
                const float y = ex2_approx(s.G_first[I][x.d] - x.G[r])
                                * (float)s.kF[tile_of(I, x.B)][r][x.d];
                dkt += y;
                far[I] += k * y;
            }
        by_columns += k * W;
        x.up[r] = up += rows;
        x.down[r] = k * (W + dkt);
        keep(s, i, x.d, k * dk2);
        if (i >= z.len) continue;
        float2 y = { dq2 + A * k, W + dkt + x.dkt[r] + beta * dk2 + A * q };
        if (heads > 1) {                 // add the sum of earlier heads
            float2 *sum = row_at(b.sums + first, i, 8 * ld);
            if (more) {
                y.x += sum->x;
                y.y += sum->y;
            }
            if (!last) *sum = y;
        }
        if (last) {
            *row_at(dq, i, 2 * ld) = y.x;
            *row_at(dk, i, 2 * ld) = y.y;
        }
    }
    s.whole[0][x.B][x.d] = by_rows;
    s.whole[1][x.B][x.d] = by_columns;
    s.whole[2][x.B][x.d] = far[2];
    s.whole[3][x.B][x.d] = far[3];
}

// Computes dg_t as exp2(G_last) sum_v h dS, plus the sums of the three 16-row blocks
// that do not contain row t, plus the sums of the block that contains row t.
template <int K>
static __device__ __forceinline__ void gates(const struct kcp_wy_backward &a,
                                             struct token_range z, int n, int d0,
                                             float h_dS, struct pair_storage &s,
                                             struct column &x)
{
    float sum = h_dS;
    #pragma unroll
    for (int B = 0; B < 4; B++) {
        if (B > x.B) sum += s.whole[0][B][x.d];
        if (B < x.B) sum += s.whole[1][B][x.d];
        for (int I = B + 2; I < 4; I++)
            if (B < x.B && x.B < I) sum += s.whole[I][B][x.d];
    }
    float *dg = out<float>(a.dg, z.t, a.HV, n, a.KG) + d0 + x.d;
    const int ld = 4 * a.HV * a.KG;
    #pragma unroll
    for (int r = 0; r < 16; r++) {
        const int i = 16 * x.B + r;
        x.up[r] += sum;
        sum += x.down[r];
        if (a.KG > 1 && i < z.len) *row_at(dg, i, ld) = x.up[r];
    }
    if (a.KG == 1) reduce_rows(x.up, d0 == 0, s.of_gate[x.d / 32] + 16 * x.B);
}

// Second kernel: a block processes one chunk and query/key head, 64 columns at a time.
template <int K, int heads>
static __global__ __launch_bounds__(256, 2)
void wy_pairs(const struct kcp_wy_backward a, const struct intermediates b)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct pair_storage &s = *(struct pair_storage *)shared;
    const int c = blockIdx.x, m = blockIdx.y, i = threadIdx.x;
    const int group = heads == 1 ? 1 : a.HV / a.H;
    if (i == 0) {
        s.z = chunk_tokens(a, ((const int *)a.sc)[c], c);
        s.end = (m + 1) * group;
    }
    __syncthreads();

    for (int n = m * group; n < (heads == 1 ? m + 1 : s.end); n++) {
        fetch_raw(a, b, s.z, m, n, 0, s);
        load_columns_async(a, s.z, m, n, 0, s);
        fetch_matrices(a, b.dL, s.z, n, s);
        #pragma unroll 1
        for (int d0 = 0; d0 < K; d0 += COLS) {
            struct column x;
            cp_async_wait<0>();
            __syncthreads();
            column_of_thread(x);
            load_column(s, x);
            make_factors(s, x);
            __syncthreads();
            if (d0 + COLS < K) load_columns_async(a, s.z, m, n, d0 + COLS, s);
            products(s);
            combine_paths<K, heads>(a, b, s.z, m, n, d0, s, x);
            column_of_thread(x);
            for (int r = 0; r < 16; r++) x.k[r] = kept(s, 16 * x.B + r, x.d);
            reduce_rows(x.k, d0 == 0, s.of_beta[x.d / 32] + 16 * x.B);
            const float h_dS = ex2_approx(s.G_last[x.d])
                               * b.h_dS[((int64_t)c * a.HV + n) * K + d0 + x.d];
            __syncthreads();
            if (d0 + COLS < K) fetch_raw(a, b, s.z, m, n, d0 + COLS, s);
            gates<K>(a, s.z, n, d0, h_dS, s, x);
        }
        __syncthreads();
        if (i < s.z.len) {
            float *to = out<float>(a.dbeta, s.z.t + i, 1, 0, a.HV) + n;
            if (!is_divisor(s.beta[i])) *to += s.of_beta[0][i] + s.of_beta[1][i];
            to = out<float>(a.dg, s.z.t + i, 1, 0, a.HV) + n;
            if (a.KG == 1) *to = s.of_gate[0][i] + s.of_gate[1][i];
        }
        __syncthreads();
    }
}

// Places the first kernel's results in the workspace. If HV = H, the arrays of dq and
// dk hold P = dO h^T and W = v_new dS^T until dq and dk are computed.
static size_t intermediates_layout(const struct kcp_wy_backward *a,
                                   struct intermediates *b)
{
    const size_t rows = (size_t)a->T * a->HV, bf = sizeof(bf16), f = sizeof(float);
    char *p = (char *)a->work;
    b->P = (bf16 *)a->dq;
    b->W = (bf16 *)a->dk;
    b->Q = (bf16 *)p;
    p += rows * a->K * bf;
    b->dL = (bf16 *)p;
    p += rows * CHUNK * bf;
    b->h_dS = (float *)p;
    p += (size_t)a->NC * a->HV * a->K * f;
    if (a->HV == a->H) return p - (char *)a->work;
    b->P = (bf16 *)p;
    p += rows * a->K * bf;
    b->W = (bf16 *)p;
    p += rows * a->K * bf;
    b->sums = (float2 *)p;
    p += (size_t)a->T * a->H * a->K * sizeof *b->sums;
    return p - (char *)a->work;
}

template <int K>
static int launch_pairs(const struct kcp_wy_backward *a, const struct intermediates *b)
{
    const size_t bytes = sizeof(struct pair_storage);
    const auto kernel = a->HV == a->H ? wy_pairs<K, 1> : wy_pairs<K, 2>;
    return launch_shared(kernel, dim3(a->NC, a->H), 256, bytes, a->stream, *a, *b);
}

template <int K, int V>
static int wy_backward_v3_split_launch(const struct kcp_wy_backward *a)
{
    struct intermediates b = {};
    const size_t bytes = sizeof(struct solve_storage<K, V>);
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (cudaFuncSetAttribute(wy_solve<K, V>, most, bytes) != cudaSuccess) {
        cudaGetLastError();              // too little shared memory on this GPU
        return KCP_NA;
    }
    intermediates_layout(a, &b);
    wy_solve<K, V><<<dim3(a->NC, a->HV), 2 * K, bytes, a->stream>>>(*a, b);
    return launch_pairs<K>(a, &b);
}

#ifdef KCP_HOPPER
static int wy_backward_k256(const struct kcp_wy_backward *a)
{
    struct intermediates b = {};
    intermediates_layout(a, &b);
    const int status = launch_solve_wide(a, &b);
    return status ? status : launch_pairs<256>(a, &b);
}
#else
static int wy_backward_k256(const struct kcp_wy_backward *) { return KCP_NA; }
#endif

size_t v3_wy_backward_work(const void *args)
{
    struct intermediates b = {};
    return intermediates_layout((const struct kcp_wy_backward *)args, &b);
}

int v3_wy_backward(void *args)
{
    const struct kcp_wy_backward *a = (const struct kcp_wy_backward *)args;
    const void *p[] = { a->q, a->k, a->v, a->A, a->v_new, a->h, a->do_, a->dAqk, a->dU,
                        a->dh, a->dv, a->dq, a->dk, a->work,
                        a->KG > 1 ? a->G : a->work };
    const int K = a->K, V = a->V;
    const int small = (K == 64 || K == 128) && (V == 64 || V == 128);
    if (a->C != CHUNK || (!small && K != 256)) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (a->work_bytes < v3_wy_backward_work(args)) return KCP_BAD;
    if (!a->NC) return KCP_OK;
    if (K == 256) return wy_backward_k256(a);
    if (K == 64)
        return V == 64 ? wy_backward_v3_split_launch<64, 64>(a)
                       : wy_backward_v3_split_launch<64, 128>(a);
    return V == 64 ? wy_backward_v3_split_launch<128, 64>(a)
                   : wy_backward_v3_split_launch<128, 128>(a);
}

KCP_VARIANT(wy_backward_v3_split) = {
    "10_wy_backward", "v3_split", "two kernels: the solve, then the pairs of rows",
    KCP_BF16, KCP_DEVICE, "K, V 64 or 128; K 256, V of 64; C 64", v3_wy_backward,
    v3_wy_backward_work };
