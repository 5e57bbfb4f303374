/* run.h -- declarations for the files of kcp-run.
 * Book: chapters 08, 13, 14.
 *
 * main reads the options, loads arrays by the field tables of ref/core/registry.c,
 * makes the plan, runs the references or kernels on the ranks and writes the
 * results. */
#pragma once

#include "base/tensor_set.h"
#include "base/npy.h"
#include "base/clock.h"
#include "ref.h"
#include "layer.h"
#include "comm/backend/kcp_mpi.h"
#include "cuda/host/memory.h"

#include <math.h>
#include <stdio.h>

/* Limits, which --help prints too. */
enum { MOST_RANKS = 1024, MOST_SIZE = 65536, MOST_CHUNK = 256 };
/* Exit statuses. RUN_BAD: an input is wrong, and nothing was written. */
enum { RUN_OK = 0, RUN_FAILED = 1, RUN_BAD = 2 };

/* Options. Defaults: -1 for dtype, NAN for lower_bound and scale, else 0 or NULL. */
struct options {
#define KCP_OPTION(type, field, name, value, kind, expects, low, high, help) type field;
#include "options.def"
#undef KCP_OPTION
};

/* The numbers of one rank in the printed summary. */
struct rank_report {
    double seconds[2];                     /* per enum kcp_pass */
    struct kcp_traffic sent[2];
    size_t saved;                          /* bytes saved for backward */
};

struct run {
    struct options o;
    struct kcp_call size;          /* sizes in shapes, -1 if not known yet */
    struct kcp_call call;
    struct tensor_set a;           /* inputs and results */
    int both;                      /* 1: forward and backward */
    int conv;                      /* 1: the layer begins with convolutions */
    const char *note;              /* text about unused inputs, or NULL */
    struct kcp_plan *plan;
    struct kcp_layer layer;        /* the references, or kernels */
    const struct memory *gpu;      /* NULL: run the references on the host */
    const char *ran;               /* path or variant that ran on the GPU, or NULL */
    struct rank_report *report;             /* [R] */
    char target[NPY_NAME];         /* --out, without a last slash */
    struct kcp_mpi mpi;            /* this process's rank under a launcher */
    int has_met;                   /* 1: processes_meet was called */
    int is_silent;                 /* 1: another rank prints the error */
    char why[600];                 /* the error, one line */
    int exit;
};

/* Sets x->why to "what: format" and x->exit to `code`. Returns -1. */
int run_error(struct run *x, int code, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* If not stated otherwise, an int function returns 0, or -1 after run_error. */

/* options.c. run_options returns 1 if it printed the help or the version. */
int  run_options(struct run *x, int argc, char **argv);

/* load.c */
int  array_exists(struct run *x, const char *file);    /* in --in, or a path */
int  array_load(struct run *x, struct kcp_call *z, const char *name, const char *file,
                const char *shape, enum kcp_store store);
/* Allocates an output filled with NaN. If the output is a sum over ranks, each rank has
 * its own copy or, with --sum local, its own row. */
int  array_out(struct run *x, const struct kcp_call *z, const char *name,
               const char *file, const char *shape, enum kcp_store store);
int  array_split(const struct tensor *a);      /* 1: one row per token */
/* Sets *at and *n to the first element and the size of rank r's part of `a`. */
void array_part(const struct run *x, const struct tensor *a, int r, int64_t *at,
                int64_t *n);
/* Rejects --sum local if no result is a sum over ranks. */
int  sums_check(struct run *x);
/* Checks that all numbers are finite and, if `below` is 1, that they are at most 0. */
int  array_check(struct run *x, const struct tensor *a, int below);

/* fields.c: loads and makes arrays. names_check rejects files in --in that neither the
 * layer nor --conv reads. */
int  names_check(struct run *x);
int  inputs_load(struct run *x, const struct kcp_stage *s);
int  outputs_make(struct run *x, const struct kcp_stage *s);

/* plan.c. plan_read loads cu_seqlens first, because loading other arrays needs N.
 * plan_make makes the plan. */
int  plan_read(struct run *x);
int  plan_make(struct run *x);

/* layer.c: loads arrays, runs the layer, and puts results in x->a. */
int  layer_run(struct run *x);
/* stage_call (ranks.c) runs the reference or the kernel. saved_alloc and saved_free
 * (device.c) manage GPU memory with --device gpu, else host memory. */
int   stage_call(struct run *x, const struct kcp_stage *s, void *args,
                 struct kcp_comm *comm);
void *saved_alloc(const struct run *x, size_t bytes);
void  saved_free(const struct run *x, void *saved);
/* Returns a field's shape in files; --state-layout selects the shape of states. */
const char *field_shape(const struct run *x, const struct kcp_field *f);
static inline int field_is_grid(const struct kcp_field *f)
{
    return has_word("cu cn sc", f->name, " ");
}
/* Fills a rank's args: the call, and a pointer for every field of the stage's table. */
void rank_args(struct run *x, const struct kcp_stage *s, struct kcp_comm *comm,
               enum kcp_pass pass, void *args);
int  ranks_run(struct run *x, int R, int (*body)(struct kcp_comm *, void *));
/* processes.c: a launcher starts one process per rank; rank 0 collects the results. */
int  processes_check(struct run *x);
/* Waits until each rank has read the inputs or has failed. If a rank failed, returns -1
 * on all ranks, and only the first failed rank prints its error. */
int  processes_meet(struct run *x, struct kcp_comm **world);
int  processes_run(struct run *x, int (*body)(struct kcp_comm *, void *));

/* ---- device.c: stages on a GPU, from and to arrays of doubles on the host */
/* Sets x->layer to the references or, with --device gpu, to the kernels in
 * ref/core/paths.def. With --variant, the search in this table begins at the variant's
 * first row. */
int  device_open(struct run *x);
/* Runs R threads. With R GPUs and NCCL, each thread has its own GPU; otherwise all
 * threads share one GPU. */
int  device_ranks(struct run *x, int R, int (*body)(struct kcp_comm *, void *),
                  char *why, size_t n);
/* Runs the stage on args with host arrays; only `saved` is on the GPU.
 * Returns KCP_NA if no variant supports the shape. */
int  device_call(struct run *x, const struct kcp_stage *s, void *args,
                 struct kcp_comm *comm);

/* write.c. Before the run, outputs_ready checks that --out can be written. */
int  outputs_ready(struct run *x);
int  outputs_write(struct run *x);

/* print.c */
void print_summary(const struct run *x, double seconds);
