// tree.cuh -- products in the tree of maps over the tokens of a tile (one chunk).
// Book: chapter 15, "Code: kernels".
#pragma once

#include "cuda/tile/device.cuh"

// Operations on a level of a tree of maps, for all nodes and heads. A map has [h | X]
// and the decay D: M is diag(D) plus the correction X. To compose map 2 after map 1,
//   D = D_2 D_1     h = h_2 + D_2 h_1 + X_2 h_1     X = X_2 D_1 + D_2 X_1 + X_2 X_1
// To apply a map to a state z, the result is h + D z + X z. Composing and applying
// follow one rule for operands L (left) and R: out = L E + D R + X_L R, with E = D_1 on
// the columns of X and E = 1 elsewhere. If M is close to I, X is small, and so is the
// rounding error of X_L R. If decay is fast, D is small. D + X cancels in neither case.
//   UP    right <- right o left: L is the right node, read before it is overwritten
//   DOWN  z [i + d] = the left map, applied to z [i]
//   ROOT  `to` = the root's map, applied to `from` (V columns, row stride ld)
//   UNDER root <- root o `from`
enum level { UP, DOWN, ROOT, UNDER };
struct product {
    enum level what;
    int HV, K, V, n, d, ld;
    float *node, *decay, *z, *to;
    const float *from, *from_decay;
};

// Operands of the rule. D [K] belongs to L. If R is a map, E [K] is R's decay, and D is
// replaced by D E. If R is a state, E is NULL.
struct factors {
    const float *L, *R, *E;
    float *D, *out;
    int ldR, ldO, columns;
};

// Returns E of column c.
static __device__ __forceinline__ float scale_of(const struct factors &f, int V, int c)
{
    return f.E && c >= V ? f.E[c - V] : 1.0f;
}

static __device__ __forceinline__ struct factors factors_of(const struct product &x,
                                                            int block, int head)
{
    const int W = x.V + x.K, i = 2 * x.d * block, left = i + x.d - 1;
    const int right = (i + 2 * x.d < x.n ? i + 2 * x.d : x.n) - 1;
    const int64_t map = (int64_t)x.K * W, state = (int64_t)x.K * x.V;
    auto node = [&](int e) { return x.node + ((int64_t)e * x.HV + head) * map; };
    auto decay = [&](int e) { return x.decay + ((int64_t)e * x.HV + head) * x.K; };
    auto z = [&](int e) { return x.z + ((int64_t)e * x.HV + head) * state; };
    switch (x.what) {
    case UP: return { node(right), node(left), decay(left), decay(right), node(right),
                      W, W, W };
    case DOWN: return { node(left), z(i), NULL, decay(left), z(i + x.d),
                        x.V, x.V, x.V };
    case ROOT: return { node(x.n - 1), x.from + (int64_t)head * x.K * x.ld, NULL,
                        decay(x.n - 1), x.to + head * state, x.ld, x.V, x.V };
    default: return { node(x.n - 1), x.from + head * map, x.from_decay + head * x.K,
                      decay(x.n - 1), node(x.n - 1), W, W, W };
    }
}

// Returns a block size in whole warps: one thread per number, at most `most` threads.
static inline int threads_for(int numbers, int most)
{
    const int threads = (numbers + 31) / 32 * 32;
    return threads < most ? threads : most;
}

static inline int blocks_of(const struct product *x)
{
    if (x->what == ROOT || x->what == UNDER) return 1;
    return (x->n - x->d + 2 * x->d - 1) / (2 * x->d);
}

static inline int columns_of(const struct product *x)
{
    return x->what == DOWN || x->what == ROOT ? x->V : x->V + x->K;
}

typedef int products(const struct product *x, struct CUstream_st *stream);

static inline int tree_up(struct product x, products *run, struct CUstream_st *stream)
{
    int status = KCP_OK;
    x.what = UP;
    for (x.d = 1; x.d < x.n && !status; x.d *= 2) status = run(&x, stream);
    return status;
}

static inline int tree_down(struct product x, products *run, struct CUstream_st *stream)
{
    int status = KCP_OK;
    x.what = DOWN;
    for (x.d = 1; 2 * x.d < x.n;) x.d *= 2;
    for (; x.d >= 1 && x.n > 1 && !status; x.d /= 2) status = run(&x, stream);
    return status;
}
