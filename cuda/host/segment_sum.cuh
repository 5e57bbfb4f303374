// segment_sum.cuh -- sums gradients of parameters over all ranks, segment by segment.
// Book: chapters 13 and 14.
#pragma once

#include "cuda/tile/device.cuh"

// Stores the sum of the rows, first to last, in `sum` [n], with one thread per column.
static __global__ void add_rows(int64_t n, int64_t count, const float *rows, float *sum)
{
    const int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    float s = 0.0f;
    for (int64_t j = 0; j < count && e < n; j++) s += rows[j * n + e];
    if (e < n) sum[e] = s;
}

// Sums runs of adjacent rows in order. If `more` is set, adds the sums to `sum`.
struct row_runs { int count, first[128], rows[128]; };

static __global__ void add_row_runs(int64_t n, const struct row_runs run, int more,
                                    const float *rows, float *sum)
{
    const int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (e >= n) return;
    float s = more ? sum[e] : 0.0f;
    for (int i = 0; i < run.count; i++)
        for (int j = 0; j < run.rows[i]; j++)
            s += rows[(int64_t)(run.first[i] + j) * n + e];
    sum[e] = s;
}

// Returns the maximum number of segments of any rank, at least 1. The sums of each rank
// are padded to this number of rows.
static inline int64_t padded_rows(const struct kcp_plan *plan)
{
    int64_t rows = 1;
    for (int j = 0; j < plan->R; j++)
        if (plan->ctx[j].NS > rows) rows = plan->ctx[j].NS;
    return rows;
}

// Sums the rows of all ranks in token order, which is not their order in `part`. Adds
// runs of adjacent rows, up to 128 runs per launch.
static inline int add_in_order(const struct kcp_plan *plan, const float *part,
                               int64_t n, float *sum, struct CUstream_st *stream)
{
    const int rows = (int)padded_rows(plan);
    const unsigned blocks = (unsigned)((n + 255) / 256);
    struct row_runs run = {};
    int more = 0;
    for (int i = 0; i < plan->S; i++) {
        const struct kcp_segment *g = &plan->seg[plan->order[i]];
        const int at = g->rank * rows + plan->order[i] - plan->ctx[g->rank].seg0;
        const int last = run.count - 1;
        if (run.count && run.first[last] + run.rows[last] == at) {
            run.rows[last]++;
            continue;
        }
        if (run.count == 128) {
            add_row_runs<<<blocks, 256, 0, stream>>>(n, run, more, part, sum);
            run.count = 0;
            more = 1;
        }
        run.first[run.count] = at;
        run.rows[run.count++] = 1;
    }
    add_row_runs<<<blocks, 256, 0, stream>>>(n, run, more, part, sum);
    return launched();
}

// Computes `sum` [n] from `part` [rows,n], which has one row per segment of this rank,
// followed by rows of 0. `all` [R,rows,n] is scratch. If R > 1, one all_gather gives
// every rank a result with the same bits. KCP_SUM_LOCAL: sums only this rank's rows.
static inline int parameter_sum(const struct kcp_call *c, const float *part, int64_t n,
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
    if (gathers && c->plan->scattered)
        return add_in_order(c->plan, part, n, sum, c->stream);
    add_rows<<<(unsigned)((n + 255) / 256), 256, 0, c->stream>>>(
        n, gathers ? rows * c->plan->R : rows, part, sum);
    return launched();
}

// Stores 0 in the rows of dA_log and ddt_bias, which have one row per segment (padded).
static inline void clear_parameter_rows(const struct kcp_backward *a, float *dA_rows,
                                        float *ddt_rows)
{
    const size_t row = sizeof(float) * padded_rows(a->plan) * a->HV;
    cudaMemsetAsync(dA_rows, 0, row, a->stream);
    cudaMemsetAsync(ddt_rows, 0, row * a->KG, a->stream);
}

// Computes dA_log and ddt_bias, if the call has them, from the rows of all ranks.
static inline int parameter_sums(const struct kcp_backward *a, const float *dA_rows,
                                 const float *ddt_rows, float *all)
{
    const struct kcp_call *c = (const struct kcp_call *)a;
    int status = KCP_OK;
    if (a->dA_log) status = parameter_sum(c, dA_rows, a->HV, all, (float *)a->dA_log);
    if (!status && a->ddt_bias)
        status = parameter_sum(c, ddt_rows, (int64_t)a->HV * a->KG, all,
                               (float *)a->ddt_bias);
    return status;
}
