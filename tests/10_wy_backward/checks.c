/* checks.c -- compares chapter 10's gradients with the adjoint of the token recurrence.
 *
 * Book: chapter 10.  Checked by: itself, it can fail.  Next: ref/11_merge_backward.c.
 * At gate -50, dg is 1e-22 of a typical gradient, so that any cancellation of larger
 * terms would destroy dg.
 */
#include "tests/03_wy/batch.h"

static int against_adjoint(struct kcp_report *rep)
{
    static const double gate[] = { 0, -1, -5, -10, -50 };
    static const char *const name[] = { "dq", "dk", "dv", "dbeta", "dg", "dh_in" };
    int status = KCP_OK;
    for (int model = 0; model < 2; model++)
        for (int j = 0; j < 5 && !status; j++) {
            struct batch x;
            struct tensor_set step = { .n = 0 };
            status = batch_make(&x, model ? KCP_GDN : KCP_KDA, 16, gate[j], EACH_GATE);
            tensor_set_copy(&step, &x.set);
            x.c.pass = KCP_BACKWARD;
            status = status ? status : batch_stage(&x, &step, "01_step");
            for (int e = 0; e < 6 && !status; e++) {
                const double err = batch_apart(&x, name[e], &step,
                                               e == 5 ? "dh0" : name[e]);
                EXPECT(rep, err <= 1e-13,
                       "%s, gate %g: %s differs from the adjoint by %.2g",
                       model ? "GDN" : "KDA", gate[j], name[e], err);
            }
            tensor_set_free(&step);
            batch_free(&x);
        }
    return status;
}
KCP_CHECK(check_10_adjoint) = { "10_wy_backward", "adjoint",
    "gradients agree with the adjoint of the recurrence to 1e-13, also dg if "
    "g = -50", against_adjoint };
