/* text.h -- make run: a small language model with one KDA layer on R ranks.
 * Book: chapters 08 and 13. */
#pragma once

#include "ref.h"
#include "base/clock.h"
#include <stdio.h>

enum { WIDTH = 48, HEADS = 2, VALUE_HEADS = 4, KEY = 32, VALUE = 32, TAPS = 4,
       CHUNK = 64, BYTES = 256, MAX_SEQS = 16, MAX_RANKS = 64 };

/* ---- read.c: one sequence per file */
struct text {
    int N;
    int64_t T, cu[MAX_SEQS + 1];
    unsigned char *byte;               /* [T] */
    char name[MAX_SEQS][64];
    int64_t size[MAX_SEQS];            /* bytes of the whole file */
};
/* Reads at most `most` bytes. `paths` has names separated by spaces; NULL means
 * README.md and the first chapters. Returns 0, or 2 after printing an error. */
int  text_read(struct text *x, const char *paths, int64_t most);

/* ---- model.c: parameters; run.c: the program of a rank, and all ranks */
enum param {       /* training changes P_EMBED to P_LOGIT */
             P_EMBED, P_Q, P_K, P_V, P_G, P_BETA, P_O, P_LOGIT,
             P_CQ, P_CK, P_CV, P_ALOG, P_DT, P_BBIAS, PARAMS };
extern const struct shape { int rows, cols; } param_shape[PARAMS];
int64_t param_at(int p);               /* offset in theta; p = PARAMS: theta's size */
double *params_make(uint64_t seed);    /* malloc */

/* Tensors of a run, one row per token; a rank uses only the rows of its tokens. */
enum activation { X, PQ, PK, PV, Q_, K_, V_, GRAW, BRAW, O, Z, LOGIT,
              DZ, DO, DQ, DK, DV, DG, DB, DPQ, DPK, DPV, DX, TENSORS };
extern const int tensor_row[TENSORS];          /* numbers per token */

enum mark { MARK_EMBED, MARK_CONV, MARK_GATE, MARK_WY, MARK_AFFINE, MARK_EXCHANGE,
            MARK_CHUNK, MARK_LOSS, MARK_CHUNK_BACK, MARK_MERGE_BACK,
            MARK_EXCHANGE_BACK, MARK_WY_BACK, MARK_GATE_BACK, MARK_CONV_BACK,
            MARK_GRAD, MARKS };
extern const char *const mark_name[MARKS];
struct lane { double busy[MARKS]; struct kcp_traffic wire, formula; };    /* CPU s */

struct run {
    const struct text *text;
    const double *theta;
    struct kcp_plan *plan;
    enum kcp_form form;
    int oracle;                        /* 1: use the token recurrence */
    int keep_maps;                     /* 1: store M of every segment */
    double loss;                       /* nats per byte */
    int64_t numbers;                   /* elements of all tensors */
    double *tensor[TENSORS];
    double *grad;                      /* gradient of theta, then the loss */
    double *ht, *dh0;                  /* [N, HV, K, V] */
    double *M;                         /* [S, HV, K, K], set if keep_maps = 1 */
    struct lane lane[MAX_RANKS];
    char why[160];
};
int  run_open(struct run *run, const struct text *text, int R, enum kcp_form form);
int  run_step(struct run *run, const double *theta);   /* forward and backward */
void run_close(struct run *run);

/* One rank: rows of every tensor, a part of the plan, and a communicator. */
struct rank {
    struct run *run;
    struct kcp_comm *comm;
    const struct kcp_context *ctx;
    int64_t T;
    double *t[TENSORS];
    void *saved;                       /* data saved for backward */
    size_t saved_bytes;
};
void model_embed(const struct rank *a);
int  model_loss(const struct rank *a, double *part, int64_t n);
void model_into_layer(const struct rank *a);
void model_gradients(const struct rank *a, double *part, int64_t n);

/* ---- layer.c: convolutions and KDA, by the references; oracle_layer by the token
 * recurrence */
int layer_conv(struct rank *a, enum kcp_pass pass);
int layer_forward(struct rank *a);
int layer_backward(struct rank *a);
int oracle_layer(struct rank *a, enum kcp_pass pass);

/* ---- trace.c: CPU times of every stage, by the linker's --wrap */
/* Adds this thread's times to `lane` from now on. Returns the previous lane. */
struct lane *trace_on(struct lane *lane);
void trace_exchanges(void);                    /* before the first exchange */
void   trace_mark(enum mark mark, double busy_from);
void   traffic_add(struct kcp_traffic *sum, struct kcp_traffic more);
double busy_seconds(void);                              /* of this thread */

/* ---- find.c: comparisons of runs */
enum { CHECKED = 26 };                 /* tensors and gradients that are compared */
extern const char *const checked_name[CHECKED];
struct finding {
    const struct text *text;
    const struct run *many, *one, *step;
    int R, steps, pass;
    int counted;                       /* 1: every form's traffic equals its formula */
    double *loss[2];                   /* [steps + 1] losses: R ranks; one rank */
    double error_one[CHECKED], error_step[CHECKED], worst_one, worst_step, limit;
    double form_err[KCP_FORMS];            /* relative to one rank */
    struct kcp_traffic form[KCP_FORMS], formula[KCP_FORMS];    /* all ranks, passes */
    double (*alive)[VALUE_HEADS];      /* [S]: |M|_F / sqrt(K) of each segment */
    double far;                        /* share of state left at rank far_rank */
    int far_seq, far_rank;             /* far_seq = -1: no sequence crosses a cut */
    double ms[2];                      /* per step: R ranks; one rank */
};
/* Returns the largest relative RMS error of all tensors, ranks and heads. If `err` is
 * not NULL, it receives the error of each tensor. */
double compare_runs(const struct run *got, const struct run *want, double *err);
int    measure_alive(struct finding *f);

/* ---- print.c */
void print_report(FILE *o, const struct finding *f);
void print_training(FILE *o, const struct finding *f);
void close_line(const struct finding *f, char *buf, size_t n);
