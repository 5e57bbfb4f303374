/* 08_rank.h -- what the programs of chapters 08, 13, 14, 15 and 16 share on a rank.
 *
 * Book: chapter 08.  Checked by: tests/13_backward/checks.c and the mutants of 08, 13.
 * Next: ref/08_forward.c.
 *
 * args: an args struct, which begins with a struct kcp_call. back = 0: a state enters
 * (h0) where a sequence begins, and leaves (ht) where a sequence ends. back = 1: a
 * gradient enters (dht) where a sequence ends, and leaves (dh0) where one begins. */
#ifndef KCP_08_RANK_H
#define KCP_08_RANK_H

#include "checked.h"
#include "ref.h"

#pragma GCC visibility push(hidden)

//> arrays
/* The arrays that a program allocates. full: an allocation failed. */
struct rank_arrays { int full, n; void *at[40]; };
//< arrays

/* Allocates zeroed doubles. On failure returns NULL and sets x->full. */
void *rank_zeros(struct rank_arrays *x, int64_t numbers);
/* Copies rows of `given` [N,HV,K,V] to the segments in `to` [NS,HV,K,V] where a state
 * enters. given NULL: nothing. */
void rank_enter(const void *args, int back, const double *given, double *to);
/* Copies rows of `from` [NS,HV,K,V] to `to` [N,HV,K,V] where a state leaves, and passes
 * `given` on for empty sequences. */
void rank_leave(const void *args, int back, const double *from, const double *given,
                double *to);
/* Copies the rows of empty sequences that this rank owns, `numbers` per sequence; from
 * NULL: writes 0. */
void rank_pass(const void *args, int back, const double *from, int64_t numbers,
               double *to);
/* Ends a checked call: frees the arrays and, if the call failed, ends the calls of the
 * other ranks. Returns status. */
int rank_end(const void *args, struct rank_arrays *x, int status, const char *name);

#pragma GCC visibility pop

#endif
