/* paths.h -- the judge and the table of paths: which rows a case reaches.
 *
 * Book: chapter 08, "Paths".  Checked by: tests/08_forward/paths.c.  Next: paths.c. */
#ifndef KCP_JUDGE_PATHS_H
#define KCP_JUDGE_PATHS_H

#include "core/paths.h"
#include "judge.h"

/* The rows that a case reaches, on any of its ranks, on this device (storage f64: on
 * the host); linked or not. kernel: of its rows alone; NULL: what a layer would take.
 * Of 13 the row of the forward that leaves the block is among them. How many were
 * written to out, max at most; 0: no row takes it. */
int paths_of_case(const struct kcp_stage *s, const char *kernel,
                  enum kcp_storage storage, const struct kcase *k,
                  const struct kcp_device *d, const struct kcp_path **out, int max);
/* All cases that a variant is judged on (lists.c): the list, its anchors, and of a
 * device variant the wide ones, the tall ones, and one for each of its paths on d. */
struct kcase *cases_of(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct options *o, const struct kcp_device *d, int *n);
struct kcase *cases_for_paths(const struct kcp_stage *s, const char *kernel,
                              enum kcp_storage storage, const struct options *o,
                              const struct kcp_device *d, struct kcase *list, int *n);
/* A case of the kernel that reaches the row, with that number: of sizes from small to
 * large the first that does; of this K alone, 0: of any. 0: none of those tried. */
int case_for_path(const struct kcp_stage *s, const char *kernel,
                  const struct kcp_path *p, const struct kcp_device *d,
                  const struct options *o, int id, int K, struct kcase *k);
/* The list of a kernel on a device, and the rows that each case reaches; kept. */
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
/* The device that paths are judged on, asked in a process of its own; NULL: none. */
const struct kcp_device *paths_device(void);
/* Is it this stage whose cases reach the row? A forward that keeps a whole block is
 * 13's: its cases run it first. */
int paths_judged_by(const struct kcp_path *p, const char *stage);
/* The kernel of the stage whose cases are drawn for the row: the row's own, or of 13
 * the first that reads the block which a row of 08 leaves. NULL: not that stage's. */
const char *paths_reached_by(const struct kcp_path *p, const char *stage);
/* Of several seeds each is counted by itself: seed 0 of them, 1, ... from here on. */
void paths_count_for(int seed);
/* A case of a variant passed: its paths are judged. At the end of a stage a path that
 * is here and was not judged fails; those that are not here are one skip. */
void paths_were_judged(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct kcase *k);
void paths_close(const struct kcp_stage *s, const struct options *o,
                 struct kcp_report *rep);
/* With --variant or --case: one line, when paths that are here were left out. */
void paths_left_out(const struct kcp_stage *s, const struct options *o);
/* Whose forward leaves the block that a backward is tried on; NULL: the reference's. */
const struct kcp_variant *paths_forward_before(const struct kcp_variant *back,
                                               const struct kcp_forward *a, int id);
/* The table as TSV with a header, of one stage if one was said; with the numbers of the
 * judge's cases that reach each row, and with words of a small one. An exit status. */
int paths_print(const struct options *o, int cases, int smallest);

#endif
