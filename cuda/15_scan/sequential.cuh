// sequential.cuh -- sequential scan: a state in registers, one token after another.
// Book: chapter 15, "Code: kernels".
#pragma once

#include "token.cuh"
#include "cuda/tile/warp.cuh"

// Bound: latency. A token needs the state of the previous token, and within a token a
// sum over rows precedes the update. A state or map [HV,K,ld] stays in registers, with
// its columns divided among warps. A warp has 8 columns. Eight lanes share two columns,
// and each lane has every eighth group of four rows. So a sum over rows takes three
// shuffles and no barrier. Because o = S_d^T q + beta (k q) e (`emit` in token.cuh),
// the sums S_d^T q and k q use the same three rounds of shuffles. All warps of a block
// process the same tokens: GROUP tokens are in shared memory while the next group is
// loaded into registers. One barrier per group suffices, because there are two buffers.
enum {
    COLUMNS = 2,
    LANES = 8,
    WARPS = 4,
    ACROSS = 32 / LANES * COLUMNS * WARPS,
    SCAN_THREADS = 32 * WARPS
};

template <int rows>
struct group_storage { // GROUP tokens, K padded to 32 * rows
    enum { GROUP = 32 / rows, KEYS = 32 * rows };
    float k[GROUP][KEYS], q[GROUP][KEYS], alpha[GROUP][KEYS], value[GROUP][ACROSS];
    float beta[GROUP];
    int lives[GROUP];
};

// A thread's part of the next group, in the storage type. Values are converted later,
// because a value's first use waits for its load. Forward loads v, backward dO.
enum { HOLDS = 1024 / SCAN_THREADS, VALUES = 32 * ACROSS / SCAN_THREADS };
template <class X>
struct next_group {
    X k[HOLDS], q[HOLDS], v[VALUES];
    float alpha[HOLDS], dO[VALUES], beta;
    int drop;
};

template <class X, int rows, int back>
static __device__ __forceinline__ void load_group(const struct tile &x, int n, int e0,
                                                  int c0, struct next_group<X> *y)
{
    const struct kcp_scan &a = x.a;
    const int K = a.K, V = a.V, m = n / (a.HV / a.H),
              group = group_storage<rows>::GROUP;
    #pragma unroll
    for (int j = 0; j < HOLDS; j++) {
        const int at = threadIdx.x + SCAN_THREADS * j, e = e0 + at / (32 * rows);
        const int i = at % (32 * rows), there = e < x.n && i < K;
        const int u = there ? token_of(x, e, back) : 0;
        y->k[j] = y->q[j] = (X)0.0f;
        y->alpha[j] = 0.0f;
        if (!there) continue;
        y->k[j] = in<X>(a.k, x.t0 + u, a.H, m, K)[i];
        y->q[j] = in<X>(a.q, x.t0 + u, a.H, m, K)[i];
        y->alpha[j] = x.alpha[((int64_t)u * a.HV + n) * K + i];
    }
    #pragma unroll
    for (int j = 0; j < VALUES / rows; j++) {
        const int at = threadIdx.x + SCAN_THREADS * j, e = e0 + at / ACROSS;
        const int v = c0 + at % ACROSS, there = e < x.n && v < V;
        const int64_t t = x.t0 + (there ? token_of(x, e, back) : 0);
        y->v[j] = (X)0.0f;
        y->dO[j] = 0.0f;
        if (there && back) y->dO[j] = x.dO[(t * a.HV + n) * V + v];
        if (there && !back) y->v[j] = in<X>(a.v, t, a.HV, n, V)[v];
    }
    const int e = e0 + threadIdx.x, there = threadIdx.x < group && e < x.n;
    const int u = there ? token_of(x, e, back) : 0;
    y->beta = 0.0f;
    y->drop = 0;
    if (there) y->beta = x.beta[(int64_t)u * a.HV + n];
    if (there && a.drop) y->drop = ((const int *)a.drop)[x.t0 + u];
}

template <class X, int rows, int back>
static __device__ __forceinline__ void store_group(const struct next_group<X> &y,
                                                   struct group_storage<rows> *s)
{
    #pragma unroll
    for (int j = 0; j < HOLDS; j++) {
        const int at = threadIdx.x + SCAN_THREADS * j;
        s->k[0][at] = y.k[j];
        s->q[0][at] = y.q[j];
        s->alpha[0][at] = y.alpha[j];
    }
    #pragma unroll
    for (int j = 0; j < VALUES / rows; j++)
        s->value[0][threadIdx.x + SCAN_THREADS * j] = back ? y.dO[j] : (float)y.v[j];
    if (threadIdx.x < s->GROUP) {
        s->beta[threadIdx.x] = y.beta;
        s->lives[threadIdx.x] = !y.drop;
    }
}

// Sums each y over eight lanes. All shuffles of a round are issued before the first
// result is used.
template <int many>
static __device__ __forceinline__ void lane_sums(float (&y)[many])
{
    #pragma unroll
    for (int m = 1; m < LANES; m *= 2) {
        float z[many];
        #pragma unroll
        for (int c = 0; c < many; c++) z[c] = shfl_bfly_in_order(y[c], m);
        #pragma unroll
        for (int c = 0; c < many; c++) y[c] += z[c];
    }
}

// Loads a thread's rows of a token's vector, in groups of four rows.
template <int rows>
static __device__ __forceinline__ void rows_of(const float *from, float (&y)[rows][4])
{
    #pragma unroll
    for (int j = 0; j < rows; j++) {
        const float4 x = ((const float4 *)from)[threadIdx.x % LANES + LANES * j];
        y[j][0] = x.x;
        y[j][1] = x.y;
        y[j][2] = x.z;
        y[j][3] = x.w;
    }
}

