// v2_back_states.cuh -- backward through a chunk's triangular systems and states.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_back_storage.cuh"

// Computes y [C,16] += A^T x, with x as operand B. A [C,C] is lower triangular.
template <int C>
static __device__ __forceinline__ void upper_times(float (*y)[2][4], const bf16 *A,
                                                   const uint32_t (*x)[4])
{
    const int lane = threadIdx.x % 32, ld = C + PAD;
    #pragma unroll
    for (int i = 0; i < C / 16; i++)
        #pragma unroll
        for (int t = 0; t <= i; t++) {
            uint32_t a[4];
            ldmatrix_x4_trans(a,
                              A + i * 16 * ld + t * 16 + ldmatrix_offset_b(lane, ld));
            mma_m16n8k16(y[t][0], a, x[i][0], x[i][1]);
            mma_m16n8k16(y[t][1], a, x[i][2], x[i][3]);
        }
}

// Stores a result [C,16] in shared memory, or adds the result to the old values if
// `add` is set.
template <int C>
static __device__ __forceinline__ void put_columns(bf16 *to, int ld,
                                                   const float (*y)[2][4], int add)
{
    #pragma unroll
    for (int h = 0; h < C / 4; h++) {
        const float *o = y[h / 4][h / 2 % 2] + h % 2 * 2;
        uint32_t *at = (uint32_t *)(to + row_in(h / 4, h % 2 * 2) * ld +
                                    column_in(h / 2 % 2, 0));
        const uint32_t was = add ? *at : 0;
        *at = pack_bf16x2(o[0] + __uint_as_float(was << 16),
                          o[1] + __uint_as_float(was & 0xffff0000u));
    }
}

// Replaces dU by z = A^T dU, and dV by dv = dV + Aak^T z, with 16 columns per warp.
template <int model, int K, int V>
static __device__ void solve_back(struct back_storage<model, K, V> &s)
{
    enum { C = traits<model>::C };
    const int lane = threadIdx.x % 32;
    for (int c = threadIdx.x / 32 * 16; c < V && s.looks; c += blockDim.x / 2) {
        uint32_t x[C / 16][4];
        float y[C / 16][2][4] = {};
        #pragma unroll
        for (int p = 0; p < C / 16; p++)
            ldmatrix_x4_trans(x[p], &s.z[p * 16][c] + ldmatrix_offset_a(lane, V + PAD));
        upper_times<C>(y, s.Ab[0], x);
        __syncwarp();                        // all lanes have read the old columns
        put_columns<C>(&s.z[0][c], V + PAD, y, 0);
        if (s.m == 1) continue;
        pack_transposed<C>(x, y);
        for (int h = 0; h < C / 2; h++) y[h / 8][h / 4 % 2][h % 4] = 0.0f;
        upper_times<C>(y, s.B[0], x);
        put_columns<C>(&s.dV[0][c], V + PAD, y, 1);
    }
}

// Computes d [C,16] = X Y^T, where X is [C,V] and Y is 16 rows of a matrix [K,V].
template <int C, int V>
static __device__ __forceinline__ void rows_by_rows(struct slab<C> &d, const bf16 *X,
                                                    const bf16 *Y)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int p = 0; p < V; p += 16) {
        uint32_t a[4], b[4];
        ldmatrix_x4(b, Y + p + ldmatrix_offset_b(lane, V + PAD));
        #pragma unroll
        for (int t = 0; t < C / 16; t++) {
            ldmatrix_x4(a,
                        X + t * 16 * (V + PAD) + p + ldmatrix_offset_a(lane, V + PAD));
            mma_m16n16k16(d.x[t], a, b);
        }
    }
}

// Computes the terms of four gradients that contain h or dS: P for dq, W for dk, U for
// db, and Y for the gradient of the vector with which a token reads the state.
template <int model, int K, int V, int C>
static __device__ void state_gradients(struct back_storage<model, K, V> &s, float scale,
                                       int d0, struct slab<C> &P, struct slab<C> &Y,
                                       struct slab<C> &W, struct slab<C> &U)
{
    const int lane = threadIdx.x % 32;
    rows_by_rows<C, V>(P, s.dO[0], s.h[d0]);
    rows_by_rows<C, V>(W, s.m == 2 ? s.v[0] : s.x[0], s.dS[d0]);
    if (s.looks) rows_by_rows<C, V>(Y, s.z[0], s.h[d0]);
    if (s.m == 2) rows_by_rows<C, V>(U, s.x[0], s.dS[d0]);
    EACH(C, t, c, j) {
        const int i = row_in(t, j), d = d0 + column_in(c, j);
        const float E = ex2_approx(s.G[i + 1][d]);
        const float rest = ex2_approx(s.G[C][d] - s.G[i + 1][d]);
        P.x[t][c][j] *= scale * E;
        W.x[t][c][j] *= rest;
        U.x[t][c][j] *= rest;
        Y.x[t][c][j] *= s.m == 2 ? ex2_approx(s.G[i][d]) : -E;
    }
    float x = 0.0f;
    const int d = d0 + lane / 2;
    for (int v = lane % 2; v < V; v += 2) x += (float)s.h[d][v] * (float)s.dS[d][v];
    x += __shfl_xor_sync(~0u, x, 1);
    if (lane % 2 == 0) s.h_dS[d] = x;
}

