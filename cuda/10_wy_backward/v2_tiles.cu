// v2_tiles.cu -- dq dk dv dbeta dg by tensor cores: a block a chunk and q/k head.
// Book: chapter 10, "One kernel, and what it spends".
// Checked by: tests/10_wy_backward/checks.c.
// Next: v3_split.cu.
#include "v2_tiles_steps.cuh"
#include "cuda/host/stages_v2.cuh"

// Bound: v1's were scattered reads of h and dS, and C^2 K/2 exponentials. Here all
// products, 6 C K V + 2 C^2 (K+V) + 14 C^2 K/2 flops, go to the tensor core, out of
// 211 KiB of shared memory (K = V = 128): one block an SM. 88 C K exponentials/4, about
// 6 us an SM, are the next bound. A warp owns 16 columns d of everything [64,K] and
// keeps P = dq1 + dq2, Q = E dkgb + dk2, W = dk_s + dkt in registers. A barrier stands
// before each phase that reads what other warps wrote.

// The sum of a row's 16 columns over the four lanes that hold them, to part [64].
static __device__ __forceinline__ void row_part(float (*x)[2], float *part)
{
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        float y = x[h / 2][h % 2];
        y += __shfl_xor_sync(~0u, y, 1);
        y += __shfl_xor_sync(~0u, y, 2);
        if (threadIdx.x % 4 == 0) part[row_in(h / 2, h % 2 * 2)] = y;
    }
}

// dvb = A^T dU, dv = beta dvb; x adds up dvb v by rows. Then Q = E A^T dw.
template <int K, int V>
static __device__ void through_A(const struct kcp_wy_backward &a, struct token_range z,
                                 int n, struct room<K, V> &s, int d0, slab &Q,
                                 float (*x)[2])
{
    for (int v0 = d0; v0 < V; v0 += K) {
        slab dvb = {};
        turned_by_columns(dvb, s.A[0], s.dU[0] + v0, V + PAD);
        EACH(t, c, j) {
            const int i = row_in(t, j), v = v0 + column_in(c, j);
            x[t][j / 2] += dvb[t][c][j] * (float)s.v[i][v];
            if (i < z.len && j % 2 == 0)
                *(uint32_t *)(out<bf16>(a.dv, z.t + i, a.HV, n, V) + v) =
                    pack_bf16x2(s.beta[i] * dvb[t][c][j], s.beta[i] * dvb[t][c][j + 1]);
        }
    }
    turned_by_columns(Q, s.A[0], s.dw[0] + d0, K + PAD);
    EACH(t, c, j)
    Q[t][c][j] *= ex2_approx(s.G[row_in(t, j)][a.KG > 1 ? d0 + column_in(c, j) : 0]);
}

// dG = q dq1 + beta k~ dkgb - k dk_s*, before the pairs add theirs. An element of dG
// belongs to one lane from here to the sums.
template <int K, int V>
static __device__ void start_dG(struct room<K, V> &s, int d0, int last, const slab &P,
                                const slab &Q, const slab &W)
{
    EACH(t, c, j) {
        const int i = row_in(t, j), d = d0 + column_in(c, j);
        s.dG[i][d] = (float)s.q[i][d] * P[t][c][j]
                   + (float)s.k[i][d] * (s.beta[i] * Q[t][c][j]
                                         - (i < last ? W[t][c][j] : 0.0f));
    }
}

// dq or dk of one element: of the whole group when n is its last head; heads before it
// leave their sum in work.
static __device__ __forceinline__ void add_head(const struct kcp_wy_backward &a, int n,
                                                int64_t at, int64_t part, float x,
                                                void *to)
{
    const int group = a.HV / a.H;
    float *sum = (float *)a.work + part + at;
    if (n % group) x += *sum;
    if (n % group == group - 1) ((bf16 *)to)[at] = x;
    else *sum = x;
}

// P, Q, W brought together: dq, dk, and by rows or columns what dbeta and dg need.
template <int K, int V>
static __device__ void gather(const struct kcp_wy_backward &a, struct token_range z,
                              int n, struct room<K, V> &s, int d0, const slab &P,
                              const slab &Q, const slab &W, float (*x)[2])
{
    const int m = n / (a.HV / a.H), kda = a.KG > 1, last = z.len - 1;
    float y[4][2] = {};
    EACH(t, c, j) {
        const int i = row_in(t, j), d = d0 + column_in(c, j);
        const float q = s.q[i][d], k = s.k[i][d], beta = s.beta[i];
        const float p = P[t][c][j], b = Q[t][c][j], w = W[t][c][j];
        float *dG = &s.dG[i][d];
        if (i == last) *dG += ex2_approx(s.G[i][kda ? d : 0]) * s.h_dS[d] + s.k_dks[d];
        x[t][j / 2] += k * b;
        y[t][j / 2] += *dG;
        if (i > last) continue;
        const int64_t at = ((z.t + i) * a.H + m) * K + d;
        add_head(a, n, at, 0, p + s.diagonal[i] * k, a.dq);
        add_head(a, n, at, a.T * a.H * K, w + beta * b + s.diagonal[i] * q, a.dk);
    }
    row_part(x, s.of_beta[d0 / 16]);
    row_part(y, s.of_gate[d0 / 16]);
}

