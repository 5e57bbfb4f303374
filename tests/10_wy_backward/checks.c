/* checks.c -- compares chapter 10's gradients with the adjoint of the token recurrence.
 * Book: chapter 10.
 * At gate -50, dg is 1e-22 times a typical gradient. If dg were a difference of larger
 * terms, rounding errors would therefore exceed dg.
 */
#include "tests/03_wy/batch.h"

static int gradients(struct kcp_report *rep, struct batch *x, const char *what)
{
    static const char *const names[][2] = { { "dq", "dq" }, { "dk", "dk" },
        { "dv", "dv" }, { "dbeta", "dbeta" }, { "dg", "dg" }, { "dh_in", "dh0" } };
    return batch_against_step(rep, x, what, KCP_BACKWARD, names, 6, 1e-13);
}

static int against_adjoint(struct kcp_report *rep)
{
    return batch_each(rep, EACH_GATE, gradients);
}
KCP_CHECK(check_10_adjoint) = { "10_wy_backward", "adjoint",
    "gradients agree with the adjoint of the recurrence to 1e-13, even dg at g = -50",
    against_adjoint };
