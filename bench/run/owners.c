/* owners.c -- makes the table of owners (the rank of each range of tokens), and
 * permutes rows from token order to shard order and back.
 * Book: chapter 06.
 * Files are in token order. If a rank owns several ranges, the run needs shard order:
 * rank 0's rows, then rank 1's rows, etc. (chapter 06). */
#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Makes the table of owners for --layout. Without --layout, B = 0 and each rank owns
 * one range. */
int owners_make(struct run *x, const int64_t *cu, int R, struct kcp_owners *o)
{
    const char *why = "";
    *o = (struct kcp_owners){ 0 };
    if (!x->o.spread) return 0;
    const int64_t stripe = x->o.stripe ? x->o.stripe : x->size.C;
    if (kcp_owners_make(o, x->o.spread, x->size.N, cu, R, stripe, &why))
        return run_error(x, RUN_BAD, "--layout", "%s", why);
    return 0;
}

/* Permutes arrays with a row per token to shard order or, if back = 1, token order. */
int owners_permute(struct run *x, int back)
{
    const struct kcp_plan *p = x->plan;
    for (int i = 0; i < x->a.n; i++) {
        struct tensor *a = &x->a.t[i];
        if (!array_split(a) || a->copies > 1 || a->dim[0] < 1 || !a->p) continue;
        const size_t bytes = sizeof(double) * (size_t)a->n;
        const size_t row = bytes / (size_t)a->dim[0];
        char *whole = malloc(bytes + 1);
        if (!whole) return run_error(x, RUN_FAILED, a->file, "out of memory");
        memcpy(whole, a->p, bytes);
        for (int r = 0; r < p->R; r++) {
            const size_t at = row * (size_t)p->ctx[r].begin;
            if (back) kcp_plan_give(p, r, row, whole + at, a->p);
            else kcp_plan_take(p, r, row, whole, (char *)a->p + at);
        }
        free(whole);
    }
    return 0;
}

/* Writes a rank's first range and the number of its other ranges, e.g. "0..16 +3". */
void owners_text(const struct kcp_plan *p, int r, char *text, size_t n)
{
    int first = -1, more = -1;
    for (int b = 0; b < p->B; b++) {
        if (p->owner[b] != r) continue;
        first = first < 0 ? b : first;
        more++;
    }
    const int64_t begin = first < 0 ? p->ctx[r].begin : p->bound[first];
    const int64_t end = first < 0 ? begin : p->bound[first + 1];
    const int at = snprintf(text, n, "%" PRId64 "..%" PRId64, begin, end);
    if (more > 0 && at < (int)n) snprintf(text + at, n - (size_t)at, " +%d", more);
}
