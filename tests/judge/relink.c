/* relink.c -- builds plans that link a sequence's segments in a wrong order.
 *
 * Book: chapter 06.  Checked by: tests/08_forward/owners.c.
 * Next: tests/06_plan/checks.c. */
#include "relink.h"

#include <stdlib.h>
#include <string.h>

/* Returns the sort key of segment j in the wrong order; smaller keys come first. */
static int64_t key_of(const struct kcp_plan *p, int j, enum relink how)
{
    const struct kcp_segment *g = &p->seg[j];
    int earlier = 0;
    if (how == BY_SHARD)
        return j;
    if (how == SWAPPED)
        return g->at;
    for (int i = p->ctx[g->rank].seg0; i < j; i++)
        earlier += p->seg[i].n == g->n;
    return (int64_t)earlier * p->R + g->rank;
}

/* Exchanges the first two neighbours in j that have different owners, but never moves
 * the sequence's first or last segment. Returns 0 if there are no such neighbours. */
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

int plan_relinked(const struct kcp_plan *p, enum relink how, struct kcp_plan *copy)
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
        if (how == SWAPPED)
            moved |= swap(p, j, to - from);
        link_up(copy->seg, j, to - from);
    }
    free(j);
    if (moved)
        return KCP_OK;
    free(copy->seg);
    return KCP_NA;
}
