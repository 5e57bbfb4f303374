/* owners.c -- reads the table of owners (the rank of each range of tokens), and
 * permutes rows from token order to shard order and back.
 *
 * Book: chapter 06.
 * Files are in token order. If a rank owns several ranges, the run needs shard order:
 * rank 0's rows, then rank 1's rows, etc. (chapter 06). */
#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Reads --owners FILE [B,2]. A row has the first token and the rank of a range. */
static int read_table(struct run *x, struct kcp_owners *o)
{
    struct npy in;
    const char *file = x->o.owners;
    char found[80];
    if (npy_read(file, &in, x->why, sizeof x->why) != 0) {
        x->exit = RUN_BAD;
        return -1;
    }
    const int whole = in.kind == NPY_I64 || in.kind == NPY_I32;
    const int64_t *row = in.data, B = in.nd == 2 ? in.dim[0] : 0;
    int bad = 0;
    if (!whole || in.nd != 2 || in.dim[1] != 2 || B < 1 || B > 1 << 26) {
        npy_shape(in.nd, in.dim, found, sizeof found);
        bad = run_error(x, RUN_BAD, file, "found %s of %s, expected [B,2] of int64 or "
                        "int32: first token, rank", found, npy_kind_name(in.kind));
    }
    o->bound = bad ? NULL : malloc(sizeof *o->bound * (size_t)(B + 1));
    o->owner = bad ? NULL : malloc(sizeof *o->owner * (size_t)B);
    if (!bad && (!o->bound || !o->owner))
        bad = run_error(x, RUN_FAILED, file, "out of memory");
    for (int64_t b = 0; b < B && !bad; b++) {
        o->bound[b] = row[2 * b];
        o->owner[b] = (int)row[2 * b + 1];
        if (row[2 * b + 1] < 0 || row[2 * b + 1] >= MOST_RANKS)
            bad = run_error(x, RUN_BAD, file, "found rank %" PRId64
                            ", expected 0 to %d", row[2 * b + 1], MOST_RANKS - 1);
    }
    if (!bad) {
        o->B = (int)B;
        o->bound[B] = x->size.T;
    }
    npy_free(&in);
    return bad;
}

/* Makes the table of owners for --owners or --layout. Without either, B = 0 and each
 * rank owns one range. Without --ranks, sets *R to 1 + the largest rank in the file. */
int owners_read(struct run *x, const int64_t *cu, int *R, struct kcp_owners *o)
{
    const char *why = "";
    *o = (struct kcp_owners){ 0 };
    if (x->o.owners) {
        if (read_table(x, o) != 0)
            return -1;
        for (int b = 0; b < o->B && !x->o.ranks; b++)
            if (o->owner[b] >= *R)
                *R = o->owner[b] + 1;
        return 0;
    }
    if (!x->o.spread)
        return 0;
    const int64_t stripe = x->o.stripe ? x->o.stripe : x->size.C;
    if (kcp_owners_make(o, x->o.spread, x->size.N, cu, *R, stripe, &why))
        return run_error(x, RUN_BAD, "--layout", "%s", why);
    return 0;
}

/* Permutes arrays with a row per token to shard order or, if back = 1, token order. */
int owners_permute(struct run *x, int back)
{
    const struct kcp_plan *p = x->plan;
    for (int i = 0; i < x->a.n; i++) {
        struct tensor *a = &x->a.t[i];
        const size_t elem = a->store == KCP_I32 ? sizeof(int) : sizeof(double);
        if (!array_split(a) || a->copies > 1 || a->dim[0] < 1 || !a->p)
            continue;
        const size_t bytes = elem * (size_t)a->n, row = bytes / (size_t)a->dim[0];
        char *whole = malloc(bytes + 1);
        if (!whole)
            return run_error(x, RUN_FAILED, a->file, "out of memory");
        memcpy(whole, a->p, bytes);
        for (int r = 0; r < p->R; r++) {
            const size_t at = row * (size_t)p->ctx[r].begin;
            if (back)
                kcp_plan_give(p, r, row, whole + at, a->p);
            else
                kcp_plan_take(p, r, row, whole, (char *)a->p + at);
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
        if (p->owner[b] != r)
            continue;
        first = first < 0 ? b : first;
        more++;
    }
    const int64_t begin = first < 0 ? p->ctx[r].begin : p->bound[first];
    const int64_t end = first < 0 ? begin : p->bound[first + 1];
    const int at = snprintf(text, n, "%" PRId64 "..%" PRId64, begin, end);
    if (more > 0 && at < (int)n)
        snprintf(text + at, n - (size_t)at, " +%d", more);
}
