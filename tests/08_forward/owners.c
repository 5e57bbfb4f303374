/* owners.c -- runs forward and backward with the segments of a plan linked in a wrong
 * order.
 *
 * Book: chapter 06.  Checked by: the judge, which must reject each mutant.
 * Next: tests/08_forward/mutants.c.
 * The mutants call the reference. A mutant returns KCP_NA if the wrong order equals the
 * correct order. */
#include "tests/judge/judge.h"
#include "tests/judge/relink.h"

#include <stdlib.h>

static int relinked(void *args, enum relink how, const char *stage)
{
    struct kcp_call *call = args;
    const struct kcp_plan *correct = call->plan;
    struct kcp_plan plan;
    int status = plan_relinked(correct, how, &plan);
    if (status)
        return status;
    call->plan = &plan;
    status = stage_find(stage)->ref(args);
    call->plan = correct;
    free(plan.seg);
    return status;
}

#define MUTANT(ident, stage, name, how, why)                                          \
    static int run_##ident(void *args) { return relinked(args, how, stage); }         \
    KCP_VARIANT(ident) = { stage, name, why, KCP_F64, KCP_HOST,                        \
                           "ranks that own several ranges", run_##ident, NULL }

MUTANT(m08_by_shard, "08_forward", "mutant_owners_by_shard", BY_SHARD,
       "the fold treats all ranges of a rank as one range");
MUTANT(m08_unmirrored, "08_forward", "mutant_owners_unmirrored", UNMIRRORED,
       "assigns second ranges in order, not mirrored");
MUTANT(m08_swapped, "08_forward", "mutant_owners_swapped", SWAPPED,
       "folds two segments in the wrong order");
MUTANT(m13_by_shard, "13_backward", "mutant_owners_by_shard", BY_SHARD,
       "the fold treats all ranges of a rank as one range");
MUTANT(m13_unmirrored, "13_backward", "mutant_owners_unmirrored", UNMIRRORED,
       "assigns second ranges in order, not mirrored");
MUTANT(m13_swapped, "13_backward", "mutant_owners_swapped", SWAPPED,
       "folds two segments in the wrong order");
