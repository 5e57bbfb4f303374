/* setup.h -- the args of a stage over the tensors of a rank.
 *
 * Book: chapter 18.  Checked by: as bench.h.  Next: setup.c.
 */
#ifndef KCP_BENCH_SETUP_H
#define KCP_BENCH_SETUP_H

#include "bench.h"

/* The caller frees. NULL after an error line: out of memory, or a missing input. */
char *args_of(struct runner *x, const struct kcp_stage *st, const struct kcp_call *c,
              enum kcp_storage as);
/* Allocates the variant's workspace; the caller frees *room. */
int prepare(const struct kcp_variant *v, char *args, void **room);

#endif
