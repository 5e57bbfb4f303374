// split_sequence_fold.cuh -- one kernel computes the state at the start of every strip.
// Book: chapter 18b, "Few heads".
#pragma once

#include "cuda/tile/launch_shared.cuh"

// Computes S <- M S + h in fp32 for one strip (part of a segment) after another. If
// `back` is set, computes dS <- M^T dS + dh from the last strip to the first. Bound:
// reads of shared memory, because each float4 of S serves only four products.
//
// A block computes COLS columns of a head's state, which do not depend on other
// columns. A thread multiplies 1 / PARTS of one row of M (back: of M^T) by these
// columns. Meanwhile the next M is loaded from global memory into registers.
enum { FOLD_THREADS = 256, FOLD_MOST = 64 };

// Arguments for `count` segments, starting with segment `first`. Per segment, `at` is
// the first strip (back: the last strip), and `strips` is the number of strips. If
// `begins` is set, the segment starts (back: ends) a sequence. Then the first map's h
// includes the effect of h0 (back: of dht), so M is not needed.
struct folds { int first, count, at[FOLD_MOST], strips[FOLD_MOST], begins[FOLD_MOST]; };

// The maps [strips,HV,K,..] have row strides h_ld and M_ld. `states` [NS,HV,K,V] has
// the states before (back: after) the segments. If every segment is a whole sequence,
// `states` is NULL. `starts` [strips,HV,K,V] receives the result.
struct fold_arrays {
    const float *h, *M;
    int h_ld, M_ld;
    const float *states;
    float *starts;
};

// Rows of M and parts of S are each padded by four numbers to avoid bank conflicts.
template <int K, int COLS>
struct fold {
    enum { PARTS = FOLD_THREADS / K, OWN = K / PARTS, OUT = COLS / PARTS,
           PIECES = K * K / 4 / FOLD_THREADS };
    float M[K][K + 4], S[2][K * COLS + 4 * PARTS];
};

template <int K, int COLS>
static __device__ __forceinline__ float *fold_row(struct fold<K, COLS> &s, int side,
                                                  int p)
{
    return s.S[side] + p * COLS + p / fold<K, COLS>::OWN * 4;
}

// Loads a thread's 16-byte pieces of M [K,K], which has row stride VK.
template <int K, int COLS>
static __device__ __forceinline__ void fold_read(float4 *next, const float *M, int VK)
{
    #pragma unroll
    for (int i = 0; i < fold<K, COLS>::PIECES; i++) {
        const int at = i * FOLD_THREADS + threadIdx.x;
        next[i] = *(const float4 *)(M + at / (K / 4) * VK + at % (K / 4) * 4);
    }
}

template <int K, int COLS>
static __device__ __forceinline__ void fold_put(struct fold<K, COLS> &s,
                                                const float4 *next)
{
    #pragma unroll
    for (int i = 0; i < fold<K, COLS>::PIECES; i++) {
        const int at = i * FOLD_THREADS + threadIdx.x;
        *(float4 *)&s.M[at / (K / 4)][at % (K / 4) * 4] = next[i];
    }
}

// Computes x [COLS], one row of M S (back: of M^T S). A thread sums over its part of
// the row of M (back: of M^T). Then shuffles add the sums of the row's PARTS threads,
// after which each thread has OUT of the COLS columns.
template <int K, int COLS, int back>
static __device__ __forceinline__ void fold_times(float *x, struct fold<K, COLS> &s,
                                                  int side, int row, int part)
{
    enum { PARTS = fold<K, COLS>::PARTS, OWN = fold<K, COLS>::OWN };
    const float *M = back ? &s.M[part * OWN][row] : &s.M[row][part * OWN];
    const float *S = fold_row(s, side, part * OWN);
    #pragma unroll 2
    for (int p = 0; p < OWN; p += 4) {
        float4 m;
        if (back) {
            const float *column = M + p * (K + 4);
            m = make_float4(column[0], column[K + 4], column[2 * (K + 4)],
                            column[3 * (K + 4)]);
        } else m = *(const float4 *)(M + p);
        #pragma unroll
        for (int e = 0; e < 4 * COLS; e += 4) {
            const float4 y = *(const float4 *)(S + p * COLS + e);
            const float two = e / COLS % 2 ? m.y : m.x, late = e / COLS % 2 ? m.w : m.z;
            const float f = e / COLS < 2 ? two : late;
            float *to = x + e % COLS;
            to[0] = fmaf(f, y.x, to[0]);
            to[1] = fmaf(f, y.y, to[1]);
            to[2] = fmaf(f, y.z, to[2]);
            to[3] = fmaf(f, y.w, to[3]);
        }
    }
    #pragma unroll
    for (int b = 1; b < PARTS; b *= 2) {
        const int half = COLS / (2 * b), up = part / (PARTS / (2 * b)) % 2;
        #pragma unroll
        for (int c = 0; c < half; c++) {
            const float mine = up ? x[c + half] : x[c], yours = up ? x[c] : x[c + half];
            x[c] = mine + __shfl_xor_sync(~0u, yours, 16 / b);
        }
    }
}

