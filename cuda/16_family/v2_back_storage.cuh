// v2_back_storage.cuh -- layout of the backward kernel's shared memory, and its loads.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_form.cuh"

// Gradients of the scores of a pair of rows e and j in a block of 16 rows. The scores
// contain the decay exp2(G_e - G_j). `qk` and `qb` are for scores of row e's q with row
// j's k and b. `ak` and `ab` are for scores of the vector with which token e (DPLR:
// token e + 1) reads the state, also with row j's k and b.
template <int m>
struct near {
    bf16 qk, qb, ab, ak;
};
template <>
struct near<1> {
    bf16 qk, ab;
};

// In a chunk's shared memory, q, k, a and b overwrite h and dS. `dG` and `dE` overwrite
// dO, x and v. `far` overwrites z and the arrays after z. DPLR has two rows per token:
//   x     v_new of a token's first row
//   z     dU of the first row, then z = A^T dU
//   dV    dU of the second row, then dv
//   dE    the part of dG from reads before the decay; row i belongs to G of token i - 1
//   far   dq, dk, d(reading vector) and db, without pairs of the same 16 rows
template <int model, int K, int V>
struct back_storage : traits<model> {
    enum {
        C = traits<model>::C,
        S = traits<model>::looks ? C : 1,
        D = traits<model>::m == 2 ? C : 1,
        LB = C + PAD
    };
    float G[C + 1][K + GATE];
    union {
        struct {
            bf16 h[K][V + PAD], dS[K][V + PAD];
        };
        struct {
            bf16 q[C][K + PAD], k[C][K + PAD], a[S][K + PAD], b[D][K + PAD];
        };
    };
    union {
        struct {
            bf16 dO[C][V + PAD], x[C][V + PAD], v[C][V + PAD];
        };
        struct {
            float dG[C][K + PAD], dE[D][K + PAD];
        };
    };
    union {
        struct {
            bf16 z[C][V + PAD], dV[D][V + PAD];
            bf16 Ab[S][LB], B[D][LB], of_qk[C][LB], of_qb[D][LB], dL[S][LB], dB[D][LB];
        };
        bf16 far[2 + S / C + D / C][C][K + PAD];
    };
    struct near<traits<model>::m> near[C / 16][16][16];
    float by_k[C], by_b[D], next_k[D + 1], next_b[D + 1], h_dS[K], sum_k[K];
};

// A result [C,16] of a warp, as D fragments.
template <int C>
struct slab {
    float x[C / 16][2][4];
};

#define EACH(C, t, c, j)                                                               \
    _Pragma("unroll") for (int t = 0; t < C / 16; t++)                                 \
        _Pragma("unroll") for (int c = 0; c < 2; c++)                                  \
            _Pragma("unroll") for (int j = 0; j < 4; j++)

static __device__ __forceinline__ int row_in(int t, int j)
{
    return 16 * t + threadIdx.x % 32 / 4 + j / 2 * 8;
}
static __device__ __forceinline__ int column_in(int c, int j)
{
    return 8 * c + threadIdx.x % 4 * 2 + j % 2;
}

template <int model, int K, int V>
static __device__ void load_states(const struct family &x, struct token_range z, int c,
                                   int n, struct back_storage<model, K, V> &s)
{
    typedef struct back_storage<model, K, V> R;
    const struct kcp_family &a = x.a;
    const int64_t HV = a.HV, state = (c * HV + n) * K * V;
    for (int at = threadIdx.x; at < K * V / 8; at += blockDim.x) {
        const int i = at / (V / 8), v = at % (V / 8) * 8;
        cp_async_16(&s.h[i][v], (const bf16 *)x.h + state + i * V + v, 1);
        cp_async_16(&s.dS[i][v], (const bf16 *)x.dh + state + i * V + v, 1);
    }
    cp_async_rows<V, R::C>(s.dO[0], in<bf16>(a.do_, z.t, HV, n, V), HV * V, z.len);
    cp_async_rows<V, R::C>(s.v[0], in<bf16>(a.v, z.t, HV, n, V), HV * V, z.len);
    load_form_rows<V, R::C>(x, z, n, 0, s.x[0], x.v_new);
    load_form_rows<V, R::C>(x, z, n, 0, s.z[0], x.dU);
    if (s.m == 2) load_form_rows<V, R::D>(x, z, n, 1, s.dV[0], x.dU);
    if (s.looks)
        cp_async_rows<R::C, R::S>(s.Ab[0], in<bf16>(x.L, z.t, HV, n, R::C), HV * R::C,
                                  z.len);
    if (s.m == 2)
        cp_async_rows<R::C, R::D>(s.B[0], in<bf16>(x.B, z.t, HV, n, R::C), HV * R::C,
                                  z.len);
    if (s.m == 1) load_form_rows<R::C, R::C>(x, z, n, 0, s.of_qk[0], x.dAqk);
    load_gate<R::C>(a, z, n, s.G);
    cp_async_commit();
}
