// v2_tokens_rows.cuh -- rows, weights and window that a thread of v2_tokens holds.
// Book: chapter 14, "Code: kernels".
#include "v2_tokens_workspace.cuh"
#include "cuda/tile/math.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/registers.cuh"

// N adjacent bf16 numbers, which are loaded and stored together.
template <int N>
struct packed { uint32_t w[N / 2]; };

template <int N>
static __device__ __forceinline__ struct packed<N> read(const bf16 *p)
{
    struct packed<N> x;
    if (N == 4) *(uint2 *)x.w = *(const uint2 *)p;
    else x.w[0] = *(const uint32_t *)p;
    return x;
}

template <int N>
static __device__ __forceinline__ void write(bf16 *p, const float *y)
{
    if (N == 4) *(uint2 *)p = make_uint2(pack_bf16x2(y[0], y[1]),
                                         pack_bf16x2(y[N - 2], y[N - 1]));
    else *(uint32_t *)p = pack_bf16x2(y[0], y[1]);
}

template <int N>
static __device__ __forceinline__ void unpack(float *y, const struct packed<N> &x)
{
    #pragma unroll
    for (int e = 0; e < N; e++)
        y[e] = e % 2 ? bf16x2_high(x.w[e / 2]) : bf16x2_low(x.w[e / 2]);
}

// Loads the first `left` rows of a batch (`bytes` apart), and zeroes the other rows.
template <int N, int batch>
static __device__ __forceinline__ void read_batch(struct packed<N> *x, const bf16 *from,
                                                  int bytes, int left)
{
    #pragma unroll
    for (int u = 0; u < batch; u++) {
        x[u] = {};
        if (u < left) x[u] = read<N>(row_at(from, u, bytes));
    }
}

// Returns the address in `states` [N,Wc-1,D] of row k, channel d, of the sequence that
// contains stretch s (a local token range).
static __device__ __forceinline__ bf16 *state_row(const struct conv &x,
                                                  const void *states, int s, int64_t k,
                                                  int d)
{
    const int64_t row = x.sequence[s] * (int64_t)(x.a.Wc - 1) + k;
    return (bf16 *)states + row * x.a.D + d;
}

// Returns row t of x, from channel d on: a row of x0 (or 0) before the sequence, a row
// of this rank, or a row of the halo, which earlier ranks sent.
template <int N, int STATES>
static __device__ __forceinline__ struct packed<N> tap(const struct conv &x, int s,
                                                       int64_t t, int d)
{
    const int *bounds = x.bounds + BOUNDS * s;
    const int64_t early = t - bounds[START];
    if (STATES && early < 0 && x.st.x0)
        return read<N>(state_row(x, x.st.x0, s, early + x.a.Wc - 1, d));
    if (early < 0) return {};
    const bf16 *row = t < bounds[LOW] ? x.before + (bounds[LOW_AT] + t) * x.a.D
                                      : (const bf16 *)x.a.x + t * x.a.D;
    return read<N>(row + d);
}

// Loads the Wc - 1 rows before token t of token range s into row[1] to row[Wc - 1].
template <int N, int Wc, int STATES>
static __device__ __forceinline__ void rows_before(const struct conv &x, int s,
                                                   int64_t t, int d, float (*row)[N])
{
    const bf16 *from = (const bf16 *)x.a.x + t * x.a.D + d;
    const int inside = t - ((const int *)x.a.cu)[s] >= Wc - 1;
    #pragma unroll
    for (int j = 1; j < Wc; j++)
        unpack<N>(row[j], inside ? read<N>(from + (j - Wc) * (int64_t)x.a.D)
                                 : tap<N, STATES>(x, s, t + j - Wc, d));
}

template <int N, int Wc>
struct weights { float w[N][Wc], bias[N]; };

template <int N, int Wc>
static __device__ __forceinline__ void read_weights(const struct conv &x, int d,
                                                    struct weights<N, Wc> *f)
{
    #pragma unroll
    for (int e = 0; e < N; e++) {
        f->bias[e] = x.a.bias ? ((const float *)x.a.bias)[d + e] : 0.0f;
        #pragma unroll
        for (int j = 0; j < Wc; j++)
            f->w[e][j] = x.a.shift ? 1.0f - 2.0f * j
                                   : ((const float *)x.a.weight)[(d + e) * Wc + j];
    }
}

// Returns pre = bias + sum_j w_j x_{t+j-Wc+1} of channel e. `row` [Wc] holds the oldest
// row first.
template <int N, int Wc>
static __device__ __forceinline__ float pre_of(const struct weights<N, Wc> &f,
                                               const float (*row)[N], int e)
{
    float pre = f.bias[e];
    #pragma unroll
    for (int j = 0; j < Wc; j++) pre = fmaf(f.w[e][j], row[j][e], pre);
    return pre;
}

static __device__ __forceinline__ float sigmoid_approx(float x)
{
    return rcp_approx(1.0f + ex2_approx(-1.44269504088896341f * x));
}

// Returns dy act'(pre). Intrinsics fix the rounding of each operation, so that every
// kernel computes the same bits.
static __device__ __forceinline__ float through_act(float dy, float pre, int silu)
{
    if (!silu) return dy;
    const float sg = sigmoid_approx(pre);
    return __fmul_rn(__fmul_rn(dy, sg), fmaf(pre, __fadd_rn(1.0f, -sg), 1.0f));
}

template <int N, int Wc>
static __device__ __forceinline__ void next_row(float (*row)[N])
{
    #pragma unroll
    for (int j = 0; j + 1 < Wc; j++)
        #pragma unroll
        for (int e = 0; e < N; e++) row[j][e] = row[j + 1][e];
}
