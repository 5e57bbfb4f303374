/* threads.c -- runs the threads of the student's kernel one at a time.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=17_thread.  Next: block.c.
 * This file replaces ref/17_block.c in the student's object. The variant "alone" runs
 * the threads of all blocks in random order. A thread may write only its own column.
 */
#define block_launch plain_launch
#include "17_block.c"
#undef block_launch
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_thread_lab;
void block_launch(void kernel(const struct kcp_ladder *a, int s, int n, int v),
                  const struct kcp_ladder *a);

static int watched, strayed;
static unsigned drawn = 1;

/* Returns a copy of v_new and h_out, which have *nv and *nh numbers. */
static double *both(const struct kcp_ladder *a, size_t *nv, size_t *nh)
{
    *nv = (size_t)a->T * a->HV * a->V;
    *nh = (size_t)a->NS * a->HV * a->K * a->V;
    double *copy = malloc(sizeof *copy * (*nv + *nh));
    if (!copy) return NULL;
    memcpy(copy, a->v_new, sizeof *copy * *nv);
    memcpy(copy + *nv, a->h_out, sizeof *copy * *nh);
    return copy;
}

/* Returns 1 if this thread wrote outside column v of head n. */
static int stray(const struct kcp_ladder *a, int s, int n, int v, const double *was)
{
    const size_t nv = (size_t)a->T * a->HV * a->V, row = a->V;
    const double *now = a->v_new;
    const size_t nh = (size_t)a->NS * a->HV * a->K * a->V, own = s * a->HV + n;
    for (size_t i = 0; i < nv; i++) {
        const int mine = (int)(i % row) == v && (int)(i / row % a->HV) == n;
        if (!mine && memcmp(now + i, was + i, sizeof *now)) return 1;
    }
    now = a->h_out;
    for (size_t i = 0; i < nh; i++) {
        const int mine = (int)(i % row) == v && i / row / a->K == own;
        if (!mine && memcmp(now + i, was + nv + i, sizeof *now)) return 1;
    }
    return 0;
}

void block_launch(void kernel(const struct kcp_ladder *a, int s, int n, int v),
                  const struct kcp_ladder *a)
{
    const int all = a->NS * a->HV * a->V;
    int *order = malloc(sizeof *order * (all + 1));
    if (!watched || !order) {
        plain_launch(kernel, a);
        free(order);
        return;
    }
    for (int i = 0; i < all; i++) {
        drawn = drawn * 1103515245u + 12345u;
        const int j = (int)(drawn / 65536 % (unsigned)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < all; i++) {
        const int v = order[i] % a->V, n = order[i] / a->V % a->HV;
        const int s = order[i] / a->V / a->HV;
        size_t nv, nh;
        double *was = both(a, &nv, &nh);
        kernel(a, s, n, v);
        strayed |= !was || stray(a, s, n, v, was);
        free(was);
    }
    free(order);
}

static int alone(void *args)
{
    watched = 1;
    strayed = 0;
    const int status = lab_17_thread_lab.run(args);
    watched = 0;
    if (!status && strayed) return failed("a thread writes outside of its own column");
    return status;
}

KCP_VARIANT(lab_17_thread_alone) = { "17_ladder", "alone", "yours, thread by thread",
    KCP_F64, KCP_HOST, "any", alone, NULL };
