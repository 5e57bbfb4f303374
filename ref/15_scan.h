/* 15_scan.h -- declarations for the files of chapter 15.
 * Book: chapter 15. */
#pragma once

#include "08_rank.h"

/* Token t of value head n. A masked (dropped or inactive) token has alpha = 1 and
 * beta = 0, so its map is the identity. In forward, pointers to gradients are NULL. */
//> token-struct
struct spike_token {
    int K, V, D, acts, emits;
    const double *q, *k, *v, *spike, *W, *w, *dO;
    double *alpha, beta;                   /* alpha [K] is the caller's */
    double *dq, *dk, *dv, *dspike, *dalpha_base, *dbeta_base, *dW, *dw;
};
//< token-struct

/* ---- the token (15_spike.c)
 *
 * dO [T,HV,V] is the gradient of each output, plus the gradients of all repeats of this
 * output. dW [HV,K,D] and dw [HV,D] receive the sums of the gradients of W_alpha and
 * w_beta. In forward dO, dW and dw are NULL. */
int  spike_dropped(const struct kcp_scan *a, int64_t t);
struct spike_token spike_token(const struct kcp_scan *a, int64_t t, int n,
                               const double *dO, double *dW, double *dw,
                               double *alpha);
/* Applies the token's map (15_tree.c): S <- A S + B. */
void spike_step(const struct spike_token *x, double *S);
void spike_read(const struct spike_token *x, const double *S, double *o);
/* Applies the adjoint of the token's map: dS <- A^T (dS + q dO^T). */
void spike_back(const struct spike_token *x, double *dS);
/* Computes all gradients of the token. S [K,V] is the state before the token. dS [K,V]
 * is the gradient of the state after the token, without q dO^T. */
void spike_gradients(const struct spike_token *x, const double *S, const double *dS);
/* Sets dq and dk to 0, because the value heads of a query/key head add to dq and dk. */
void spike_clear(const struct kcp_scan *a);

/* ---- one rank's pass */
//> rank-structs
struct spike_rank {
    const struct kcp_scan *a;
    const struct kcp_plan *plan;
    const struct kcp_segment *seg;
    const struct kcp_mapops *ops;
    struct rank_arrays own;                /* freed at the end */
    double *alpha;                         /* [K] */
    double **node, *spare;                 /* C maps [HV,K,V+K]; scratch */
    double **before, **after;    /* C states before tokens, C gradients after tokens */
    double *maps, *states, *ends;          /* one row per segment */
    double *dO, *tile_h, *part;     /* [T,HV,V], [NC,HV,K,V], [NS+1,HV*(K+1)*D] */
    double *rows, *all;                    /* gathered by 15_repeat.c */
};
/* A tile: n tokens of segment s, beginning with token t0. In backward, node[e] and
 * after[e] belong to token n-1-e of the tile, i.e. e is counted from the end. */
struct tile { int s, n; int64_t t0; };
//< rank-structs

/* ---- the scan of a tile of n tokens, 1 <= n <= C (15_tree.c) */
void scan_updates(struct spike_rank *x, struct tile y, int backward);
int  scan_up(struct spike_rank *x, int n, int backward);
int  scan_down(struct spike_rank *x, int n, int backward, double **state);

/* ---- the three passes, tile by tile (15_scan.c) */
struct tile scan_tile(const struct spike_rank *x, int c);
int  scan_advance(struct spike_rank *x, struct tile y, int backward, int W, int ld,
                  double *S);
int  scan_outputs(struct spike_rank *x);
int  scan_gradients(struct spike_rank *x);

/* ---- repeated outputs (15_repeat.c), across cuts too */
int scan_repeat(struct spike_rank *x);
int scan_spread(struct spike_rank *x);
