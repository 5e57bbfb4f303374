// segment_sum.cuh -- sums over all tokens of all ranks, in the order of the segments.
// Book: chapters 13 and 14.
// Checked by: tests/13_backward/checks.c, tests/14_conv/checks.c.
// Next: workspace.cuh.
#ifndef KCP_SEGMENT_SUM_CUH
#define KCP_SEGMENT_SUM_CUH

#include "cuda/tile/device.cuh"

// sum [n] of rows [count,n], in their order: a thread a column.
static __global__ void add_rows(int64_t n, int64_t count, const float *rows, float *sum)
{
    const int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    float s = 0.0f;
    for (int64_t j = 0; j < count && e < n; j++) s += rows[j * n + e];
    if (e < n) sum[e] = s;
}

// The most segments that a rank holds, at least 1: every rank's rows are padded to it.
static inline int64_t padded_rows(const struct kcp_plan *plan)
{
    int64_t rows = 1;
    for (int j = 0; j < plan->R; j++)
        if (plan->ctx[j].NS > rows) rows = plan->ctx[j].NS;
    return rows;
}

// part [rows,n], one row a segment of this rank, the rest 0; all [R,rows,n] is scratch.
// sum [n], the same bits on every rank, by one all_gather when R > 1; or, where the
// call says so, of this rank's rows alone.
static int parameter_sum(const struct kcp_call *c, const float *part, int64_t n,
                         float *all, float *sum)
{
    const int gathers = c->plan->R > 1 && !(c->part & KCP_SUM_LOCAL);
    const int64_t rows = padded_rows(c->plan);
    if (gathers) {
        const int status = c->comm->all_gather(c->comm, part, all,
                                               sizeof(float) * rows * n, c->stream);
        if (status) return status;
        part = all;
    }
    add_rows<<<(unsigned)((n + 255) / 256), 256, 0, c->stream>>>(
        n, gathers ? rows * c->plan->R : rows, part, sum);
    return launched();
}

#endif
