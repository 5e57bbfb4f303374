/* 08_rank.h -- functions shared by the programs of chapters 08, 13, 14, 15 and 16.
 * Book: chapter 08.
 *
 * `args` is a stage's args struct, which begins with a struct kcp_call. With back = 0,
 * a state *enters* (h0) where a sequence begins and *leaves* (ht) where a sequence
 * ends. With back = 1, a gradient enters (dht) where a sequence ends and leaves (dh0)
 * where a sequence begins. */
#pragma once

#include "checked.h"
#include "ref.h"

#include <string.h>

#pragma GCC visibility push(hidden)

//> arrays
/* The arrays that a program allocates. `full` is 1 if an allocation failed. */
struct rank_arrays { int full, n; void *at[40]; };
//< arrays

/* Declares a stage's args struct `name`: a copy of this rank's call, with the chunk
 * arrays cu, cn and sc. */
//> stage-args
#define RANK_STAGE(type, name)                                                        \
    struct type name = { 0 };                                                         \
    memcpy(&name, x->a, sizeof(struct kcp_call));                                     \
    name.cu = x->a->cu; name.cn = x->a->cn; name.sc = x->a->sc
//< stage-args

/* Returns a new array of zeros. On failure returns NULL and sets x->full. */
void *rank_zeros(struct rank_arrays *x, int64_t numbers);
/* For each segment where a state enters, copies the sequence's row of `given`
 * [N,HV,K,V] to the segment's row of `to` [NS,HV,K,V]. If `given` is NULL, copies
 * nothing. */
void rank_enter(const void *args, int back, const double *given, double *to);
/* For each segment where a state leaves, copies the segment's row of `from` [NS,HV,K,V]
 * to the sequence's row of `to` [N,HV,K,V]. For an empty sequence, copies the row of
 * `given` (see rank_pass). */
void rank_leave(const void *args, int back, const double *from, const double *given,
                double *to);
/* Copies the rows of this rank's empty sequences from `from` to `to`. A row has
 * `numbers` elements. If `from` is NULL, sets these rows of `to` to 0. */
void rank_pass(const void *args, int back, const double *from, int64_t numbers,
               double *to);
/* Calls kcp_checked_leave and frees the arrays. If this rank failed, calls comm->fail,
 * so that the call fails on all ranks. Returns `status`. */
int rank_end(const void *args, struct rank_arrays *x, int status, const char *name);

#pragma GCC visibility pop