// Processes one token: S' = S_d + beta k (v - S_d^T k)^T with S_d = diag(alpha) S, and
// o = S'^T q, from the sums S_d^T k, S_d^T q and k q. If `back` is set, computes dS <-
// A^T F instead, from the sum F^T k, with F = dS + q dO^T and A as in token.cuh.
template <int rows, int back, int emits>
static __device__ __forceinline__ void scan_token(const struct group_storage<rows> &s,
                                                  int g, float (&S)[rows][4][COLUMNS],
                                                  float *o)
{
    const float beta = s.beta[g], *own = &s.value[g][threadIdx.x / LANES * COLUMNS];
    float value[COLUMNS];
    float k[rows][4], q[rows][4], alpha[rows][4];
    float sum[emits ? 2 * COLUMNS + 1 : COLUMNS] = {};
    rows_of<rows>(s.k[g], k);
    rows_of<rows>(s.q[g], q);
    rows_of<rows>(s.alpha[g], alpha);
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++) value[c] = back && !s.lives[g] ? 0.0f : own[c];
    #pragma unroll
    for (int j = 0; j < rows; j++)
        #pragma unroll
        for (int e = 0; e < 4; e++) {
            if (emits) sum[2 * COLUMNS * emits] += k[j][e] * q[j][e];
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float *x = &S[j][e][c];
                *x = back ? *x + q[j][e] * value[c] : alpha[j][e] * *x;
                sum[c] += *x * k[j][e];
                if (emits) sum[COLUMNS * emits + c] += *x * q[j][e];
            }
        }
    lane_sums(sum);
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const float b = beta * (back ? -sum[c] : value[c] - sum[c]);
        #pragma unroll
        for (int j = 0; j < rows; j++)
            #pragma unroll
            for (int e = 0; e < 4; e++)
                S[j][e][c] = (back ? alpha[j][e] : 1.0f) * (S[j][e][c] + k[j][e] * b);
        if (emits) o[c] = sum[COLUMNS * emits + c] + sum[2 * COLUMNS * emits] * b;
    }
}

// Loads or stores a thread's rows of columns v and v + 1 of a matrix [K,W].
template <int rows, int put>
static __device__ __forceinline__ void move_state(float (&S)[rows][4][COLUMNS], int K,
                                                  int W, int ld, int v, float *at)
{
    const int together = v + COLUMNS <= W && ld % COLUMNS == 0;
    #pragma unroll
    for (int j = 0; j < rows; j++)
        #pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = 4 * (threadIdx.x % LANES + LANES * j) + e;
            float *x = at + (int64_t)i * ld + v, *y = S[j][e];
            if (put && i < K && together) *(float2 *)x = { y[0], y[1] };
            else
                for (int c = 0; c < COLUMNS; c++) {
                    const int there = i < K && v + c < W;
                    if (put && there) x[c] = y[c];
                    if (!put) y[c] = there ? x[c] : 0.0f;
                }
        }
}

// Processes a tile. Unless `keep` is NULL, stores in `keep` [C,HV,K,V] the state before
// each token (backward: the gradient after each token).
template <class X, int rows, int back, int emits>
static __global__ void __launch_bounds__(SCAN_THREADS, 3)
    sequential_scan(const struct tile x, int W, int ld, float *state, float *keep)
{
    __shared__ __align__(16) struct group_storage<rows> s[2];
    enum { GROUP = group_storage<rows>::GROUP };
    const struct kcp_scan &a = x.a;
    const int n = blockIdx.x, K = a.K, V = a.V;
    const int c0 = blockIdx.y * ACROSS, own = c0 + threadIdx.x / LANES * COLUMNS;
    float S[rows][4][COLUMNS], o[COLUMNS];
    struct next_group<X> next;
    load_group<X, rows, back>(x, n, 0, c0, &next);
    move_state<rows, 0>(S, K, W, ld, own, state + (int64_t)n * K * ld);
    for (int e0 = 0, at = 0; e0 < x.n; e0 += GROUP, at = 1 - at) {
        store_group<X, rows, back>(next, &s[at]);
        __syncthreads();
        if (e0 + GROUP < x.n) load_group<X, rows, back>(x, n, e0 + GROUP, c0, &next);
        const int here = x.n - e0 < GROUP ? x.n - e0 : GROUP;
        for (int g = 0; g < here; g++) {
            const int64_t row = (int64_t)(e0 + g) * a.HV + n;
            if (keep) move_state<rows, 1>(S, K, V, V, own, keep + row * K * V);
            scan_token<rows, back, emits>(s[at], g, S, o);
            const int tells = emits && threadIdx.x % LANES == 0 && s[at].lives[g];
            #pragma unroll
            for (int c = 0; c < COLUMNS * emits; c++)
                if (tells && own + c < V)
                    out<X>(a.o, x.t0 + e0 + g, a.HV, n, V)[own + c] = o[c];
        }
    }
    move_state<rows, 1>(S, K, W, ld, own, state + (int64_t)n * K * ld);
}

template <class X, int back, int emits>
static void sequential_tile(const struct tile &x, int W, int ld, float *state,
                            float *keep)
{
    const dim3 grid(x.a.HV, (W + ACROSS - 1) / ACROSS);
    auto f = sequential_scan<X, 8, back, emits>;
    if (x.a.K <= 32) f = sequential_scan<X, 1, back, emits>;
    else if (x.a.K <= 64) f = sequential_scan<X, 2, back, emits>;
    else if (x.a.K <= 128) f = sequential_scan<X, 4, back, emits>;
    f<<<grid, SCAN_THREADS, 0, x.a.stream>>>(x, W, ld, state, keep);
}
