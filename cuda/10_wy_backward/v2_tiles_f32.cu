// v2_tiles_f32.cu -- dq, dk, dv, dbeta, dg in fp32, from tiles in shared memory.
// Book: chapter 08, "Paths".
#include "cuda/tile/fp32_tile.cuh"
#include "cuda/tile/math.cuh"

// A block processes the value heads of a query/key head of a chunk one after another. A
// thread owns 4 rows and K/16 columns of the gradients of q, k and G, in registers.
// Bound: fp32 multiply-adds, and C^2 K exponentials. `of_k` holds h, then dh, then k
// and first k~ = exp2(G) k, then q. `x` holds dO, v_new, v, then G. `P` holds X = dA
// A^T, then dAqk. In the end dU and dw hold terms of dG.
struct wy_backward_storage {
    union {
        float of_k[2 * TILE_ROWS][WIDE];
        struct { float k[TILE_ROWS][WIDE], q[TILE_ROWS][WIDE]; };
    };
    float dU[TILE_ROWS][WIDE], x[TILE_ROWS][WIDE], dw[TILE_ROWS][WIDE];
    float A[TILE_ROWS][NARROW], dA[TILE_ROWS][NARROW], P[TILE_ROWS][NARROW];
    float beta[TILE_ROWS], one[TILE_ROWS], last[2 * TILE_ROWS], dG[TILE_ROWS];
};

// Part [4][4] of a thread's columns: the columns tile_column(1, s) + 64 c.
#define EACH(r, c, s)                                                                  \
    _Pragma("unroll") for (int r = 0; r < 4; r++)                                      \
        _Pragma("unroll") for (int c = 0; c < K / 64; c++)                             \
            _Pragma("unroll") for (int s = 0; s < 4; s++)

static __device__ __forceinline__ void arrived(void)
{
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
}

template <class X>
static __device__ __forceinline__ float sum_16(X x)
{
    #pragma unroll
    for (int b = 8; b; b /= 2) x += __shfl_xor_sync(~0u, x, b);
    return x;
}

// Adds A^T b to y, for this thread's columns of b.
template <int parts>
static __device__ __forceinline__ void add_columns(float (*y)[4][4],
                                                   const float (*A)[NARROW],
                                                   const float (*b)[WIDE])
{
    const int i = tile_row<4>();
    for (int p = i; p < TILE_ROWS; p++) {
        float x[4];
        load4(x, &A[p][i]);
        #pragma unroll
        for (int c = 0; c < parts; c++)
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                const float z = b[p][tile_column(1, s) + 64 * c];
                #pragma unroll
                for (int r = 0; r < 4; r++) y[c][r][s] += x[r] * z;
            }
    }
}

// Computes dL in place of dA: X = dA A^T, dL = -tril(A^T X, -1), as A = (I + L)^-1.
static __device__ void through_inverse(struct wy_backward_storage &m)
{
    const int i = tile_row<4>(), j = tile_column(0, 0);
    float X[4][4] = {}, y[4][4] = {};
    add_by_rows<4>(X, m.dA, m.A, TILE_ROWS);
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            m.P[i + r][tile_column(1, s)] = tile_column(1, s) < i + r ? X[r][s] : 0.0f;
    __syncthreads();
    add_transposed<4>(y, m.A, m.P, m.one, TILE_ROWS);
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            m.dA[i + r][j + s] = j + s < i + r ? -y[r][s] : 0.0f;
    __syncthreads();
}