// Computes a 16 x 16 tile of `factor` X Y^T, where rows of X and Y have length V. Tiles
// below the diagonal are stored in `to`, and diagonal tiles in near[I][i - early][j]
// (`early` is 1 if the read precedes the decay, so G_{i-1} replaces G_i). If `apart` is
// set, entries (i, i - early) are stored in `apart`, and become 0 in `to` and `near`.
template <int V, int C>
static __device__ void tile_of(const bf16 (*X)[V + PAD], const bf16 (*Y)[V + PAD],
                               int I, int J, float factor, bf16 (*to)[C + PAD],
                               bf16 *near, int step, int early, float *apart)
{
    const int lane = threadIdx.x % 32, ld = V + PAD;
    float d[2][4] = {};
    for (int p = 0; p < V; p += 16) {
        uint32_t a[4], b[4];
        ldmatrix_x4(a, X[16 * I] + p + ldmatrix_offset_a(lane, ld));
        ldmatrix_x4(b, Y[16 * J] + p + ldmatrix_offset_b(lane, ld));
        mma_m16n16k16(d, a, b);
    }
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        const int i = row_in(I, h % 4), j = 16 * J + column_in(h / 4, h % 4);
        const float x = factor * d[h / 4][h % 4];
        const int e = ((i - early) & 15) * 16 + j % 16 + I * 256;
        if (I != J) to[i][j] = apart && j == i - early ? (bf16)0.0f : (bf16)x;
        else near[e * step] = j < i - early ? (bf16)x : (bf16)0.0f;
        if (apart && j == i - early) apart[i] = x;
    }
}

// Computes a tile of dAak, dAqb or dAqk of DPLR.
template <int model, int K, int V>
static __device__ __forceinline__ void other_of(struct back_storage<model, K, V> &s,
                                                struct near<2> *e, int which, int I,
                                                int J, float scale)
{
    enum { C = traits<model>::C };
    if (which == 1)
        tile_of<V, C>(s.z, s.v, I, J, 1.0f, s.dB, &e->ak, 4, 1, s.next_k);
    else if (which == 2)
        tile_of<V, C>(s.dO, s.x, I, J, scale, s.of_qb, &e->qb, 4, 0, s.by_b);
    else tile_of<V, C>(s.dO, s.v, I, J, scale, s.of_qk, &e->qk, 4, 0, s.by_k);
}

template <int model, int K, int V>
static __device__ __forceinline__ void other_of(struct back_storage<model, K, V> &,
                                                struct near<1> *, int, int, int, float)
{
}

// Computes the gradients of the score matrices. DPLR: dAab = z x^T, dAak = z v^T, dAqb
// = scale dO x^T, dAqk = scale dO v^T. GDN-2: dL = -z v_new^T. Chapter 09 computes dAqk
// of GDN-2 and GLA.
template <int model, int K, int V>
static __device__ void systems(struct back_storage<model, K, V> &s, float scale)
{
    enum { C = traits<model>::C, m = traits<model>::m };
    const int of = m == 2 ? 4 : 1;
    const int all = C == CHUNK ? 10 : 3, tiles = !s.looks ? 0 : all;
    struct near<m> *e = s.near[0][0];
    const int step = sizeof *e / sizeof(bf16);
    for (int task = threadIdx.x / 32; task < tiles * of; task += blockDim.x / 32) {
        const int at = task / of;
        const int late = at < 6 ? 2 : 3, early = at < 3 ? 1 : late;
        const int I = at < 1 ? 0 : early;
        const int J = at - I * (I + 1) / 2, which = task % of;
        const float sign = m == 2 ? 1.0f : -1.0f;
        if (which == 0)
            tile_of<V, C>(s.z, s.x, I, J, sign, s.dL, &e->ab, step, s.early,
                          m == 2 ? s.next_b : NULL);
        else other_of(s, e, which, I, J, scale);
    }
    for (int at = threadIdx.x; at < C * 16 && m == 1; at += blockDim.x)
        e[at].qk = s.of_qk[at / 16][at / 256 * 16 + at % 16];
}
