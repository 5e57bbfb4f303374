/* folded.h -- a plan's maps, folded in order, and one rank's part of the exchange.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/wrong.c.  Next: ref/07_merge.c. */
#ifndef KCP_TEST_MERGE_H
#define KCP_TEST_MERGE_H

#include "tests/judge/judge.h"

enum { HV = 2, K = 3, V = 5, MAX_N = 6, MAX_R = 9, MOST_R = CASE_RANKS,
       MAX_T = 40, STATE = HV * K * V,
       MAP = HV * K * (V + K) };

/* All segments' maps for both walks (M is the same), and what one process makes of
 * them. Ranks copy their own rows out of it and write their answers into got. */
struct whole {
    struct kcp_plan *plan;
    int backward, reuse_M, blocks;
    enum kcp_form form;
    double M[MAX_T][HV][K][K], h[2][MAX_T][HV][K][V], start[MAX_T][HV][K][V];
    double want[2][MAX_T][HV][K][V], got[MAX_T][HV][K][V];
    double *kept[MOST_R];
    struct kcp_traffic counted[MOST_R], formula[MOST_R];
    const struct kcp_mapops *ops, *bad_ops;   /* of all ranks; of bad_rank, or NULL */
    int bad_rank, bad_how;
};

int merge_pick(struct stream *s, int n);                  /* 0 .. n-1 */
/* The maps of a->plan, and both walks folded. */
void merge_fill(struct whole *a, struct stream *s);
/* Draw a plan of R ranks and its maps, fold both walks; 0: no memory. */
int merge_draw(struct whole *a, struct stream *s, int R, int64_t L);
/* maps [NS,HV,K,V+K] of one rank, NaN where nobody may read. */
void merge_own_maps(const struct whole *a, const struct kcp_context *x, double *maps);
/* One rank: its own maps and states, the exchange, its answers into got. */
int merge_body(struct kcp_comm *comm, void *arg);
/* Run all ranks; how many segments begin with a wrong state, or -1: it failed. */
int merge_run(struct whole *a, char *why, size_t n);

#endif