// Adds the terms of pairs of tokens, with D_ij = exp2(G_i - G_j) <= 1: to dq2*_i, over
// j < i, dAqk_ij k_j D_ij, to dk2_i dL_ij k_j D_ij, and to dkt*_j, over i > j, (dAqk_ij
// q_i + dL_ij beta_i k_i) D_ij.
template <int K, int kda>
static __device__ void add_pairs(const struct wy_backward_storage &m,
                                 float (*dq2)[4][4], float (*dk2)[4][4],
                                 float (*dkt)[4][4])
{
    const int i4 = tile_row<4>();
    float G[K / 64][4][4];
    EACH(r, c, s) G[c][r][s] = m.x[i4 + r][kda ? tile_column(1, s) + 64 * c : 0];
    for (int j = 0; j < i4 + 3; j++)
        EACH(r, c, s) {
            const int d = tile_column(1, s) + 64 * c;
            if (j >= i4 + r) continue;
            const float kD = m.k[j][d] * ex2_approx(G[c][r][s] - m.x[j][kda ? d : 0]);
            dq2[c][r][s] += m.P[i4 + r][j] * kD;
            dk2[c][r][s] += m.dA[i4 + r][j] * kD;
        }
    for (int i = i4 + 1; i < TILE_ROWS; i++) {
        float dAqk[4], dL[4];
        load4(dAqk, &m.P[i][i4]);
        load4(dL, &m.dA[i][i4]);
        EACH(r, c, s) {
            const int d = tile_column(1, s) + 64 * c;
            if (i <= i4 + r) continue;
            dkt[c][r][s] += (dAqk[r] * m.q[i][d] + dL[r] * m.beta[i] * m.k[i][d])
                          * ex2_approx(m.x[i][kda ? d : 0] - G[c][r][s]);
        }
    }
}

// The gate's gradient is the sum of dG over the rows from t to the last. KDA sums per
// channel, GDN over channels too. Only the last row has the terms in m.last and m.dw.
static __device__ void store_dg(const struct kcp_wy_backward &a, struct token_range z,
                                int n, struct wy_backward_storage &m)
{
    const int d = threadIdx.x, kda = a.KG > 1;
    if (d < a.K) {
        float sum = m.last[d];
        for (int i = 0; i < z.len; i++) sum += m.dw[i][d];
        m.dU[z.len - 1][d] += sum;
        for (int i = z.len - 1; i >= 0 && kda; i--) {
            if (i < z.len - 1) m.dU[i][d] += m.dU[i + 1][d];
            out<float>(a.dg, z.t + i, a.HV, n, a.K)[d] = m.dU[i][d];
        }
    }
    __syncthreads();
    if (kda) return;
    for (int i = d; i < z.len; i += blockDim.x) {
        float sum = 0.0f;
        for (int p = 0; p < a.K; p++) sum += m.dU[i][p];
        m.dG[i] = sum;
    }
    __syncthreads();
    for (int i = d; i < z.len; i += blockDim.x) {
        float sum = 0.0f;
        for (int p = z.len - 1; p >= i; p--) sum += m.dG[p];
        out<float>(a.dg, z.t + i, a.HV, n, 1)[0] = sum;
    }
}

// The last row of dG gets, per channel, the sum of h dS times the chunk's decay.
template <int K, int V>
static __device__ __forceinline__ void sum_h_dS(const struct kcp_wy_backward &a,
                                                struct token_range z, int n, int warp,
                                                const float *dS,
                                                struct wy_backward_storage &m)
{
    for (int d = warp; d < K; d += TILE_THREADS / 32) {
        float sum = 0.0f;
        for (int v = threadIdx.x % 32; v < V; v += 32)
            sum += m.of_k[d][v] * dS[d * V + v];
        sum = sum_16(sum);
        sum += __shfl_xor_sync(~0u, sum, 16);
        m.last[d] = exp2f(gate(a, z.t + z.len - 1, n, d)) * sum;
    }
}

static __device__ __forceinline__ void load_beta(const struct kcp_wy_backward &a,
                                                 struct token_range z, int n,
                                                 struct wy_backward_storage &m)
{
    if (threadIdx.x < TILE_ROWS) {
        const int i = threadIdx.x;
        m.beta[i] = i < z.len ? in<float>(a.beta, z.t + i, 1, 0, a.HV)[n] : 0.0f;
        m.one[i] = 1.0f;
    }
}

// Computes k~ = exp2(G) k.
template <int K>
static __device__ __forceinline__ void gate_keys(const struct kcp_wy_backward &a,
                                                 struct token_range z, int n,
                                                 struct wy_backward_storage &m)
{
    for (int at = threadIdx.x; at < TILE_ROWS * K; at += blockDim.x) {
        const int i = at / K, d = at % K;
        m.q[i][d] = i < z.len ? exp2f(gate(a, z.t + i, n, d)) * m.k[i][d] : 0.0f;
    }
}

