/* behind.c -- a backward that changes outputs of the forward that ran before it.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * WRONG=1 changes one element of o; WRONG=2 writes one element past the end of ht. The
 * judge must reject both mistakes, because it checks o and ht after the backward. */
#include "kcp.h"
#include "ref.h"

static int run(void *args)
{
    struct kcp_backward *a = args;
    double *const *forward = (double *const *)(a + 1);
    if (WRONG == 1 && a->T && a->r == 0) forward[0][0] += 1;
    if (WRONG == 2 && a->r == 0) forward[1][(int64_t)a->N * a->HV * a->K * a->V] = 1;
    return ref_backward(a);
}

static const struct kcp_variant behind = { "13_backward", "behind",
    "changes outputs of forward", KCP_F64, KCP_HOST, "any", run, NULL };
const struct kcp_variant *const kcp_variant = &behind;
