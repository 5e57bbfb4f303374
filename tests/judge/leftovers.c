/* leftovers.c -- copies bytes that a run left in its workspace to later workspaces.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self_trials.c.
 * Next: trial.c.
 *
 * Two copies are kept per rank: of the last workspace, and of the last workspace with a
 * different size. If a variant marks its workspace as prepared, it then finds the mark
 * in a workspace that was prepared for another size, and gives wrong results. A copy is
 * on the same device as its workspace. */
#include "trial.h"

struct leftover {
    char *bytes;
    size_t n, of_bytes;                    /* first n bytes of of_bytes */
    const struct memory *of;
};
enum { RANKS = 16, MOST_LEFT = 8 << 20 };
static struct { struct leftover last, before; } left[RANKS];

static void drop(struct leftover *x)
{
    if (x->bytes) x->of->free(x->bytes);
    *x = (struct leftover){ .bytes = NULL };
}

void leftovers_keep(const struct rank_args *s, const void *work, size_t bytes)
{
    struct leftover *x = &left[s->call.r % RANKS].last;
    const size_t n = bytes < MOST_LEFT ? bytes : MOST_LEFT;
    if (!work || !n) return;
    if (x->bytes && (x->of_bytes != bytes || x->of != s->mem)) {
        drop(&left[s->call.r % RANKS].before);
        left[s->call.r % RANKS].before = *x;
        *x = (struct leftover){ .bytes = NULL };
    }
    if (!x->bytes) *x = (struct leftover){ s->mem->alloc(n), n, bytes, s->mem };
    if (x->bytes && s->mem->copy_soon(x->bytes, work, n)) drop(x);
}

int leftovers_lay(const struct rank_args *s, void *work, size_t bytes,
                  enum leftovers which)
{
    const struct leftover *x = &left[s->call.r % RANKS].last;
    int status = KCP_OK;
    if (which == LEFT_OTHER_SIZE && left[s->call.r % RANKS].before.bytes)
        x = &left[s->call.r % RANKS].before;
    if (!x->bytes || x->of != s->mem) return status;
    for (size_t at = 0; at < bytes && !status; at += x->n)
        status = s->mem->copy_soon((char *)work + at, x->bytes,
                                   bytes - at < x->n ? bytes - at : x->n);
    return status;
}