template <int K, int COLS, int back>
static __global__ __launch_bounds__(FOLD_THREADS) void fold_strips(
    int HV, int V, const struct fold_arrays x, const struct folds f)
{
    enum { PARTS = fold<K, COLS>::PARTS, OUT = fold<K, COLS>::OUT };
    extern __shared__ __align__(16) unsigned char of_fold[];
    struct fold<K, COLS> &s = *(struct fold<K, COLS> *)of_fold;
    const int n = blockIdx.x, v0 = blockIdx.y * COLS, next_strip = back ? -1 : 1;
    const int lane = threadIdx.x % 32, rows = 32 / PARTS, part = lane / rows;
    const int row = threadIdx.x / 32 * rows + lane % rows, at = f.at[blockIdx.z];
    const int count = f.strips[blockIdx.z], begins = f.begins[blockIdx.z];
    const int64_t M_step = (int64_t)HV * K * x.M_ld, h_step = (int64_t)HV * K * x.h_ld;
    const int64_t step = (int64_t)HV * K * V;
    const int64_t own = (int64_t)(n * K + row) * V + v0 + part * OUT;
    const float *M = x.M + at * M_step + (int64_t)n * K * x.M_ld;
    const float *h = x.h + at * h_step + (int64_t)(n * K + row) * x.h_ld;
    const float *state = x.states + (f.first + blockIdx.z) * step + own;
    h += v0 + part * OUT;
    float *start = x.starts + at * step + own;
    float4 next[fold<K, COLS>::PIECES];

    if (x.states)
        for (int c = 0; c < OUT; c++)
            fold_row(s, 0, row)[part * OUT + c] = start[c] = state[c];
    if (count > 1 && !begins) fold_read<K, COLS>(next, M, x.M_ld);
    for (int j = 0; j + 1 < count; j++) {
        float z[COLS] = {}, y[OUT];
        __syncthreads();
        if (j || !begins) fold_put(s, next);
        for (int c = 0; c < OUT; c++) y[c] = h[c];
        M += next_strip * M_step;
        h += next_strip * h_step;
        start += next_strip * step;
        if (j + 2 < count) fold_read<K, COLS>(next, M, x.M_ld);
        __syncthreads();
        if (j || !begins) fold_times<K, COLS, back>(z, s, j % 2, row, part);
        for (int c = 0; c < OUT; c++)
            fold_row(s, (j + 1) % 2, row)[part * OUT + c] = start[c] = y[c] + z[c];
    }
}

// Launches the fold of the segments in f. The caller, fold_chains, selects COLS.
template <int K, int COLS, int back>
static int fold_launch(int HV, int V, const struct fold_arrays *x,
                       const struct folds *f, struct CUstream_st *stream)
{
    const size_t bytes = sizeof(struct fold<K, COLS>);
    return launch_shared(fold_strips<K, COLS, back>, dim3(HV, V / COLS, f->count),
                         FOLD_THREADS, bytes, stream, HV, V, *x, *f);
}

// Applies a map to Vb columns of every head's state: S_out = M S_in + h (back: M^T S_in
// + h), with columns v0 to v0 + Vb - 1 of h. The last block may have fewer than COLS.
// S_in and S_out may be the same array, because S_in is copied to shared memory before
// S_out is written.
template <int K, int COLS, int back>
static __global__ __launch_bounds__(FOLD_THREADS) void fold_once(
    int V, const float *maps, int v0, int Vb, const float *S_in, int ld_in,
    float *S_out, int ld_out)
{
    enum { PARTS = fold<K, COLS>::PARTS, OUT = fold<K, COLS>::OUT };
    extern __shared__ __align__(16) unsigned char of_fold[];
    struct fold<K, COLS> &s = *(struct fold<K, COLS> *)of_fold;
    const int v = blockIdx.y * COLS, VK = V + K;
    const int lane = threadIdx.x % 32, rows = 32 / PARTS, part = lane / rows;
    const int row = threadIdx.x / 32 * rows + lane % rows, own = v + part * OUT;
    const int64_t at = (int64_t)blockIdx.x * K + row;
    const float *map = maps + (int64_t)blockIdx.x * K * VK;
    float4 next[fold<K, COLS>::PIECES];
    float x[COLS] = {}, y[OUT] = {};

    fold_read<K, COLS>(next, map + V, VK);
    for (int c = 0; c < OUT; c++) {
        const int there = own + c < Vb;
        fold_row(s, 0, row)[part * OUT + c] = there ? S_in[at * ld_in + own + c] : 0.0f;
        if (there) y[c] = map[row * VK + v0 + own + c];
    }
    fold_put(s, next);
    __syncthreads();
    fold_times<K, COLS, back>(x, s, 0, row, part);
    for (int c = 0; c < OUT; c++)
        if (own + c < Vb) S_out[at * ld_out + own + c] = y[c] + x[c];
}
