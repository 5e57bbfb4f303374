/* owners.c -- runs forward with the segments of a plan linked in a wrong order.
 *
 * Book: chapter 06.  Checked by: the judge, which must reject each mutant.
 * Next: tests/08_forward/mutants.c.
 * The mutants call the reference. A mutant returns KCP_NA if the wrong order equals the
 * correct order. */
#include "tests/judge/judge.h"
#include "tests/judge/relink.h"
#include "ref.h"

#include <stdlib.h>

static int forward(void *args, enum relink how)
{
    struct kcp_forward a = *(const struct kcp_forward *)args;
    struct kcp_plan plan;
    int status = plan_relinked(a.plan, how, &plan);
    if (status)
        return status;
    a.plan = &plan;
    status = ref_forward(&a);
    free(plan.seg);
    return status;
}

#define MUTANT(ident, how, why)                                                       \
    static int run_##ident(void *args) { return forward(args, how); }                 \
    KCP_VARIANT(m08_##ident) = { "08_forward", "mutant_" #ident, why, KCP_F64,        \
                                 KCP_HOST, "ranks that own several ranges",           \
                                 run_##ident, NULL }

MUTANT(owners_by_shard, BY_SHARD, "the fold treats all ranges of a rank as one range");
MUTANT(owners_unmirrored, UNMIRRORED, "assigns second ranges in order, not mirrored");
MUTANT(owners_swapped, SWAPPED, "folds two segments in the wrong order");