// Stores dbeta of 4 rows. `sums` is this thread's part.
static __device__ __forceinline__ void store_dbeta(const struct kcp_wy_backward &a,
                                                   struct token_range z, int i4, int n,
                                                   const float *sums)
{
    for (int r = 0; r < 4; r++) {
        const float sum = sum_16(sums[r]);
        if (threadIdx.x % 16 == 0 && i4 + r < z.len)
            out<float>(a.dbeta, z.t + i4 + r, 1, 0, a.HV)[n] = sum;
    }
}

// Processes one value head. With `first`, dq and dk are stored, otherwise added.
template <int K, int V, int kda>
static __device__ void head(const struct kcp_wy_backward &a, struct token_range z,
                            int c0, int n, int first, struct wy_backward_storage &m)
{
    const int h = n / (a.HV / a.H), i4 = tile_row<4>(), warp = threadIdx.x / 32;
    const int64_t state = ((int64_t)c0 * a.HV + n) * K * V;
    const int64_t kv = (int64_t)a.HV * V, qk = (int64_t)a.H * K;
    const float *dS = (const float *)a.dh + state;
    float q1[K / 64][4][4] = {}, ks[K / 64][4][4] = {}, kb[K / 64][4][4] = {};
    float dq2[K / 64][4][4] = {}, dk2[K / 64][4][4] = {}, dkt[K / 64][4][4] = {};
    float dvb[V / 64][4][4] = {}, y[4][4] = {}, sums[4] = {};

    // dw = -dU h^T, dO h^T, and the sum of h dS per channel
    copy_tile(m.of_k, (const float *)a.h + state, V, K, V, K);
    copy_tile(m.dU, in<float>(a.dU, z.t, a.HV, n, V), kv, z.len, V);
    copy_tile(m.x, in<float>(a.do_, z.t, a.HV, n, V), kv, z.len, V);
    copy_tile(m.A, in<float>(a.A, z.t, a.HV, n, TILE_ROWS), (int64_t)a.HV * TILE_ROWS,
              z.len, TILE_ROWS);
    load_beta(a, z, n, m);
    arrived();
    #pragma unroll
    for (int c = 0; c < K / 64; c++) {
        for (int e = 0; e < 16; e++) y[e / 4][e % 4] = 0.0f;
        add_by_rows<4>(y, m.dU, m.of_k + 64 * c, V);
        for (int e = 0; e < 16; e++)
            m.dw[i4 + e / 4][tile_column(1, e % 4) + 64 * c] = -y[e / 4][e % 4];
        add_by_rows<4>(q1[c], m.x, m.of_k + 64 * c, V);
    }
    sum_h_dS<K, V>(a, z, n, warp, dS, m);
    __syncthreads();

    // v_new dS^T
    copy_tile(m.of_k, dS, V, K, V, K);
    copy_tile(m.x, in<float>(a.v_new, z.t, a.HV, n, V), kv, z.len, V);
    arrived();
    #pragma unroll
    for (int c = 0; c < K / 64; c++) add_by_rows<4>(ks[c], m.x, m.of_k + 64 * c, V);
    __syncthreads();

    // dA, dv = beta A^T dU, and dL
    copy_tile(m.k, in<float>(a.k, z.t, a.H, h, K), qk, z.len, K);
    copy_tile(m.x, in<float>(a.v, z.t, a.HV, n, V), kv, z.len, V);
    arrived();
    gate_keys<K>(a, z, n, m);
    __syncthreads();
    for (int e = 0; e < 16; e++) y[e / 4][e % 4] = 0.0f;
    add_by_rows<4>(y, m.dU, m.x, V);
    add_by_rows<4>(y, m.dw, m.q, K);
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++) {
            const int j = tile_column(1, s);
            m.dA[i4 + r][j] = j < i4 + r ? y[r][s] * m.beta[j] : 0.0f;
        }
    add_columns<V / 64>(dvb, m.A, m.dU);
    for (int r = 0; r < 4; r++)
        for (int e = 0; e < V / 16; e++) {
            const int v = tile_column(1, e % 4) + 64 * (e / 4);
            const float x = dvb[e / 4][r][e % 4];
            sums[r] += x * m.x[i4 + r][v];
            if (i4 + r < z.len)
                out<float>(a.dv, z.t + i4 + r, a.HV, n, V)[v] = m.beta[i4 + r] * x;
        }
    __syncwarp();                        // a warp reads only its own rows of dA
    through_inverse(m);

    // the pairs of tokens
    copy_tile(m.q, in<float>(a.q, z.t, a.H, h, K), qk, z.len, K);
    copy_tile(m.P, in<float>(a.dAqk, z.t, a.HV, n, TILE_ROWS),
              (int64_t)a.HV * TILE_ROWS, z.len, TILE_ROWS);
    for (int at = threadIdx.x; at < TILE_ROWS * a.KG; at += blockDim.x) {
        const int i = at / a.KG, t = i < z.len ? i : z.len - 1;
        m.x[i][at % a.KG] = gate(a, z.t + t, n, at % a.KG);
    }
    add_columns<K / 64>(kb, m.A, m.dw);  // reads all rows of dw, which change below
    arrived();
    add_pairs<K, kda>(m, dq2, dk2, dkt);

    // the sum over all paths of the chain rule
    EACH(r, c, s) {
        const int i = i4 + r, d = tile_column(1, s) + 64 * c;
        const float G = m.x[i][kda ? d : 0], E = exp2f(G), q = m.q[i][d], k = m.k[i][d];
        const float dq1 = (float)a.scale * E * q1[c][r][s], beta = m.beta[i];
        const float dk_s = exp2f(m.x[z.len - 1][kda ? d : 0] - G) * ks[c][r][s];
        const float dk_b = E * kb[c][r][s] + dk2[c][r][s], dAqk = m.P[i][i];
        const float star = i < z.len - 1 ? dk_s : 0.0f;
        sums[r] += dk_b * k;
        m.dU[i][d] = q * (dq1 + dq2[c][r][s]) - k * star
                   + k * (beta * dk_b - dkt[c][r][s]);
        m.dw[i][d] = k * star;
        if (i >= z.len) continue;
        float *dq = out<float>(a.dq, z.t + i, a.H, h, K) + d;
        float *dk = out<float>(a.dk, z.t + i, a.H, h, K) + d;
        *dq = (first ? 0.0f : *dq) + dq1 + dq2[c][r][s] + dAqk * k;
        *dk = (first ? 0.0f : *dk) + dk_s + beta * dk_b + dkt[c][r][s] + dAqk * q;
    }
    store_dbeta(a, z, i4, n, sums);
    __syncthreads();
    store_dg(a, z, n, m);                // ends with a barrier before the last sums
}

