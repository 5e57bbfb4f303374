/* behind.c -- a backward behind whose arguments forward's o and ht lie: -DWRONG=1, 2.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh, which
 * wants both seen.  Next: tests/judge/self_trials.c.
 *
 * What forward left is changed here: 1: a number of o; 2: what lies past ht. So o and
 * ht of a forward that ran in a shared object's process are looked at by the judge. */
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
    "changes what forward left", KCP_F64, KCP_HOST, "any", run, NULL };
const struct kcp_variant *const kcp_variant = &behind;
