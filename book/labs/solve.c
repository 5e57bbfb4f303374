/* solve.c -- judges only the student's dv; the reference computes all other gradients.
 * Book: staff.md.  Used by: the rows `dv alone` of 10_solve.lab.
 * This variant of stage 10 runs the student's code and keeps only dv = beta A^T dU.
 */
#include "kcp.h"
#include "ref.h"
#include "stages.h"

#include <stdlib.h>
#include <string.h>

extern const struct kcp_variant lab_10_solve_lab;

static int dv_alone(void *args)
{
    struct kcp_wy_backward *a = args, mine = *a;
    const size_t qk = (size_t)a->T * a->H * a->K, vo = (size_t)a->T * a->HV * a->V;
    const size_t one = (size_t)a->T * a->HV, gate = one * a->KG;
    double *all = calloc(2 * qk + vo + one + gate + 1, sizeof *all);
    if (!all) return KCP_NO_MEMORY;
    mine.dq = all;
    mine.dk = all + qk;
    mine.dv = all + 2 * qk;
    mine.dbeta = all + 2 * qk + vo;
    mine.dg = all + 2 * qk + vo + one;
    int status = lab_10_solve_lab.run(&mine);
    if (!status) status = ref_wy_backward(a);
    if (!status && vo) memcpy(a->dv, mine.dv, sizeof *all * vo);
    free(all);
    return status;
}

KCP_VARIANT(lab_10_solve_dv) = { "10_wy_backward", "dv", "yours, dv alone", KCP_F64,
                                 KCP_HOST, "any", dv_alone, NULL };
