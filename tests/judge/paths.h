/* paths.h -- the judge and the table of paths: which rows a case reaches.
 *
 * Book: chapter 08, "Paths".  Checked by: tests/08_forward/paths.c.  Next: paths.c. */
#ifndef KCP_JUDGE_PATHS_H
#define KCP_JUDGE_PATHS_H

#include "core/paths.h"
#include "judge.h"

/* The rows that a case reaches on any of its ranks, on this device (storage f64: on the
 * host), whether the kernels are linked or not. kernel: its rows alone; NULL: those
 * that a layer takes. For 13 with the row of the forward that writes the block. Returns
 * how many were written to out; 0: no row takes the case. */
int paths_of_case(const struct kcp_stage *s, const char *kernel,
                  enum kcp_storage storage, const struct kcase *k,
                  const struct kcp_device *d, const struct kcp_path **out, int max);
/* All cases of a variant (lists.c): drawn and anchored; for a device variant the wide
 * and tall ones too, and one for each of its paths on d. */
struct kcase *cases_of(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct options *o, const struct kcp_device *d, int *n);
struct kcase *cases_for_paths(const struct kcp_stage *s, const char *kernel,
                              enum kcp_storage storage, const struct options *o,
                              const struct kcp_device *d, struct kcase *list, int *n);
/* The first case, from small to large sizes, with which the kernel reaches the row;
 * with this K alone (0: any). 0: none does. */
int case_for_path(const struct kcp_stage *s, const char *kernel,
                  const struct kcp_path *p, const struct kcp_device *d,
                  const struct options *o, int id, int K, struct kcase *k);
/* The list of a kernel on a device, and the rows that each case reaches; cached. */
struct listed {
    const char *stage, *kernel;
    enum kcp_storage storage;
    int n;
    struct kcase *cases;
    struct reached { const struct kcp_path *row[16]; int rows; } *reached;
    struct listed *next;
};
const struct listed *paths_list(const char *stage, const char *kernel,
                                enum kcp_storage storage, const struct kcp_device *d,
                                const struct options *o);
/* The device that paths are judged on, looked up in a process; NULL: none. */
const struct kcp_device *paths_device(void);
/* Do cases of this stage reach the row? A forward that writes a whole block belongs to
 * 13, whose cases run it first. */
int paths_judged_by(const struct kcp_path *p, const char *stage);
/* The kernel of the stage for which cases of the row are drawn: the row's kernel, or
 * the first of 13 that reads the block which a row of 08 writes, if one does in all of
 * the row's sizes. NULL: none. */
const char *paths_reached_by(const struct kcp_path *p, const char *stage);
/* From here on paths are counted for seed 0, 1, ... of several. */
void paths_count_for(int seed);
/* A case of a variant passed: its paths are judged. At the end of a stage a path that
 * can run here and was not judged fails; those that cannot are one skip. */
void paths_were_judged(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct kcase *k);
void paths_close(const struct kcp_stage *s, const struct options *o,
                 struct kcp_report *rep);
/* With --variant or --case: a line if paths that can run here were left out. */
void paths_left_out(const struct kcp_stage *s, const struct options *o);
/* The forward that writes the block for a backward; NULL: the reference. */
const struct kcp_variant *paths_forward_before(const struct kcp_variant *back,
                                               const struct kcp_forward *a, int id);
/* The table as TSV, of o->stage or all stages; with the numbers of the cases that reach
 * each row, and the words of a small one. Returns an exit status. */
int paths_print(const struct options *o, int cases, int smallest);

#endif