template <int K, int V, int kda>
static __global__ __launch_bounds__(TILE_THREADS, 1) void wy_backward(
    const struct kcp_wy_backward a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    const int c = blockIdx.x, group = a.HV / a.H, n = blockIdx.y * group;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    for (int i = 0; i < group; i++)
        head<K, V, kda>(a, z, c, n + i, i == 0, *(struct wy_backward_storage *)shared);
}

template <int K, int V>
static int launch(const struct kcp_wy_backward *a)
{
    const size_t bytes = sizeof(struct wy_backward_storage);
    const auto kernel = a->KG > 1 ? wy_backward<K, V, 1> : wy_backward<K, V, 0>;
    return launch_shared(kernel, dim3(a->NC, a->H), TILE_THREADS, bytes, a->stream, *a);
}

int v2_wy_backward_f32(void *args)
{
    const struct kcp_wy_backward *a = (const struct kcp_wy_backward *)args;
    const void *p[] = { a->q, a->k, a->v, a->A, a->v_new, a->h, a->do_, a->dAqk, a->dU,
                        a->dh };
    if (!takes_fp32((const struct kcp_call *)a, p)) return KCP_NA;
    if (!a->NC) return KCP_OK;
    if (a->K == 64) return a->V == 64 ? launch<64, 64>(a) : launch<64, 128>(a);
    return a->V == 64 ? launch<128, 64>(a) : launch<128, 128>(a);
}

KCP_VARIANT(wy_backward_v2_tiles_f32) = {
    "10_wy_backward", "v2_tiles_f32",
    "a block per chunk and query/key head, 4 rows per thread",
    KCP_F32, KCP_DEVICE, "K, V 64 or 128, C 64", v2_wy_backward_f32, NULL };
