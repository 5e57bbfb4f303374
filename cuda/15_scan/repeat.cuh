// repeat.cuh -- dropped tokens repeat earlier outputs: forward and backward.
// Book: chapter 15, "Code: kernels".
#pragma once

#include "cuda/host/segment_sum.cuh"
#include "token.cuh"

// `rows` [padded,HV V + 1] has one row per local segment, and unused rows up to
// `padded`, which is equal on all ranks. A row has HV V numbers, then 1 if a search
// from segment to segment may stop here. `all` [R,padded,HV V + 1] has the rows of all
// ranks. `place` [j] is the row in `all` of the j-th segment in token order. `facts`
// [NS,FACTS] has begin, end, flags, sequence and j of each local segment.
enum { FIRST = 1, LAST = 2, FACTS = 5 };
struct repeats {
    struct kcp_scan a;
    float *rows, *all, *dO;
    int *place, *facts;
    int row;                             // HV V
};

static __device__ __forceinline__ const float *gathered_row(const struct repeats &x,
                                                            int j)
{
    return x.all + (int64_t)x.place[j] * (x.row + 1);
}

static __device__ __forceinline__ float boundary_row(const void *rows, int n,
                                                     const struct repeats &x, int c)
{
    return rows ? ((const float *)rows)[(int64_t)n * x.row + c] : 0.0f;
}

// Computes the row that a segment sends to later segments: the segment's last output
// that is not a repeat. A block processes one segment. Every thread of the block
// searches for the token and finds the same one.
template <class X>
static __global__ void last_of(const struct repeats x)
{
    const int s = blockIdx.x, *f = x.facts + FACTS * s;
    float *mine = x.rows + (int64_t)s * (x.row + 1);
    int t = f[1] - 1;
    while (t >= f[0] && dropped(x.a, t)) t--;
    for (int c = threadIdx.x; c < x.row; c += blockDim.x) {
        float o;
        if (t >= f[0]) o = (float)((const X *)x.a.o)[(int64_t)t * x.row + c];
        else o = f[2] & FIRST ? boundary_row(x.a.o0, f[3], x, c) : 0.0f;
        mine[c] = o;
    }
    if (threadIdx.x == 0) mine[x.row] = t >= f[0] || f[2] & FIRST;
}

// Stores o_t of dropped tokens and the last output ot, with one block per token and
// part of a row. Rows of emitted tokens are only read, and rows of dropped tokens are
// only written, so blocks are independent.
template <class X>
static __global__ void repeat_rows(const struct repeats x, int s)
{
    const int *f = x.facts + FACTS * s, t = f[0] + blockIdx.x;
    const int c = blockIdx.y * blockDim.x + threadIdx.x;
    const int ends = t == f[1] - 1 && f[2] & LAST, is = dropped(x.a, t);
    if (c >= x.row || !(is || ends)) return;
    int from = t, j = f[4] - 1;
    while (from >= f[0] && dropped(x.a, from)) from--;
    float o;
    if (from >= f[0]) o = ((const X *)x.a.o)[(int64_t)from * x.row + c];
    else if (f[2] & FIRST) o = boundary_row(x.a.o0, f[3], x, c);
    else {
        while (gathered_row(x, j)[x.row] == 0.0f) j--;
        o = gathered_row(x, j)[c];
    }
    if (is) ((X *)x.a.o)[(int64_t)t * x.row + c] = o;
    if (ends) ((float *)x.a.ot)[(int64_t)f[3] * x.row + c] = o;
}

// Returns `after` (the gradient from token t1 and later) plus the gradients of tokens
// t0 to t1-1, which are all dropped.
template <class X>
static __device__ __forceinline__ float debt_of(const struct repeats &x, int t0, int t1,
                                                float after, int c)
{
    for (int t = t1 - 1; t >= t0; t--)
        after += (float)((const X *)x.a.do_)[(int64_t)t * x.row + c];
    return after;
}

