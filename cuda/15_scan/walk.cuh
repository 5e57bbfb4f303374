// walk.cuh -- the sequential form: a state in registers, tokens one after the other.
// Book: chapter 15, "Code: kernels".
// Checked by: tests/15_scan.c, through v1_plain.cu and v2_mma.cu.
// Next: tree.cuh.
#ifndef KCP_15_WALK_CUH
#define KCP_15_WALK_CUH

#include "token.cuh"

// Bound: latency. A token needs the state of the one before it, and within it a sum
// over rows comes before the update. So a warp owns COLUMNS columns of a state or map
// [HV,K,ld], its lanes the rows: the sum is five shuffles and no barrier, and the sums
// for o, S'^T q = S_d^T q + beta (k q) e, go with it. A block's warps share tokens: it
// stages GROUP of them at a time in shared memory, and fetches the next into registers
// while it walks these. The barrier parts what is read from what is written; with two
// buffers there is one a group.
enum { COLUMNS = 4, WARPS = 4, ACROSS = COLUMNS * WARPS, WALKERS = 32 * WARPS };

template <int rows>
struct staged {                        // of GROUP tokens, rows * 32 keys each
    enum { GROUP = 32 / rows, KEYS = 32 * rows };
    float k[GROUP][KEYS], q[GROUP][KEYS], alpha[GROUP][KEYS], value[GROUP][ACROSS];
    float beta[GROUP];
    int lives[GROUP];
};

// What a thread holds of the group that comes next: the same places in each row.
enum { HOLDS = 1024 / WALKERS, VALUES = 32 * ACROSS / WALKERS };
struct held { float k[HOLDS], q[HOLDS], alpha[HOLDS], value[VALUES], beta; int lives; };

template <class X, int rows, int back>
static __device__ __forceinline__ void hold(const struct tile &x, int n, int e0, int c0,
                                            struct held *y)
{
    const struct kcp_scan &a = x.a;
    const int K = a.K, V = a.V, m = n / (a.HV / a.H), group = staged<rows>::GROUP;
    #pragma unroll
    for (int j = 0; j < HOLDS; j++) {
        const int at = threadIdx.x + WALKERS * j, e = e0 + at / (32 * rows);
        const int i = at % (32 * rows), there = e < x.n && i < K;
        const int u = there ? token_of(x, e, back) : 0;
        y->k[j] = there ? (float)in<X>(a.k, x.t0 + u, a.H, m, K)[i] : 0.0f;
        y->q[j] = there ? (float)in<X>(a.q, x.t0 + u, a.H, m, K)[i] : 0.0f;
        y->alpha[j] = there ? x.alpha[((int64_t)u * a.HV + n) * K + i] : 0.0f;
    }
    #pragma unroll
    for (int j = 0; j < (VALUES + rows - 1) / rows; j++) {
        const int at = threadIdx.x + WALKERS * j, e = e0 + at / ACROSS;
        const int v = c0 + at % ACROSS, there = at / ACROSS < group && e < x.n && v < V;
        const int64_t t = x.t0 + (there ? token_of(x, e, back) : 0);
        y->value[j] = !there ? 0.0f : !back ? (float)in<X>(a.v, t, a.HV, n, V)[v]
                    : dropped(a, t) ? 0.0f : x.dO[(t * a.HV + n) * V + v];
    }
    const int e = e0 + threadIdx.x, there = threadIdx.x < group && e < x.n;
    const int u = there ? token_of(x, e, back) : 0;
    y->beta = there ? x.beta[(int64_t)u * a.HV + n] : 0.0f;
    y->lives = there && !dropped(a, x.t0 + u);
}

template <int rows>
static __device__ __forceinline__ void stage(const struct held &y,
                                             struct staged<rows> *s)
{
    #pragma unroll
    for (int j = 0; j < HOLDS; j++) {
        const int at = threadIdx.x + WALKERS * j;
        s->k[0][at] = y.k[j], s->q[0][at] = y.q[j], s->alpha[0][at] = y.alpha[j];
    }
    #pragma unroll
    for (int j = 0; j < (VALUES + rows - 1) / rows; j++) {
        const int at = threadIdx.x + WALKERS * j;
        if (at / ACROSS < s->GROUP) s->value[0][at] = y.value[j];
    }
    if (threadIdx.x < s->GROUP)
        s->beta[threadIdx.x] = y.beta, s->lives[threadIdx.x] = y.lives;
}

// Several sums over a warp at once: their shuffles follow each other without waiting.
template <int many>
static __device__ __forceinline__ void warp_sums(float (&y)[many])
{
    #pragma unroll
    for (int m = 16; m; m /= 2)
        #pragma unroll
        for (int c = 0; c < many; c++) y[c] += __shfl_xor_sync(0xffffffffu, y[c], m);
}

