/* setup.h -- a stage's args over a rank's tensors: made, given room, freed.
 *
 * Book: chapter 18.  Checked by: as bench.h.  Next: setup.c.
 */
#ifndef KCP_BENCH_SETUP_H
#define KCP_BENCH_SETUP_H

#include "bench.h"

/* The caller frees; NULL, and one line said, when there is no room or no input. */
char *args_of(struct runner *x, const struct kcp_stage *st, const struct kcp_call *c,
              enum kcp_storage as);
/* The work that the variant asks for: cudaFree(*room) afterwards. */
int prepare(const struct kcp_variant *v, char *args, void **room);

#endif
