/* counts.c -- counts the matrix products and sent bytes of the all-gather exchange.
 * Book: chapter 07.
 * Ranks are threads, so each thread-local counter belongs to one rank. */
#include "folded.h"

#include <stdlib.h>

static _Thread_local int64_t products, multiply_adds;
static int64_t seen[MAX_R][2];

static int counted_apply(int hv, int k, int v, const void *map, int backward, int first,
                         int v0, int Vb, const void *S_in, int ld_in, void *S_out,
                         int ld_out, struct CUstream_st *stream)
{
    products += !first;
    multiply_adds += first ? 0 : (int64_t)hv * k * k * Vb;
    return ref_mapops.apply(hv, k, v, map, backward, first, v0, Vb, S_in, ld_in, S_out,
                            ld_out, stream);
}

static int counted_body(struct kcp_comm *comm, void *arg)
{
    products = multiply_adds = 0;
    const int err = merge_body(comm, arg);
    seen[comm->r][0] = products; seen[comm->r][1] = multiply_adds;
    return err;
}

/* Checks one sequence on R ranks. Rank r must multiply by M of each earlier (backward:
 * later) rank except the farthest, where the state is 0. A product takes K K V
 * multiply-adds per head. Each rank must send the maps of all heads to R - 1 ranks. */
static void count(struct kcp_report *rep, struct whole *a, int R)
{
    const int64_t cu[] = { 0, 4 * R };
    char why[200] = "";
    if (kcp_plan_make(&a->plan, 1, cu, R, NULL, 0, 4, 0, NULL)) return;
    for (a->backward = 0; a->backward < 2; a->backward++) {
        const int err = kcp_threads_run(R, counted_body, a, why, sizeof why);
        EXPECT(rep, !err, "%d ranks: %s", R, why);
        for (int r = 0; r < R && !err; r++) {
            const int folded = a->backward ? R - 1 - r : r, n = folded ? folded - 1 : 0;
            EXPECT(rep, seen[r][0] == n, "backward %d, rank %d of %d: wrong number "
                   "of products %lld", a->backward, r, R, (long long)seen[r][0]);
            EXPECT(rep, seen[r][1] == (int64_t)n * HV * K * K * V, "rank %d of %d: "
                   "wrong number of multiply-adds %lld", r, R, (long long)seen[r][1]);
            EXPECT(rep, a->counted[r].bytes == (R - 1) * (int64_t)MAP * 8,
                   "rank %d of %d: %lld bytes", r, R, (long long)a->counted[r].bytes);
        }
    }
    kcp_plan_free(a->plan);
}

static int counts(struct kcp_report *rep)
{
    struct kcp_mapops ops = ref_mapops;
    struct whole *a = calloc(1, sizeof *a);
    if (!a) return KCP_NO_MEMORY;
    ops.apply = counted_apply;
    a->ops = &ops; a->form = KCP_ALL_GATHER;
    for (int R = 2; R <= MAX_R; R++) count(rep, a, R);
    free(a);
    return KCP_OK;
}
KCP_CHECK(check_07_counts) = { "07_merge", "counts",
    "errata 20, 21, 22: a fold of n maps takes n - 1 products of K K V "
    "multiply-adds per head, and a rank sends the maps of all heads", counts };
