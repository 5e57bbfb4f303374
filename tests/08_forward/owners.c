/* owners.c -- runs forward and backward with the segments of a plan linked in a wrong
 * order.
 * Book: chapter 06.
 * The mutants call the reference. The wrong orders imitate mistakes that are likely
 * if a rank owns several ranges. For example, a shard is treated as one run of
 * tokens, or the second half of a zigzag layout is not mirrored. A mutant returns
 * KCP_NA if the wrong order equals the correct order. */
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

enum relink {
    BY_SHARD,                  /* takes rank 0's segments, then rank 1's, etc. */
    UNMIRRORED,                /* takes all ranks' first segments, then their second */
    SWAPPED,                   /* swaps two neighbours with different owners */
};

/* Returns the sort key of segment j in the wrong order. Smaller keys come first. */
static int64_t key_of(const struct kcp_plan *p, int j, enum relink how)
{
    const struct kcp_segment *g = &p->seg[j];
    int earlier = 0;
    if (how == BY_SHARD) return j;
    if (how == SWAPPED) return g->at;
    for (int i = p->ctx[g->rank].seg0; i < j; i++)
        earlier += p->seg[i].n == g->n;
    return (int64_t)earlier * p->R + g->rank;
}

/* Swaps the first two neighbours in list j that have different owners, but never the
 * sequence's first or last segment. Returns 0 if there are no such neighbours. */
static int swap(const struct kcp_plan *p, int *j, int m)
{
    for (int i = 1; i + 2 < m; i++)
        if (p->seg[j[i]].rank != p->seg[j[i + 1]].rank) {
            const int x = j[i];
            j[i] = j[i + 1];
            j[i + 1] = x;
            return 1;
        }
    return 0;
}

/* Links a sequence's m segments in the order j[0], j[1], ... */
static void link_up(struct kcp_segment *seg, const int *j, int m)
{
    for (int i = 0; i < m; i++) {
        seg[j[i]].prev = i ? j[i - 1] : -1;
        seg[j[i]].next = i + 1 < m ? j[i + 1] : -1;
        seg[j[i]].pre = i ? seg[j[i - 1]].pre + (seg[j[i - 1]].rank != seg[j[i]].rank)
                          : 0;
    }
    for (int i = m - 1; i >= 0; i--)
        seg[j[i]].post = i + 1 < m ? seg[j[i + 1]].post +
                                     (seg[j[i + 1]].rank != seg[j[i]].rank) : 0;
}

/* Makes a shallow copy of a plan with new segments copy->seg, which the caller frees.
 * The first and the last segment of each sequence stay first and last. Returns KCP_NA
 * if the new order is the correct order. */
static int plan_relinked(const struct kcp_plan *p, enum relink how,
                         struct kcp_plan *copy)
{
    int *j = malloc(sizeof *j * (size_t)(p->S + 1)), moved = 0;
    *copy = *p;
    copy->seg = malloc(sizeof *p->seg * (size_t)(p->S + 1));
    if (!j || !copy->seg) {
        free(j);
        free(copy->seg);
        return KCP_NO_MEMORY;
    }
    memcpy(copy->seg, p->seg, sizeof *p->seg * (size_t)p->S);
    for (int from = 0, to; from < p->S; from = to) {
        for (to = from; to < p->S && p->seg[p->order[to]].n ==
                                     p->seg[p->order[from]].n; to++)
            j[to - from] = p->order[to];
        for (int a = 1; a + 1 < to - from; a++)          /* between the two ends */
            for (int b = a; b > 1 && key_of(p, j[b - 1], how) > key_of(p, j[b], how);
                 b--) {
                const int x = j[b];
                j[b] = j[b - 1];
                j[b - 1] = x;
                moved = 1;
            }
        if (how == SWAPPED) moved |= swap(p, j, to - from);
        link_up(copy->seg, j, to - from);
    }
    free(j);
    if (moved) return KCP_OK;
    free(copy->seg);
    return KCP_NA;
}

static int relinked(void *args, enum relink how, const char *stage)
{
    struct kcp_call *call = args;
    const struct kcp_plan *correct = call->plan;
    struct kcp_plan plan;
    int status = plan_relinked(correct, how, &plan);
    if (status) return status;
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
       "applies all maps of a rank together, as if it had one range");
MUTANT(m08_unmirrored, "08_forward", "mutant_owners_unmirrored", UNMIRRORED,
       "zigzag: takes the second ranges in rank order, not in reverse");
MUTANT(m08_swapped, "08_forward", "mutant_owners_swapped", SWAPPED,
       "applies the maps of two segments in reverse order");
MUTANT(m13_by_shard, "13_backward", "mutant_owners_by_shard", BY_SHARD,
       "applies all maps of a rank together, as if it had one range");
MUTANT(m13_unmirrored, "13_backward", "mutant_owners_unmirrored", UNMIRRORED,
       "zigzag: takes the second ranges in rank order, not in reverse");
MUTANT(m13_swapped, "13_backward", "mutant_owners_swapped", SWAPPED,
       "applies the maps of two segments in reverse order");