template <class X>
static __global__ void debts_of_segment(const struct repeats x)
{
    const int s = blockIdx.x, *f = x.facts + FACTS * s;
    float *mine = x.rows + (int64_t)s * (x.row + 1);
    int t = f[0];
    while (t < f[1] && dropped(x.a, t)) t++;
    const int all = t == f[1], last = f[2] & LAST;
    for (int c = threadIdx.x; c < x.row; c += blockDim.x)
        mine[c] = debt_of<X>(x, f[0], t,
                             all && last ? boundary_row(x.a.dot, f[3], x, c) : 0.0f, c);
    if (threadIdx.x == 0) mine[x.row] = !all || last;
}

// Computes dO [t] = do_ [t] + the gradients of the dropped tokens directly after t. If
// t itself is dropped, dO [t] = 0. Blocks with t = begin - 1 compute do0, the sum
// of the gradients of dropped tokens at the start of the sequence.
template <class X>
static __global__ void spread_debts(const struct repeats x, int s)
{
    const int *f = x.facts + FACTS * s, t = f[0] + blockIdx.x - 1, start = t < f[0];
    const int c = blockIdx.y * blockDim.x + threadIdx.x;
    if (c >= x.row || (start && !(f[2] & FIRST))) return;
    if (!start && dropped(x.a, t)) {
        x.dO[(int64_t)t * x.row + c] = 0.0f;
        return;
    }
    int to = t + 1, j = f[4] + 1;
    while (to < f[1] && dropped(x.a, to)) to++;
    float after = 0.0f;
    if (to == f[1] && f[2] & LAST) after = boundary_row(x.a.dot, f[3], x, c);
    else if (to == f[1] && x.a.drop) {
        while (gathered_row(x, j)[x.row] == 0.0f) j++;
        for (; j > f[4]; j--) after += gathered_row(x, j)[c];
    }
    const float debt = debt_of<X>(x, t + 1, to, after, c);
    if (start) ((float *)x.a.do0)[(int64_t)f[3] * x.row + c] = debt;
    else x.dO[(int64_t)t * x.row + c] =
        (float)((const X *)x.a.do_)[(int64_t)t * x.row + c] + debt;
}

// If tokens may be dropped and ranks share a sequence, gathers the rows of all ranks.
static int gather_rows(const struct repeats *x, int64_t padded, struct kcp_comm *comm)
{
    const struct kcp_scan *a = &x->a;
    const size_t one = sizeof(float) * (x->row + 1), bytes = one * padded;
    if (a->NS < padded)
        cudaMemsetAsync((char *)x->rows + a->NS * one, 0, bytes - a->NS * one,
                        a->stream);
    if (a->drop && a->plan->crossing && a->plan->R > 1)
        return comm->all_gather(comm, x->rows, x->all, bytes, a->stream);
    cudaMemcpyAsync((char *)x->all + a->r * bytes, x->rows, bytes,
                    cudaMemcpyDeviceToDevice, a->stream);
    return launched();
}

template <class X>
static int repeat_outputs(const struct repeats *x, const struct kcp_context *ctx)
{
    const struct kcp_scan *a = &x->a;
    const int parts = (x->row + 255) / 256;
    if (a->NS) last_of<X><<<a->NS, 256, 0, a->stream>>>(*x);
    const int status = gather_rows(x, padded_rows(a->plan), a->comm);
    for (int s = 0; s < a->NS && !status; s++)
        repeat_rows<X>
            <<<dim3(ctx->cu[s + 1] - ctx->cu[s], parts), 256, 0, a->stream>>>(*x, s);
    return status ? status : launched();
}

template <class X>
static int spread_gradients(const struct repeats *x, const struct kcp_context *ctx)
{
    const struct kcp_scan *a = &x->a;
    const int parts = (x->row + 255) / 256;
    if (a->NS) debts_of_segment<X><<<a->NS, 256, 0, a->stream>>>(*x);
    const int status = gather_rows(x, padded_rows(a->plan), a->comm);
    for (int s = 0; s < a->NS && !status; s++)
        spread_debts<X>
            <<<dim3(ctx->cu[s + 1] - ctx->cu[s] + 1, parts), 256, 0, a->stream>>>(*x,
                                                                                  s);
    return status ? status : launched();
}
