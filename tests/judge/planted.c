/* planted.c -- references with a mistake: the state is not carried from chunk to chunk.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_lists.c.
 * Next: planted_08.c.
 *
 * Each chunk is passed to the references of chapters 04, 05, 09 and 11 as a separate
 * sequence. */
#include "checked.h"
#include "plants.h"

#include <stdlib.h>
#include <string.h>

static const int *ints(const struct kcp_stage *s, const char *args, const char *name)
{
    for (int i = 0; i < s->nfields; i++)
        if (!strcmp(s->fields[i].name, name))
            return *(const int *const *)(const void *)(args + s->fields[i].at);
    return NULL;
}

/* Advances pointers to arrays with one row per stretch or per chunk to the row of this
 * stretch or chunk. Unless is_first is set, sets pointers to initial states to NULL. */
static void move_rows(const struct kcp_stage *s, char *args, int stretch, int chunk,
                      int is_first)
{
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        char **p = (char **)(void *)(args + f->at);
        int64_t dim[4] = { 1, 1, 1, 1 }, row = f->store == KCP_I32 ? 4 : 8;
        const int by_stretch = has_row_per(f, "NS");
        if (!*p || (!by_stretch && !has_row_per(f, "NC"))) continue;
        if (!strcmp(f->name, "sc")) continue;
        const int nd = shape_dims((const struct kcp_call *)(const void *)args, f->shape,
                                  dim);
        for (int d = 1; d < nd; d++) row *= dim[d];
        *p += row * (by_stretch ? stretch : chunk);
        if (!is_first && field_in(f) && !strcmp(f->shape, "NS HV K V")) *p = NULL;
    }
}

/* Runs the reference of a chapter separately for each chunk. The argument check is
 * disabled, because it rejects a grid of only some tokens. For maps, only the chunk
 * processed last runs. */
static int uncarried(const char *number, void *args)
{
    const struct kcp_stage *s = stage_find(number);
    const struct kcp_call *c = args;
    const int *cu = ints(s, args, "cu"), *cn = ints(s, args, "cn");
    const int is_back = atoi(number) > 5, is_map = atoi(number) % 6 == 5;
    int status = KCP_OK;
    if (!planted_here(c)) return s->ref(args);
    char *one = alloc_or_exit(s->args);
    kcp_checked_enter();
    for (int j = 0; j < c->NS; j++) {
        const int chunks = cn[j + 1] > cn[j] ? cn[j + 1] - cn[j] : 1;
        for (int i = is_map ? chunks - 1 : 0; i < chunks && !status; i++) {
            const int at = is_back ? chunks - 1 - i : i, from = cu[j] + at * c->C;
            const int to = at + 1 < chunks ? from + c->C : cu[j + 1];
            const int grid[] = { from, to }, count[] = { 0, to > from }, zero[] = { 0 };
            struct kcp_chunk *x = (struct kcp_chunk *)(void *)one;
            memcpy(one, args, s->args);
            move_rows(s, one, j, cn[j] + at, !i);
            x->NS = 1;
            x->NC = count[1];
            x->cu = grid;
            x->cn = count;
            x->sc = zero;
            status = s->ref(one);
        }
    }
    kcp_checked_leave();
    free(one);
    return status;
}

int uncarried_04(void *args) { return uncarried("04", args); }
int uncarried_05(void *args) { return uncarried("05", args); }
int uncarried_09(void *args) { return uncarried("09", args); }
int uncarried_11(void *args) { return uncarried("11", args); }
