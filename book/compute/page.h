/* page.h -- declares the parts of the page that computes.
 * Book: page "compute". */
#pragma once

#include "kcp.h"

enum { PAGE_K = 8, PAGE_V = 8, MOST_T = 128, MOST_R = 8, MOST_N = 8, MOST_POSTS = 512 };

/* ---- ranks.c: a message. `to` is -1 for an all-gather. `step` is the length of the
 * longest chain of messages that ends with this message. */
struct post { int from, to, pass, step; size_t bytes; double *data; };
extern struct post posts[MOST_POSTS];
extern int nposts, starts;     /* starts: how often a rank was started */
extern int page_pass;          /* KCP_FORWARD or KCP_BACKWARD of the running rank */
/* Runs body(comm, arg) once per rank, as kcp_threads_run, but without threads. */
int ranks_run(int R, int (*body)(struct kcp_comm *, void *), void *arg);
/* Begins the backward pass of a rank: its steps count from 0 again. */
void ranks_backward(struct kcp_comm *comm);

/* ---- mutants.c: the judge's mutants, and tensors of each stage that runs */
enum { MUTANTS = 10 };
extern const struct kcp_variant *const mutants[MUTANTS];
extern const struct kcp_variant *active;       /* the mutant that runs, or NULL */
extern struct kcp_mapops page_ops;
/* Tensor `name` that a stage computed (or, for h_in and dh_out, received) on rank r in
 * a pass, of the run with (1) or without (0) the mutant. NULL: none; *n is its size. */
const double *recorded(int with, const char *stage, const char *name, int pass, int r,
                       int64_t *n);
void forget(int with);         /* frees the tensors of a run; the next run records */

/* ---- page.c: the reader's choices, and results of all tokens in token order */
extern struct choices {
    int T, C, R, N, KG, form, gates, owners, h0, mutant, guess;
    enum kcp_model model;
    struct kcp_plan *plan;
} pick;
struct results {
    double o[MOST_T * PAGE_V], dq[MOST_T * PAGE_K], dk[MOST_T * PAGE_K];
    double dv[MOST_T * PAGE_V], dg[MOST_T * PAGE_K], dbeta[MOST_T];
    double ht[MOST_N * PAGE_K * PAGE_V], dh0[MOST_N * PAGE_K * PAGE_V];
};
extern struct results truth, got[2];           /* of the recurrence; of the two runs */
extern struct kcp_traffic traffic[MOST_R], formula[MOST_R];

/* ---- report.c: writes the answer about the run with or without the mutant */
void report(int with);
void question(void);           /* the mutant, and which check detects it */

/* ---- draw.c: appends HTML to the answer */
void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A picture of x [rows, cols], with x [i][j] at x [i * down + j * across]: blue is
 * positive, red is negative, and the darkest colour is the largest absolute value. A
 * cell is square, or, if `wide` is 1, the picture is as wide as the page. */
void picture(const char *label, const double *x, int rows, int cols, int down,
             int across, int wide);
void diagram(int R, int pass, int until);      /* messages up to step `until` */
const char *answer(void);      /* the HTML; the next put() begins a new answer */