// One token: S <- S_d + beta k (v - S_d^T k)^T and o = S'^T q; back: dS <- A^T (dS + q
// dO^T). sum is S^T k, then S^T q, then k q.
template <int rows, int back, int emits>
static __device__ __forceinline__ void token(const struct staged<rows> &s, int g,
                                             float (&S)[rows][COLUMNS], float *o)
{
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * COLUMNS;
    float k[rows], q[rows], alpha[rows], sum[emits ? 2 * COLUMNS + 1 : COLUMNS] = {};
    #pragma unroll
    for (int j = 0; j < rows; j++) {
        const int i = lane + 32 * j;
        k[j] = s.k[g][i], q[j] = s.q[g][i], alpha[j] = s.alpha[g][i];
        if (emits) sum[2 * COLUMNS * emits] += k[j] * q[j];
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            S[j][c] = back ? S[j][c] + q[j] * s.value[g][own + c] : alpha[j] * S[j][c];
            sum[c] += S[j][c] * k[j];
            if (emits) sum[COLUMNS * emits + c] += S[j][c] * q[j];
        }
    }
    warp_sums(sum);
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const float b = s.beta[g] * (back ? -sum[c] : s.value[g][own + c] - sum[c]);
        #pragma unroll
        for (int j = 0; j < rows; j++)
            S[j][c] = (back ? alpha[j] : 1.0f) * (S[j][c] + k[j] * b);
        if (emits) o[c] = sum[COLUMNS * emits + c] + sum[2 * COLUMNS * emits] * b;
    }
}

// n rows of K x COLUMNS at `to`, V apart: four at once where they are aligned.
template <int rows>
static __device__ __forceinline__ void put_state(const float (&S)[rows][COLUMNS], int K,
                                                 int W, int ld, int v, float *to)
{
    const int lane = threadIdx.x % 32;
    const int together = v + COLUMNS <= W && ld % COLUMNS == 0;
    #pragma unroll
    for (int j = 0; j < rows; j++) {
        const int i = lane + 32 * j;
        if (i >= K) continue;
        float *row = to + (int64_t)i * ld + v;
        if (together) *(float4 *)row = { S[j][0], S[j][1], S[j][2], S[j][3] };
        else
            for (int c = 0; c < COLUMNS; c++)
                if (v + c < W) row[c] = S[j][c];
    }
}

// keep [C,HV,K,V]: the state that each token finds.
template <class X, int rows, int back, int emits>
static __global__ void __launch_bounds__(WALKERS)
walk(const struct tile x, int W, int ld, float *state, float *keep)
{
    __shared__ struct staged<rows> s[2];
    enum { GROUP = staged<rows>::GROUP };
    const struct kcp_scan &a = x.a;
    const int n = blockIdx.x, K = a.K, V = a.V, lane = threadIdx.x % 32;
    const int c0 = blockIdx.y * ACROSS, own = c0 + threadIdx.x / 32 * COLUMNS;
    float S[rows][COLUMNS], o[COLUMNS];
    struct held next;
    hold<X, rows, back>(x, n, 0, c0, &next);
    #pragma unroll
    for (int j = 0; j < rows; j++)
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int i = lane + 32 * j, there = i < K && own + c < W;
            S[j][c] = there ? state[((int64_t)n * K + i) * ld + own + c] : 0.0f;
        }
    for (int e0 = 0, at = 0; e0 < x.n; e0 += GROUP, at = 1 - at) {
        stage<rows>(next, &s[at]);
        __syncthreads();
        if (e0 + GROUP < x.n) hold<X, rows, back>(x, n, e0 + GROUP, c0, &next);
        for (int g = 0; g < GROUP && e0 + g < x.n; g++) {
            const int64_t row = (int64_t)(e0 + g) * a.HV + n;
            if (keep && own < V) put_state(S, K, V, V, own, keep + row * K * V);
            token<rows, back, emits>(s[at], g, S, o);
            #pragma unroll
            for (int c = 0; c < COLUMNS * emits; c++)
                if (lane == c && own + c < V && s[at].lives[g])
                    out<X>(a.o, x.t0 + e0 + g, a.HV, n, V)[own + c] = o[c];
        }
    }
    if (own < W) put_state(S, K, W, ld, own, state + (int64_t)n * K * ld);
}

template <class X, int back, int emits>
static void walk_tile(const struct tile &x, int W, int ld, float *state, float *keep)
{
    const dim3 grid(x.a.HV, (W + ACROSS - 1) / ACROSS);
    auto f = x.a.K <= 32 ? walk<X, 1, back, emits>
           : x.a.K <= 64 ? walk<X, 2, back, emits>
           : x.a.K <= 128 ? walk<X, 4, back, emits> : walk<X, 8, back, emits>;
    f<<<grid, WALKERS, 0, x.a.stream>>>(x, W, ld, state, keep);
}

#endif
