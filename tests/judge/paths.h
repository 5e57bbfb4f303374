/* paths.h -- the judge and the table of paths: which rows a case reaches.
 *
 * Book: chapter 08, "Paths".  Checked by: tests/08_forward/paths.c.  Next: paths.c. */
#ifndef KCP_JUDGE_PATHS_H
#define KCP_JUDGE_PATHS_H

#include "core/paths.h"
#include "judge.h"

/* The rows that a case reaches, on any of its ranks, on this device (storage f64: on the
 * host); linked or not. kernel: of its rows alone; NULL: what a layer would take. Of 13
 * the row of the forward that leaves the block is among them. How many were written to out, max at most;
 * 0: no row takes it. */
int paths_of_case(const struct kcp_stage *s, const char *kernel,
                  enum kcp_storage storage, const struct kcase *k,
                  const struct kcp_device *d, const struct kcp_path **out, int max);
/* Whose forward leaves the block that a backward is tried on; NULL: the reference's. */
const struct kcp_variant *paths_forward_before(const struct kcp_variant *back,
                                               const struct kcp_forward *a, int id);
/* The table as TSV with a header, of one stage if one was said. An exit status. */
int paths_print(const struct options *o, int cases);

#endif
