/* owners.c -- runs backward with the segments of a plan linked in a wrong order.
 *
 * Book: chapter 06.  Checked by: the judge, which must reject each mutant.
 * Next: tests/13_backward/checks.c.
 * The mutants call the reference. A mutant returns KCP_NA if the wrong order equals the
 * correct order. */
#include "tests/judge/judge.h"
#include "tests/judge/relink.h"
#include "ref.h"

#include <stdlib.h>

static int backward(void *args, enum relink how)
{
    struct kcp_backward a = *(const struct kcp_backward *)args;
    struct kcp_plan plan;
    int status = plan_relinked(a.plan, how, &plan);
    if (status)
        return status;
    a.plan = &plan;
    status = ref_backward(&a);
    free(plan.seg);
    return status;
}

#define MUTANT(ident, how, why)                                                       \
    static int run_##ident(void *args) { return backward(args, how); }                \
    KCP_VARIANT(m13_##ident) = { "13_backward", "mutant_" #ident, why, KCP_F64,       \
                                 KCP_HOST, "ranks that own several ranges",           \
                                 run_##ident, NULL }

MUTANT(owners_by_shard, BY_SHARD, "the fold treats all ranges of a rank as one range");
MUTANT(owners_unmirrored, UNMIRRORED, "assigns second ranges in order, not mirrored");
MUTANT(owners_swapped, SWAPPED, "folds two segments in the wrong order");
