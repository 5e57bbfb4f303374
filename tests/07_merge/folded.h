/* folded.h -- draws a plan's maps, computes the expected states and runs the exchange.
 * Book: chapter 07. */
#pragma once

#include "tests/judge/judge.h"

enum { HV = 2, K = 3, V = 5, MAX_N = 6, MAX_R = 9, MOST_R = CASE_RANKS,
       MAX_T = 40, STATE = HV * K * V,
       MAP = HV * K * (V + K) };

/* The maps of all segments (one M for both passes, one h per pass), and the expected
 * states `want`. Each rank copies its segments' maps and writes its states to `got`. */
struct whole {
    struct kcp_plan *plan;
    int backward, reuse_M, blocks;
    enum kcp_form form;
    double M[MAX_T][HV][K][K], h[2][MAX_T][HV][K][V], start[MAX_T][HV][K][V];
    double want[2][MAX_T][HV][K][V], got[MAX_T][HV][K][V];
    double *kept[MOST_R];
    struct kcp_traffic counted[MOST_R], formula[MOST_R];
    const struct memory *m;                   /* memory of ranks; NULL: host */
    const struct kcp_mapops *ops;             /* NULL: those of m */
    const struct kcp_mapops *bad_ops;         /* used by bad_rank, or NULL */
    int bad_rank, bad_how;
    int (*run)(const struct kcp_exchange *);  /* NULL: kcp_exchange_run */
};

/* Map operations that fail. */
extern const struct kcp_mapops merge_refuses;

int merge_pick(struct stream *s, int n);                  /* random in 0 .. n-1 */
/* Draws the maps of a->plan and computes the expected states of both passes. */
void merge_fill(struct whole *a, struct stream *s);
/* Draws a plan of R ranks, then calls merge_fill. Returns 0 if out of memory. */
int merge_draw(struct whole *a, struct stream *s, int R, int64_t L);
/* Runs one rank's exchange in memory a->m, and copies its states to `got`. */
int merge_body(struct kcp_comm *comm, void *arg);
/* Runs all ranks. Returns the number of segments with a wrong state, or -1 on
 * failure. */
int merge_run(struct whole *a, char *why, size_t n);
