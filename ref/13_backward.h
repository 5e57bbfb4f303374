/* 13_backward.h -- the tensors of one rank's backward pass, for both files of chapter
 * 13.
 *
 * Book: chapter 13.  Checked by: tests/13_backward/checks.c.
 * Next: ref/13_recompute.c, the saved tensors; ref/13_backward.c, the program. */
#ifndef KCP_REF_13_BACKWARD_H
#define KCP_REF_13_BACKWARD_H

#include "08_rank.h"

#include <string.h>

struct backward_rank {
    const struct kcp_backward *a;
    const struct kcp_plan *plan;
    struct rank_arrays own;                /* freed at the end */
    double *q, *k, *beta, *Aqk, *A;        /* in the saved block */
    double *G, *w, *u, *qg, *kg, *v_new, *h;   /* saved or recomputed */
    double *dAqk, *dv_local, *dU, *dh, *dh_in, *states;              /* chapter 09 */
    double *dq, *dk, *dbeta, *dg, *dA_part, *ddt_part;               /* chapter 10 */
};

/* CALL declares an args struct `name` with this rank's call, STAGE also its grid. */
#define CALL(type, name)                                                              \
    struct type name = { 0 };                                                         \
    memcpy(&name, x->a, sizeof(struct kcp_call))
#define STAGE(type, name)                                                             \
    CALL(type, name);                                                                 \
    name.cu = x->a->cu; name.cn = x->a->cn; name.sc = x->a->sc

/* ---- 13_recompute.c. backward_open returns KCP_MISMATCH if the block has another
 * format or mode. */
int backward_open(struct backward_rank *x);
int backward_recompute(struct backward_rank *x);        /* KCP_NO_MEMORY */

#endif
