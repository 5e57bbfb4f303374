// v2_tiles_steps.cuh -- the first steps of a chunk: what is fetched, and two states.
// Book: chapter 10, "One kernel, and what it spends".
// Checked by: tests/10_wy_backward/checks.c.
// Next: v2_tiles.cu.
#include "v2_tiles_pairs.cuh"

template <int K, int V>
static __device__ void fetch(const struct kcp_wy_backward &a, struct token_range z,
                             int c, int n, struct room<K, V> &s)
{
    const int64_t HV = a.HV, state = ((int64_t)c * a.HV + n) * K * V;
    for (int at = threadIdx.x; at < K * V / 8; at += blockDim.x) {
        const int i = at / (V / 8), v = at % (V / 8) * 8;
        cp_async_16(&s.h[i][v], (const bf16 *)a.h + state + i * V + v, 1);
        cp_async_16(&s.dS[i][v], (const bf16 *)a.dh + state + i * V + v, 1);
    }
    cp_async_rows<V>(s.dO[0], in<bf16>(a.do_, z.t, a.HV, n, V), HV * V, z.len);
    cp_async_rows<V>(s.v_new[0], in<bf16>(a.v_new, z.t, a.HV, n, V), HV * V, z.len);
    cp_async_rows<V>(s.dU[0], in<bf16>(a.dU, z.t, a.HV, n, V), HV * V, z.len);
    cp_async_rows<CHUNK>(s.A[0], in<bf16>(a.A, z.t, a.HV, n, CHUNK), HV * CHUNK, z.len);
    cp_async_rows<CHUNK>(s.dAqk[0], in<bf16>(a.dAqk, z.t, a.HV, n, CHUNK), HV * CHUNK,
                         z.len);
    for (int at = threadIdx.x; at < CHUNK * K / 4 && a.KG > 1; at += blockDim.x) {
        const int i = at / (K / 4), t = i < z.len ? i : z.len - 1, d = at % (K / 4) * 4;
        cp_async_16(&s.G[i][d], in<float>(a.G, z.t + t, a.HV, n, K) + d, 1);
    }
    cp_async_commit();
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
        if (a.KG == 1) s.G[i][0] = gate(a, z.t + (i < z.len ? i : z.len - 1), n, 0);
        s.beta[i] = i < z.len ? in<float>(a.beta, z.t + i, 1, 0, a.HV)[n] : 0.0f;
    }
}

// P = dq1 = scale E (dO h^T), W = dk_s = exp2(G_last - G) (v_new dS^T), dw = -dU h^T,
// and h_dS = sum_v h dS.
template <int K, int V>
static __device__ void states(const struct kcp_wy_backward &a, struct room<K, V> &s,
                              int d0, slab &P, slab &W)
{
    const int lane = threadIdx.x % 32, kda = a.KG > 1;
    slab dw = {};
    rows_by_rows<V>(P, s.dO[0], V + PAD, s.h[d0], V + PAD);
    rows_by_rows<V>(W, s.v_new[0], V + PAD, s.dS[d0], V + PAD);
    rows_by_rows<V>(dw, s.dU[0], V + PAD, s.h[d0], V + PAD);
    EACH(t, c, j) {
        const int i = row_in(t, j), d = d0 + column_in(c, j);
        const float G = s.G[i][kda ? d : 0], G_last = s.G[CHUNK - 1][kda ? d : 0];
        P[t][c][j] *= (float)a.scale * ex2_approx(G);
        W[t][c][j] *= ex2_approx(G_last - G);
        s.dw[i][d] = -dw[t][c][j];
    }
    float x = 0.0f;
    const int d = d0 + lane / 2;
    for (int v = lane % 2; v < V; v += 2) x += (float)s.h[d][v] * (float)s.dS[d][v];
    x += __shfl_xor_sync(~0u, x, 1);
    if (lane % 2 == 0) s.h_dS[d] = x;
}

// q, k, v take the place of h and dS; k~ = exp2(G) k; dAqk's diagonal is set apart.
template <int K, int V>
static __device__ void turn_over(const struct kcp_wy_backward &a, struct token_range z,
                                 int n, struct room<K, V> &s)
{
    const int m = n / (a.HV / a.H);
    cp_async_rows<K>(s.q[0], in<bf16>(a.q, z.t, a.H, m, K), (int64_t)a.H * K, z.len);
    cp_async_rows<K>(s.k[0], in<bf16>(a.k, z.t, a.H, m, K), (int64_t)a.H * K, z.len);
    cp_async_rows<V>(s.v[0], in<bf16>(a.v, z.t, a.HV, n, V), (int64_t)a.HV * V, z.len);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    for (int at = threadIdx.x; at < CHUNK * K; at += blockDim.x) {
        const int i = at / K, d = at % K;
        s.kE[i][d] = ex2_approx(s.G[i][a.KG > 1 ? d : 0]) * (float)s.k[i][d];
    }
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x)
        s.diagonal[i] = (float)s.dAqk[i][i];
}

// k_dks = sum over the rows but the last of k dk_s.
template <int K, int V>
static __device__ void column_sums(struct room<K, V> &s, int d0, int last,
                                   const slab &W)
{
    float x[2][2] = {};
    EACH(t, c, j) {
        const int i = row_in(t, j);
        if (i < last) x[c][j % 2] += (float)s.k[i][d0 + column_in(c, j)] * W[t][c][j];
    }
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        float y = x[h / 2][h % 2];
        for (int b = 4; b < 32; b *= 2) y += __shfl_xor_sync(~0u, y, b);
        if (threadIdx.x % 32 < 4) s.k_dks[d0 + column_in(h / 2, h % 2)] = y;
    }
}
