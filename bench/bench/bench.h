/* bench.h -- declarations for the files of kcp-bench.
 * Book: chapter 18. */
#pragma once

#include "tests/judge/judge.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LENGTHS_MOST = 4096, LENGTHS_TOKENS = 1 << 24 };

struct bench {                         /* options, and measured rates */
    struct kcp_call call;              /* sizes, options; T counts all ranks' tokens */
    enum regime regime;
    int deep, deep_channels;           /* how many heads and channels close */
    int warmup, iters, newest;         /* newest = 1: time one variant per stage */
    int unsaved;                       /* 1: stage 08 saves nothing for stage 13 */
    int tokens, save;                  /* save: an enum kcp_save, or SAVE_NONE */
    int canonical, spread;             /* tokens per segment or 0; enum kcp_spread */
    int ranks;                         /* 0: time stages; n: time layers on n ranks */
    const char *stages, *variant, *backend, *forms;
    const char *tsv;
    int judge, wrong;                  /* wrong: number of rejected rows */
    int rows;                          /* number of rows written to --tsv */
    int replay;                        /* 1: also time replays of a CUDA graph */
    int unsent;                        /* 1: also time the call without messages */
    const char *lengths;               /* lengths of the sequences, e.g. 4x8192,1024 */
    int64_t cu[LENGTHS_MOST + 1];      /* boundaries of the sequences */
    double copy, product;              /* bytes/s of a copy; flop/s of a bf16 product */
    double gather_us;                  /* time of an all_gather */
    size_t gather_bytes;               /* bytes per rank of this all_gather */
};

/* Returns 0 to go on, -1 after printing the help, or 2 after printing an error. */
int bench_options(int argc, char **argv, struct bench *b);
int bench_selects(const struct bench *b, const struct kcp_stage *st);
int bench_bad(const char *option, const char *found, const char *expected);

/* Returns the GPU address of the tensor `name`, or NULL if there is no such tensor. */
void *device_find(const struct tensor_set *s, const char *name);
size_t device_bytes(const struct tensor_set *s, const char *name);
/* Allocates at least `bytes` on the GPU for tensor `name`. Returns NULL on failure. */
void *device_add(struct tensor_set *s, const char *name, size_t bytes);
void  device_free(struct tensor_set *s);

/* The call, plan and tensors of one rank. */
struct runner {
    struct bench *b;
    struct kcp_call call;
    struct kcp_comm *world;
    struct kcp_plan *plan;
    struct tensor_set tensors;
    const char *form;                  /* exchange algorithm timed; NULL for stages */
    size_t work, saved;                /* bytes of workspace and of data for backward */
    FILE *tsv;                         /* NULL on ranks above 0, or without --tsv */
};
int  runner_open(struct runner *x, struct kcp_comm *comm);
void runner_close(struct runner *x);
/* setup.c: returns a stage's args struct, with pointers to the rank's tensors. The
 * caller frees the struct. On failure, prints an error and returns NULL. */
char *args_of(struct runner *x, const struct kcp_stage *st, const struct kcp_call *c,
              enum kcp_storage as);
/* Runs a variant once. In stage 08 this run also saves the data for stage 13. */
int  runner_once(struct runner *x, const struct kcp_stage *st,
                 const struct kcp_variant *v);
/* Times each pass (forward, backward) of one variant and prints a row per pass. Returns
 * KCP_NA if the variant supports no pass. */
int  runner_variant(struct runner *x, const struct kcp_stage *st,
                    const struct kcp_variant *v);
/* Returns the variant named by --variant. Without --variant, returns the kernel that a
 * layer would choose, or NULL if ref/core/paths.def has no kernel for the call. */
const struct kcp_variant *runner_choice(const struct runner *x,
                                        const struct kcp_stage *st);
/* Times the layer on all ranks, once for each form (algorithm) of the exchange. */
int  runner_layers(struct runner *x);

enum { CONV_WIDTH = 4 };               /* taps of the models' convolutions */

/* Microseconds per call; `low` and `high` are the 10 % and 90 % quantiles. X_beside is
 * the plain call's median, timed alternately with X, which is `replay` or `unsent`. */
enum { FRONT, SUM, EXCHANGE, MAIN, PARTS };
struct times {
    double median, low, high, part[PARTS], replay, unsent, replay_beside, unsent_beside;
};
int  time_calls(int (*run)(void *), void *args, struct CUstream_st *stream, int warmup,
                int iters, struct times *t);
/* Times two functions alternately, five calls of each, and writes their medians to
 * `us`. If all calls of the second function came last, a GPU that lowers its clock at
 * its power limit would slow only this function. */
struct alternated { int (*run)(void *); void *args; double us; };
int  time_alternately(struct alternated x[2], struct CUstream_st *stream, int warmup,
                      int iters);
/* Times the call and its replay from a CUDA graph, alternately. */
int  time_replays(int (*run)(void *), void *args, struct CUstream_st *stream,
                  int warmup, int iters, struct times *t);
int  measure_controls(struct bench *b);
int  measure_gather(struct runner *x, size_t bytes);
/* Replaces each number in *t by its maximum over the ranks. */
int  slowest(struct runner *x, struct times *t);

/* Draws random inputs with the distributions of tests/judge/inputs.c. */
int  fill_inputs(struct runner *x);

/* Computes tensor `decay`, which only stage 17 reads. */
int  fill_ladder(struct runner *x);

/* Lower bounds per rank. cost_bytes counts each input and output of the call once.
 * cost_flops counts the operations in the stage's equations, two per multiply-add. */
double cost_bytes(const struct kcp_stage *s, const struct kcp_call *c,
                  enum kcp_storage as);
double cost_flops(const struct kcp_stage *s, const struct kcp_call *c);
/* Returns 1 for fields that kcp-bench always passes as NULL: the rows before and after
 * each sequence in stage 14. */
int    is_left_out(const struct kcp_field *f);

/* judged.c: `worst` describes the largest error. If ranks are processes, nothing is
 * judged and `outcome` is NA. */
struct judged { enum outcome outcome; struct worst worst; };
/* Fills the outputs with NaN, runs the variant again, and compares some value heads
 * (for a convolution some channels) with the reference in double. Reference results are
 * cached until another stage is judged. */
int   judge_timed(struct runner *x, const struct kcp_stage *st,
                  const struct kcp_variant *v, char *args, struct judged *out);
void  judge_timed_end(const struct runner *x);         /* frees the cache */

/* print.c: print_row prints one line per variant and pass. */
void  print_header(const struct runner *x);
int   has_pass(const struct kcp_stage *s);
void  print_row(const struct runner *x, const struct kcp_stage *st,
                const struct kcp_variant *v, const struct kcp_call *c,
                const struct times *t, const struct judged *j);
/* record.c: writes a row to the --tsv file; column names precede the first row. */
void  tsv_row(const struct runner *x, const struct kcp_stage *st,
              const struct kcp_variant *v, const struct kcp_call *c,
              const struct times *t, double bytes, double flops,
              const struct judged *j);
/* Returns the word given by --save. */
const char *save_word(const struct bench *b);

#ifdef __cplusplus
}
#endif
