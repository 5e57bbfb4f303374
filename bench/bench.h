/* bench.h -- kcp-bench: the variants of a stage, timed on one GPU beside their floors.
 *
 * Book: chapter 17.  Checked by: bench/record.sh: a record counts only with the judge's
 * verdict beside it.  Next: bench.c.
 */
#ifndef KCP_BENCH_H
#define KCP_BENCH_H

#include "judge.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bench {
    struct kcp_call call;              /* sizes and options of the layer            */
    enum regime regime;
    int warmup, iters, newest;         /* newest: the last variant of each stage     */
    const char *stage, *stages, *variant, *json, *against;
    double copy, product;              /* measured: bytes/s of a copy, flop/s bf16  */
};

/* 0; -1: help was given; 2: bad usage, said. */
int bench_options(int argc, char **argv, struct bench *b);
int bench_asked(const struct bench *b, const struct kcp_stage *st);
int bench_bad(const char *option, const char *found, const char *expected);

/* The head line of a record, from its sizes to its gates; returns s. */
const char *case_head(const struct bench *b, char *s, size_t n);
/* Is --against a record of this case? The median of one of its rows, 0 if not there. */
int    same_case(const struct bench *b);
double recorded_us(const char *file, const char *stage, const char *variant, int pass);

/* Tensors on the device, by the names of the field tables. */
struct shelf { int n; struct { char name[16]; void *p; size_t bytes; } t[80]; };
void *shelf_find(const struct shelf *s, const char *name);
/* Room for a field under this call; NULL when the device is full. */
void *shelf_add(struct shelf *s, const char *name, size_t bytes);
void  shelf_free(struct shelf *s);

/* What a call must do at the least: each input read once, each output written once, and
 * the multiply-adds of chapter NN's equations, counted as two. Per rank. */
double cost_bytes(const struct kcp_stage *s, const struct kcp_call *c, enum kcp_storage as);
double cost_flops(const struct kcp_stage *s, const struct kcp_call *c);

/* device.cu: random raw inputs in a regime (as tests/inputs.c draws them), timing. */
int  fill_inputs(struct shelf *s, const struct bench *b);
int  measure_controls(struct bench *b);
struct times { double median, low, high; };        /* microseconds */
int  time_calls(int (*run)(void *), void *args, int warmup, int iters, struct times *t);

#ifdef __cplusplus
}
#endif
#endif
