/* folded.h -- a plan's maps and their fold in order; runs the exchange on one rank.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/wrong.c.  Next: ref/07_merge.c. */
#ifndef KCP_TEST_MERGE_H
#define KCP_TEST_MERGE_H

#include "tests/judge/judge.h"

enum { HV = 2, K = 3, V = 5, MAX_N = 6, MAX_R = 9, MOST_R = CASE_RANKS,
       MAX_T = 40, STATE = HV * K * V,
       MAP = HV * K * (V + K) };

/* Maps of all segments for both passes, which share M, and the expected states. Each
 * rank copies its rows from here and writes its results to `got`. */
struct whole {
    struct kcp_plan *plan;
    int backward, reuse_M, blocks;
    enum kcp_form form;
    double M[MAX_T][HV][K][K], h[2][MAX_T][HV][K][V], start[MAX_T][HV][K][V];
    double want[2][MAX_T][HV][K][V], got[MAX_T][HV][K][V];
    double *kept[MOST_R];
    struct kcp_traffic counted[MOST_R], formula[MOST_R];
    const struct kcp_mapops *ops, *bad_ops;   /* bad_ops: of bad_rank, or NULL */
    int bad_rank, bad_how;
};

int merge_pick(struct stream *s, int n);                  /* random in 0 .. n-1 */
/* Draws the maps of a->plan and folds both passes. */
void merge_fill(struct whole *a, struct stream *s);
/* Draws a plan of R ranks and its maps, and folds both passes. Returns 0 if out of
 * memory. */
int merge_draw(struct whole *a, struct stream *s, int R, int64_t L);
/* Copies maps [NS,HV,K,V+K] of one rank, with NaN where no rank may read. */
void merge_own_maps(const struct whole *a, const struct kcp_context *x, double *maps);
/* Runs the exchange on one rank, from its maps and states; results go to `got`. */
int merge_body(struct kcp_comm *comm, void *arg);
/* Runs all ranks; returns the number of segments with a wrong state, or -1. */
int merge_run(struct whole *a, char *why, size_t n);

#endif
