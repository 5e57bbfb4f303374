/* ref.h -- the table of contents: every reference, in the order of the book.
 *
 * Book: all chapters.  Checked by: tests/NN_name/checks.c.  Next: ref/01_step.c.
 *
 * All arrays are double (indices int32 or int64), row major, the caller's. Each
 * function returns a kcp_status; the equation it implements stands above its body.
 */
#ifndef KCP_REF_H
#define KCP_REF_H

#include "kcp.h"

#pragma GCC visibility push(default)

int ref_step(struct kcp_step *a);   /* 01 forward, and its adjoint */
int ref_gate(struct kcp_gate *a);   /* 02 front end, and back */
int ref_wy(struct kcp_wy *a);   /* 03 Aqk, A, u, w, kg, qg */
int ref_wy_factors(struct kcp_wy *a);   /* 03 u, w, kg, qg, from A as given */
int ref_chunk(struct kcp_chunk *a);   /* 04 state scan and output */
int ref_affine(struct kcp_affine *a);   /* 05 (h_ext, M) of a stretch */
/* 06 is kcp_plan_make */
int ref_merge(struct kcp_merge *a);   /* 07 the fold */
int ref_forward(struct kcp_forward *a);   /* 08 one rank's forward */
int ref_chunk_backward(struct kcp_chunk_backward *a);   /* 09 dAqk, dv_local, reverse */
int ref_wy_backward(struct kcp_wy_backward *a);   /* 10 dq dk dv dbeta dg */
int ref_merge_backward(struct kcp_merge_backward *a);   /* 11 (dh_ext, M) in reverse */
int ref_h0(struct kcp_h0 *a);   /* 12 compress, expand */
void ref_state(const void *args, int out, const double *from, double *to);
int ref_backward(struct kcp_backward *a);   /* 13 one rank's backward */
int ref_conv(struct kcp_conv *a);   /* 14 convolution, token shift */
int ref_scan_step(struct kcp_scan *a);   /* 15 token by token, and the adjoint */
int ref_scan(struct kcp_scan *a);   /* 15 one rank's forward or backward */
int ref_family_step(struct kcp_family *a);   /* 16 token by token, and the adjoint */
int ref_family(struct kcp_family *a);   /* 16 one rank's forward or backward */
int ref_ladder(struct kcp_ladder *a);   /* 17 the state scan of 04, without output */
int ref_ladder_lanes(struct kcp_ladder *a);   /* 17 the same by 32 lanes that step */
int ref_ladder_banks(struct kcp_ladder *a);   /* 17 and by swizzled tiles */
int ref_ladder_threads(struct kcp_ladder *a); /* 17 by threads, a column each */
int ref_ladder_shared(struct kcp_ladder *a);  /* 17 by a block with shared memory */
int ref_ladder_stages(struct kcp_ladder *a);  /* 17 by copies in flight, in stages */
int ref_ladder_wgmma(struct kcp_ladder *a);   /* 17 by a warpgroup and descriptors */
int ref_ladder_roles(struct kcp_ladder *a);   /* 17 by a producer and consumers */

#pragma GCC visibility pop

#endif