// dbeta, and dg: the sum of dG over rows i .. last.
template <int K, int V>
static __device__ void finish(const struct kcp_wy_backward &a, struct token_range z,
                              int n, struct room<K, V> &s)
{
    const int i = threadIdx.x;
    float sum = 0.0f;
    if (i < z.len) {
        for (int w = 0; w < K / 16; w++) sum += s.of_beta[w][i];
        out<float>(a.dbeta, z.t + i, 1, 0, a.HV)[n] = sum;
    }
    sum = 0.0f;
    if (a.KG > 1 && i < K)
        for (int t = z.len - 1; t >= 0; t--)
            out<float>(a.dg, z.t + t, a.HV, n, K)[i] = sum += s.dG[t][i];
    if (a.KG == 1 && i < z.len) {
        for (int t = z.len - 1; t >= i; t--)
            for (int w = 0; w < K / 16; w++) sum += s.of_gate[w][t];
        out<float>(a.dg, z.t + i, a.HV, n, 1)[0] = sum;
    }
}

template <int K, int V>
static __global__ __launch_bounds__(2 * K, 1)
void wy_backward(const struct kcp_wy_backward a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct room<K, V> &s = *(struct room<K, V> *)shared;
    const int c = blockIdx.x, m = blockIdx.y, group = a.HV / a.H;
    const int d0 = threadIdx.x / 32 * 16;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);

    for (int n = m * group; n < (m + 1) * group; n++) {
        slab P = {}, Q = {}, W = {};
        float x[4][2] = {};
        fetch<K, V>(a, z, c, n, s);
        cp_async_wait<0>();
        __syncthreads();
        states<K, V>(a, s, d0, P, W);
        __syncthreads();
        turn_over<K, V>(a, z, n, s);
        __syncthreads();
        column_sums<K, V>(s, d0, z.len - 1, W);
        make_dA<K, V>(s);
        __syncthreads();
        make_X<K, V>(s);
        __syncthreads();
        make_dL<K, V>(s, a.KG == 1);
        through_A<K, V>(a, z, n, s, d0, Q, x);
        __syncthreads();
        start_dG<K, V>(s, d0, z.len - 1, P, Q, W);
        if (a.KG > 1) pairs_kda<K, V>(s, d0, P, Q, W);
        else pairs_gdn<K, V>(s, d0, P, Q, W);
        gather<K, V>(a, z, n, s, d0, P, Q, W, x);
        __syncthreads();
        finish<K, V>(a, z, n, s);
        __syncthreads();
    }
}

template <int K, int V>
static int launch(const struct kcp_wy_backward *a)
{
    const size_t bytes = sizeof(struct room<K, V>);
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (cudaFuncSetAttribute(wy_backward<K, V>, most, bytes) != cudaSuccess) {
        cudaGetLastError();              // this chip has less shared memory
        return KCP_NA;
    }
    wy_backward<K, V><<<dim3(a->NC, a->H), 2 * K, bytes, a->stream>>>(*a);
    return launched();
}

size_t v2_wy_backward_work(const void *args)
{
    const struct kcp_wy_backward *a = (const struct kcp_wy_backward *)args;
    return a->HV == a->H ? 0 : 2 * sizeof(float) * a->T * a->H * a->K;
}

int v2_wy_backward(void *args)
{
    const struct kcp_wy_backward *a = (const struct kcp_wy_backward *)args;
    const void *p[] = { a->q, a->k, a->v, a->A, a->v_new, a->h, a->do_, a->dAqk, a->dU,
                        a->dh, a->dv, a->KG > 1 ? a->G : a->dv };
    const int K = a->K, V = a->V;
    if (a->C != CHUNK || (K != 64 && K != 128) || (V != 64 && V != 128)) return KCP_NA;
    for (const void *x : p)
        if (!is_aligned_16(x)) return KCP_NA;
    if (a->work_bytes < v2_wy_backward_work(args)) return KCP_BAD;
    if (!a->NC) return KCP_OK;
    if (K == 64) return V == 64 ? launch<64, 64>(a) : launch<64, 128>(a);
    return V == 64 ? launch<128, 64>(a) : launch<128, 128>(a);
}

KCP_VARIANT(wy_backward_v2_tiles) = {
    "10_wy_backward", "v2_tiles", "tensor cores: a warp 16 columns of q, k and G",
    KCP_BF16, KCP_DEVICE, "K and V 64 or 128, C 64", v2_wy_backward,
    v2_wy_backward_work };
