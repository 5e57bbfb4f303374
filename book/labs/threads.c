/* threads.c -- runs the threads of the student's kernel one at a time.
 * Book: staff.md.  Used by: make grade LAB=17_thread.
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

/* `was` has v_new and h_out before thread (s, n, v) ran. Copies the thread's column to
 * `was`; then returns 1 if any other number differs from `was`. */
static int stray(const struct kcp_ladder *a, int s, int n, int v, double *was)
{
    const size_t nv = (size_t)a->T * a->HV * a->V;
    const size_t nh = (size_t)a->NS * a->HV * a->K * a->V;
    const double *v_new = a->v_new, *h_out = a->h_out;
    for (size_t i = (size_t)n * a->V + v; i < nv; i += (size_t)a->HV * a->V)
        was[i] = v_new[i];
    for (int k = 0; k < a->K; k++) {
        const size_t i = (((size_t)s * a->HV + n) * a->K + k) * a->V + v;
        was[nv + i] = h_out[i];
    }
    return memcmp(was, v_new, sizeof *was * nv) ||
           memcmp(was + nv, h_out, sizeof *was * nh);
}

void block_launch(void kernel(const struct kcp_ladder *a, int s, int n, int v),
                  const struct kcp_ladder *a)
{
    const int all = a->NS * a->HV * a->V;
    const size_t nv = (size_t)a->T * a->HV * a->V, nh = (size_t)all * a->K;
    if (!watched) {
        plain_launch(kernel, a);
        return;
    }
    int *order = malloc(sizeof *order * (all + 1));
    double *was = malloc(sizeof *was * (nv + nh + 1));
    strayed |= !order || !was;
    if (!strayed) {
        memcpy(was, a->v_new, sizeof *was * nv);
        memcpy(was + nv, a->h_out, sizeof *was * nh);
    }
    for (int i = 0; i < all && !strayed; i++) {
        drawn = drawn * 1103515245u + 12345u;
        const int j = (int)(drawn / 65536 % (unsigned)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < all && !strayed; i++) {
        const int v = order[i] % a->V, n = order[i] / a->V % a->HV;
        const int s = order[i] / a->V / a->HV;
        kernel(a, s, n, v);
        strayed = stray(a, s, n, v, was);
    }
    free(order);
    free(was);
}

static int alone(void *args)
{
    watched = 1;
    strayed = 0;
    const int status = lab_17_thread_lab.run(args);
    watched = 0;
    if (!status && strayed) return failed("a thread writes outside its own column");
    return status;
}

KCP_VARIANT(lab_17_thread_alone) = { "17_ladder", "alone", "yours, thread by thread",
    KCP_F64, KCP_HOST, "any", alone, NULL };
