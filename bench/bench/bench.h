/* bench.h -- kcp-bench: the variants of a stage, timed on GPUs beside their floors.
 *
 * Book: chapter 18.  Checked by: bench/record.sh: a record counts only with the judge's
 * verdict beside it.  Next: main.c.
 */
#ifndef KCP_BENCH_H
#define KCP_BENCH_H

#include "bench/bench/lengths.h"
#include "bench/bench/record_file.h"
#include "tests/judge/judge.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bench {                         /* what was asked for, and the controls */
    struct kcp_call call;              /* sizes and options of the layer, all ranks' */
    enum regime regime;
    int warmup, iters, newest;         /* newest: the last variant of each stage */
    int unsaved;                       /* 08 leaves nothing for 13 */
    int tokens, save;                  /* -T; --save: enum kcp_save, or 2 for none */
    int ranks;                         /* whole layers over so many; 0: stages */
    int from, to, factor;              /* tokens: a sweep, when to > from */
    const char *stage, *stages, *variant, *json, *against, *backend, *forms;
    const char *tsv;
    int judge, wrong;                  /* rows are judged; how many of them failed */
    const char *cuts;                  /* tokens of each rank, as shares */
    int replay;                        /* time a replayed graph of the call too */
    int unsent;                        /* time the call without its messages too */
    int wire;                          /* 1: maps and states travel as bf16 */
    const char *lengths;               /* of the sequences, as lengths_write has them */
    double copy, product;              /* measured: bytes/s of a copy, flop/s bf16 */
    double gather_us;                  /* all_gather of gather_bytes a rank */
    size_t gather_bytes;
};

/* 0; -1: help was given; 2: bad usage, said. */
int bench_options(int argc, char **argv, struct bench *b);
int bench_asked(const struct bench *b, const struct kcp_stage *st);
int bench_bad(const char *option, const char *found, const char *expected);

/* Tensors on the device, by the names of the field tables. */
void *device_find(const struct tensor_set *s, const char *name);
size_t device_bytes(const struct tensor_set *s, const char *name);
/* Room for a field under this call: what is there, unless that is smaller. NULL when
 * the device is full. */
void *device_add(struct tensor_set *s, const char *name, size_t bytes);
void  device_free(struct tensor_set *s);

/* One rank at work: its own call, plan and tensors. world: all ranks of this run; the
 * layer may be cut into parts of the heads, each on the ranks of call.comm. */
struct runner {
    struct bench *b;
    struct kcp_call call;
    struct kcp_comm *world, *narrow;   /* narrow: over the ranks', with --wire bf16 */
    struct kcp_plan *plan;
    struct tensor_set tensors;
    int head_parts;
    const char *form;                  /* as rows name it */
    size_t work, saved;                /* bytes that the last call was given */
    struct record_file *json, *tsv;    /* of rank 0 */
};
int  runner_open(struct runner *x, struct kcp_comm *comm, int head_parts);
void runner_close(struct runner *x);
/* The inputs of every stage, by the newest variants that take them. */
int  runner_chain(struct runner *x);
/* One variant, both passes if it has two; a row each. KCP_NA: it takes neither. */
int  runner_variant(struct runner *x, const struct kcp_stage *st,
                    const struct kcp_variant *v);
/* Whole layers over ranks: every form of the exchange (bench_ranks.c). */
int  runner_layers(struct runner *x);

/* The chain over windows, as options and rows name it. */
#define CHAIN_WINDOW "chain_window"

enum { CONV_WIDTH = 4 };               /* taps of chapter 14, as the models have them */

/* Microseconds: the median of the calls, 10 % and 90 %; and the medians of the parts of
 * a layer (cuda/host/profile_hooks.cuh), 0 where it marks none. */
enum { FRONT, SUM, EXCHANGE, MAIN, PARTS };
struct times {
    double median, low, high, part[PARTS], replay, unsent, replay_beside, unsent_beside;
};
int  time_calls(int (*run)(void *), void *args, struct CUstream_st *stream, int warmup,
                int iters, struct times *t);
/* Two kinds of call, five of each by turns: a GPU at its power limit lowers its clock,
 * so that whichever came second would be slower. The first kind warms up; medians to
 * us. */
struct turn { int (*run)(void *); void *args; double us; };
int  time_turns(struct turn x[2], struct CUstream_st *stream, int warmup, int iters);
/* The same call captured in a graph, by turns with the plain call. */
int  time_replays(int (*run)(void *), void *args, struct CUstream_st *stream,
                  int warmup, int iters, struct times *t);
int  measure_controls(struct bench *b);
int  measure_gather(struct runner *x, size_t bytes);
/* t becomes, number by number, the slowest rank's. */
int  slowest(struct runner *x, struct times *t);

/* Random raw inputs in a regime, drawn as tests/judge/inputs.c draws them. */
int  fill_inputs(struct runner *x);

/* What stage 17 reads besides, made of what the chain has left: decay, and GDN's kg. */
int  fill_ladder(struct runner *x);

/* What a call must do at the least: each input read once, each output written once, and
 * the multiply-adds of chapter NN's equations, counted as two. Per rank. */
double cost_bytes(const struct kcp_stage *s, const struct kcp_call *c,
                  enum kcp_storage as);
double cost_flops(const struct kcp_stage *s, const struct kcp_call *c);
/* Is the field an option that no row times? 14's rows before and after sequences. */
int    is_left_out(const struct kcp_field *f);

/* record.c: a record in JSON; is there a row of this case in the one of --against?
 * print.c: what is said and recorded of a row. */
int   json_open(struct record_file *json, const struct bench *b);  /* not 0: cannot */
int   json_close(struct record_file *json, int is_whole);    /* not 0: not all taken */
int   same_case(const struct bench *b);
void  print_heads(const struct runner *x);
int   has_pass(const struct kcp_stage *s);
struct judged;
void  print_row(const struct runner *x, const struct kcp_stage *st,
                const struct kcp_variant *v, const struct kcp_call *c,
                const struct times *t, const struct judged *j);

#ifdef __cplusplus
}
#endif
#endif
