/* sum_pieces.c -- checks kcp_segment_sum for rows so long that they are sent in pieces.
 * Book: chapters 13 and 14. */
#include "tests/judge/judge.h"

#include <stdlib.h>

enum { R = 3, COLUMNS = 60000 };     /* a message has at most 21845 columns */

struct ranks_sum { struct kcp_plan *plan; int64_t wrong[R], gathers[R]; };

static double number_of(int segment, int64_t column)
{
    return (double)(segment * 7919 + column % 1013);
}

static int body(struct kcp_comm *comm, void *arg)
{
    struct ranks_sum *x = arg;
    const struct kcp_context *ctx = &x->plan->ctx[comm->r];
    double *part = malloc(sizeof *part * COLUMNS * (size_t)(ctx->NS + 1));
    double *sum = malloc(sizeof *sum * COLUMNS);
    int status = part && sum ? KCP_OK : KCP_NO_MEMORY;
    for (int s = 0; s < ctx->NS && !status; s++)
        for (int64_t i = 0; i < COLUMNS; i++)
            part[s * COLUMNS + i] = number_of(ctx->seg0 + s, i);
    if (!status) status = kcp_segment_sum(x->plan, comm, part, COLUMNS, sum);
    for (int64_t i = 0; i < COLUMNS && !status; i++) {
        double want = 0;
        for (int j = 0; j < x->plan->S; j++) want += number_of(j, i);
        x->wrong[comm->r] += !(sum[i] == want);
    }
    x->gathers[comm->r] = comm->traffic.collectives;
    free(part);
    free(sum);
    return status;
}

static int pieces(struct kcp_report *rep)
{
    const int64_t cu[] = { 0, 5, 12, 20 };
    struct ranks_sum x = { .wrong = { 0 } };
    char why[160] = "";
    int status = kcp_plan_make(&x.plan, 3, cu, R, NULL, 0, 4, 1, NULL);
    if (!status) status = kcp_threads_run(R, body, &x, why, sizeof why);
    EXPECT(rep, !status, "status %d %s", status, why);
    for (int r = 0; r < R; r++) {
        EXPECT(rep, !x.wrong[r], "rank %d: %lld wrong sums", r,
               (long long)x.wrong[r]);
        EXPECT(rep, x.gathers[r] > 1, "rank %d: %lld pieces, expected at least 2", r,
               (long long)x.gathers[r]);
    }
    kcp_plan_free(x.plan);
    return KCP_OK;
}
KCP_CHECK(check_14_sum_pieces) = { "14_conv", "sum_pieces",
    "sums over ranks are right if a row is sent in several messages", pieces };
