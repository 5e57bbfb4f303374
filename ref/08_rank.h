/* 08_rank.h -- functions shared by the programs of chapters 08, 13, 14, 15 and 16.
 *
 * Book: chapter 08.  Checked by: tests/13_backward/checks.c and the mutants of 08, 13.
 * Next: ref/08_forward.c.
 *
 * `args` is a stage's args struct, which begins with a struct kcp_call. With back = 0,
 * a state *enters* (h0) where a sequence begins and *leaves* (ht) where a sequence
 * ends. With back = 1, a gradient enters (dht) where a sequence ends and leaves (dh0)
 * where a sequence begins. */
#ifndef KCP_08_RANK_H
#define KCP_08_RANK_H

#include "checked.h"
#include "ref.h"

#pragma GCC visibility push(hidden)

//> arrays
/* The arrays that a program allocates. full = 1: an allocation failed. */
struct rank_arrays { int full, n; void *at[40]; };
//< arrays

/* Allocates zeroed doubles. On failure returns NULL and sets x->full. */
void *rank_zeros(struct rank_arrays *x, int64_t numbers);
/* Copies rows of `given` [N,HV,K,V] to the segments in `to` [NS,HV,K,V] where a state
 * enters. If `given` is NULL, copies nothing. */
void rank_enter(const void *args, int back, const double *given, double *to);
/* Copies rows of `from` [NS,HV,K,V] to `to` [N,HV,K,V] where a state leaves, and for
 * empty sequences copies rows of `given`. */
void rank_leave(const void *args, int back, const double *from, const double *given,
                double *to);
/* Copies the rows, of `numbers` elements, of the empty sequences that this rank owns.
 * If `from` is NULL, writes 0. */
void rank_pass(const void *args, int back, const double *from, int64_t numbers,
               double *to);
/* Ends a checked call: frees the arrays. If status is not 0, calls comm->fail, so that
 * the other ranks' calls fail too. Returns status. */
int rank_end(const void *args, struct rank_arrays *x, int status, const char *name);

#pragma GCC visibility pop

#endif
