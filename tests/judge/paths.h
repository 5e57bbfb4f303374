/* paths.h -- finds which rows of the table of kernel paths a case reaches.
 * Book: chapter 08, "Paths". */
#pragma once

#include "core/paths.h"
#include "judge.h"

/* Finds which rows of the table of paths a case reaches on any rank, on device d or,
 * for storage f64, on the host. Kernels need not be linked. If `kernel` is NULL, finds
 * the rows that a layer selects; otherwise only rows of this kernel. For stage 13,
 * includes the row of the forward that writes backward's saved block. Returns the
 * number of rows in `out`, or 0 if no row supports the case. */
int paths_of_case(const struct kcp_stage *s, const char *kernel,
                  enum kcp_storage storage, const struct kcase *k,
                  const struct kcp_device *d, const struct kcp_path **out, int max);
/* Returns all cases of a variant (lists.c): random cases and anchors. A GPU variant
 * also gets cases of larger sizes and a case for each of its paths on GPU d. */
struct kcase *cases_of(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct options *o, const struct kcp_device *d, int *n);
/* Tries cases from small to large. Returns 1 and sets *k to the first case in which the
 * kernel reaches row p, or returns 0 if no such case exists. If `K` is not 0, tries
 * only cases with that K. */
int case_for_path(const struct kcp_stage *s, const char *kernel,
                  const struct kcp_path *p, const struct kcp_device *d,
                  const struct options *o, int id, int K, struct kcase *k);
/* The cases of a kernel on a device, and the rows of the table that each case reaches.
 * paths_list computes each of these lists once. */
struct listed {
    const char *stage, *kernel;
    enum kcp_storage storage;
    int n;
    struct kcase *cases;
    struct reached { const struct kcp_path *row[24]; int rows; } *reached;
    struct listed *next;
};
const struct listed *paths_list(const char *stage, const char *kernel,
                                enum kcp_storage storage, const struct kcp_device *d,
                                const struct options *o);
/* Looks up the GPU in a separate process. Returns NULL if there is no GPU. */
const struct kcp_device *paths_device(void);
/* Returns 1 if cases of `stage` judge row p. Cases of stage 13 judge the rows of
 * stage 08 that write a saved block, because stage 13 runs the forward first. */
int paths_judged_by(const struct kcp_path *p, const char *stage);
/* Returns the kernel of `stage` whose cases reach row p, or NULL. Usually the result is
 * the kernel of row p. For a row of 08 that 13 judges, the result is a kernel of 13
 * that reads the row's saved block, preferably one with all sizes of the row. */
const char *paths_reached_by(const struct kcp_path *p, const char *stage);
/* paths_were_judged records the paths of a case that passed. At the end of a stage
 * paths_close reports one failure per path that can run here but was not judged, and
 * one skip for all paths that cannot run here. With --variant or --case, paths_close
 * only prints how many of the paths that can run here were not judged. */
void paths_were_judged(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct kcase *k);
void paths_close(const struct kcp_stage *s, const struct options *o,
                 struct kcp_report *rep);
/* Returns the forward variant that runs before backward `back`, or NULL for the
 * reference. */
const struct kcp_variant *paths_forward_before(const struct kcp_variant *back,
                                               const struct kcp_forward *a, int id);
/* path_call.c: prints the paths of one call, given as words, on each architecture.
 * Returns an exit status. */
int paths_of_call(const char *text);
/* Prints the table of o->stage, or of all stages, as TSV. With `cases`, adds the
 * numbers of the cases that reach each row; with `smallest`, adds a small case's text.
 * Returns an exit status. */
int paths_print(const struct options *o, int cases, int smallest);
