/* ref.h -- the table of contents: every reference, in the order of the book.
 * Book: all chapters.
 *
 * The caller owns all arrays, which are double (indices: int32 or int64) and row major.
 * Equations are above the bodies. All functions but ref_state return a kcp_status. */
#ifndef KCP_REF_H
#define KCP_REF_H

#include "kcp.h"

#pragma GCC visibility push(default)

int kcp_ref_step(struct kcp_step *a); /* stage 01: forward, and its adjoint */
int kcp_ref_gate(struct kcp_gate *a); /* stage 02: gates, both passes */
int kcp_ref_wy(struct kcp_wy *a); /* stage 03: Aqk, A, u, w, kg, qg */
int kcp_ref_wy_factors(struct kcp_wy *a); /* stage 03: u, w, kg, qg from a given A */
int kcp_ref_chunk(struct kcp_chunk *a); /* stage 04: state scan and output */
int kcp_ref_affine(struct kcp_affine *a); /* stage 05: (h_ext, M) of a segment */
/* 06 is kcp_plan_make */
int kcp_ref_merge(struct kcp_merge *a); /* stage 07: the fold */
int kcp_ref_forward(struct kcp_forward *a); /* stage 08: one rank's forward */
int kcp_ref_chunk_backward(struct kcp_chunk_backward *a); /* 09: dAqk, dv_local, back */
int kcp_ref_wy_backward(struct kcp_wy_backward *a); /* stage 10: dq dk dv dbeta dg */
int kcp_ref_merge_backward(struct kcp_merge_backward *a); /* stage 11: dh_ext and M */
int kcp_ref_h0(struct kcp_h0 *a); /* stage 12: compress, expand */
void kcp_ref_state(const void *args, int out, const double *from, double *to);
int kcp_ref_backward(struct kcp_backward *a); /* stage 13: one rank's backward */
int kcp_ref_conv(struct kcp_conv *a); /* stage 14: convolution, token shift */
int kcp_ref_scan_step(struct kcp_scan *a); /* 15: token by token, and the adjoint */
int kcp_ref_scan(struct kcp_scan *a); /* stage 15: one rank's forward or backward */
int kcp_ref_family_step(struct kcp_family *a); /* 16: token by token, and the adjoint */
int kcp_ref_family(struct kcp_family *a); /* stage 16: one rank's forward or backward */
int kcp_ref_ladder(struct kcp_ladder *a); /* 17: state scan of 04 without output */
int kcp_ref_ladder_lanes(struct kcp_ladder *a); /* 17, kernel 3: products by a warp */
int kcp_ref_ladder_banks(struct kcp_ladder *a); /* 17, kernel 6: swizzled tiles */
int kcp_ref_ladder_threads(struct kcp_ladder *a); /* 17, kernel 1: column per thread */
int kcp_ref_ladder_shared(struct kcp_ladder *a); /* 17, kernel 2: shared memory */
int kcp_ref_ladder_stages(struct kcp_ladder *a); /* 17, kernel 5: copies in flight */
int kcp_ref_ladder_wgmma(struct kcp_ladder *a); /* 17, kernel 7: wgmma descriptors */
int kcp_ref_ladder_roles(struct kcp_ladder *a); /* 17, kernel 8: producer, consumers */

#pragma GCC visibility pop

/* Names for this source tree and the book. Other programs use the prefix kcp_. */
#define ref_step kcp_ref_step
#define ref_gate kcp_ref_gate
#define ref_wy kcp_ref_wy
#define ref_wy_factors kcp_ref_wy_factors
#define ref_chunk kcp_ref_chunk
#define ref_affine kcp_ref_affine
#define ref_merge kcp_ref_merge
#define ref_forward kcp_ref_forward
#define ref_chunk_backward kcp_ref_chunk_backward
#define ref_wy_backward kcp_ref_wy_backward
#define ref_merge_backward kcp_ref_merge_backward
#define ref_h0 kcp_ref_h0
#define ref_state kcp_ref_state
#define ref_backward kcp_ref_backward
#define ref_conv kcp_ref_conv
#define ref_scan_step kcp_ref_scan_step
#define ref_scan kcp_ref_scan
#define ref_family_step kcp_ref_family_step
#define ref_family kcp_ref_family
#define ref_ladder kcp_ref_ladder
#define ref_ladder_lanes kcp_ref_ladder_lanes
#define ref_ladder_banks kcp_ref_ladder_banks
#define ref_ladder_threads kcp_ref_ladder_threads
#define ref_ladder_shared kcp_ref_ladder_shared
#define ref_ladder_stages kcp_ref_ladder_stages
#define ref_ladder_wgmma kcp_ref_ladder_wgmma
#define ref_ladder_roles kcp_ref_ladder_roles

#endif
