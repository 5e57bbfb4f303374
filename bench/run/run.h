/* run.h -- kcp-run from the inside: options, named arrays, the walk over the ranks.
 *
 * Book: chapters 08, 13, 14.  Checked by: tests/cli/run_cli.sh.  Next: options.c.
 *
 * main reads the options, loads arrays by the field tables of ref/core/registry.c,
 * makes the plan, runs the references on thread ranks, and writes every output or none.
 */
#ifndef KCP_RUN_H
#define KCP_RUN_H

#include "base/tensor_set.h"
#include "base/npy.h"
#include "ref.h"
#include "wire.h"
#include "device.h"
#include "folder.h"

#include <stdio.h>

/* Limits, stated in --help. */
enum { MOST_RANKS = 1024, MOST_SIZE = 65536, MOST_CHUNK = 256 };
/* What main exits with. RUN_BAD: an input is wrong, and nothing was written. */
enum { RUN_OK = 0, RUN_FAILED = 1, RUN_BAD = 2 };
/* --model: enum kcp_model, and what is a recurrence of its own stage. */
enum { MODEL_SPIKE = KCP_GLA + 1 };

struct options {
    const char *in, *out, *stage, *cuts, *conv, *variant, *owners;
    int64_t ranks, canonical, stripe;              /* 0: not given */
    int chunk, blocks;
    int model, form, gate, beta, save, layout, device, act;       /* enums of kcp.h */
    int spread;                                    /* enum kcp_spread */
    int sum;                                       /* 1: each rank's own */
    int l2norm, reuse_M, shift, backward;
    int dtype;                                     /* 0: bf16, 1: f32; -1: not given */
    int wire;                                      /* 1: bf16 */
    double truncate;                               /* 0: not given */
    double lower_bound, scale;                     /* NAN: -5, K^-1/2 */
};

/* The letters of shapes and what they stand for; -1: not known yet. GDN's KG is 1. */
enum letter { LT, LN, LNS, LNC, LR, LH, LHV, LK, LV, LC, LD, LWC, LETTERS };
struct sizes { int64_t of[LETTERS]; int gdn; };

/* What one rank tells main. Seconds, and what it handed to the wire. */
struct told {
    double forward, backward, alive;       /* alive < 0: no state enters this rank */
    struct kcp_traffic sent_forward, sent_backward;
    size_t saved[3];                       /* bytes of each mode, by enum kcp_save */
    struct kcp_wire_told cut;              /* of forward, with --truncate */
};

struct run {
    struct options o;
    struct sizes size;
    struct kcp_call call;
    struct tensor_set a;           /* file: a name in a directory */
    int both;                      /* backward too */
    int from, to;                  /* the passes of a stage */
    int conv;                      /* the layer has convolutions before it */
    int model, relative;           /* --model; the main job is 16's or 15's */
    const char *note;              /* what was given and not used; NULL: nothing */
    const struct kcp_stage *stage; /* NULL: the whole layer */
    struct kcp_plan *plan;
    struct device *gpu;            /* NULL: the references, on the host */
    struct told *told;             /* [R] */
    struct folder folder;          /* --out */
    struct kcp_who who;            /* under a launcher: this process's rank */
    char why[600];                 /* one line, when anything returns non-zero */
    int exit;
};

/* run->why <- "what: format", run->exit <- code; returns -1. */
int run_error(struct run *x, int code, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Each below returns 0, or -1 with run_error said; run_options 1 where help or the
 * version was printed. */
int  run_options(struct run *x, int argc, char **argv);         /* options.c */
void options_help(void);                                        /* help.c */
void options_usage(FILE *to);

/* shape.c. bind: dim has this shape, and unknown letters become known; or -1, and want
 * says what was expected. */
int  sizes_bind(struct sizes *z, const char *shape, int nd, const int64_t *dim,
                char *want, size_t n);
int  sizes_dims(const struct sizes *z, const char *shape, int64_t *dim);
char *sizes_text(const struct sizes *z, const char *shape, char *s, size_t n);

/* names.c: is every array in --in one that some table knows? */
int  names_check(struct run *x);
/* load.c */
int  array_exists(struct run *x, const char *file);    /* in --in, or as a path */
int  array_load(struct run *x, struct sizes *z, const char *name, const char *file,
                const char *shape, enum kcp_store store);
/* An output, filled with NaN; of a sum over ranks there are R, one a rank, and with
 * --sum local they are its rows. */
int  array_out(struct run *x, const struct sizes *z, const char *name, const char *file,
               const char *shape, enum kcp_store store);
int  array_split(const struct tensor *a);       /* do ranks hold rows of it? */
/* The elements of a that are rank r's: its tokens' rows, its own sum, or all. */
void array_part(const struct run *x, const struct tensor *a, int r, int64_t *at,
                int64_t *n);
/* --sum local, and no result that is a sum: said. */
int  sums_check(struct run *x);
/* Every number finite; at most 0 where below says so. */
int  array_check(struct run *x, const struct tensor *a, int below);

/* plan.c. plan_read: cu_seqlens before the other arrays, for N; plan_make: after
 * them, with the cuts, the sizes in x->call, and whether all this fits in memory. */
int  plan_read(struct run *x);
int  plan_make(struct run *x);
int  call_make(struct run *x);
/* owners.c: --layout and --owners as a table, B = 0: neither; arrays of tokens in shard
 * order (back: in token order); a rank's ranges in a few letters. */
int  owners_read(struct run *x, const int64_t *cu, int *R, struct kcp_owners *o);
int  owners_turn(struct run *x, int back);
void owners_text(const struct kcp_plan *p, int r, char *text, size_t n);
double memory_here(void);                      /* bytes of this machine; 0: not known */

/* layer.c, stage.c: load, run; outputs are left in x->a. */
int  layer_run(struct run *x);
int  stage_run(struct run *x);
/* relatives.c: the main job of a model that is not KDA or GDN. Its options; has its
 * stage this field, and must it be there; one rank's run. */
int  relative_read(struct run *x);
int  relative_has(const struct run *x, const char *field);
int  relative_needs(const struct run *x, const char *field);
int  relative_rank(struct kcp_comm *comm, void *x);
int  outs_check(struct run *x);            /* layer.c: sums alike, numbers finite */
/* ranks.c: a stage's args, computed by its reference or on the GPU; the block that
 * 08 leaves there, its bytes and its memory. */
int    stage_go(struct run *x, const struct kcp_stage *s, void *args,
                struct kcp_comm *comm);
size_t saved_size(const struct run *x, const struct kcp_forward *f);
void  *saved_room(const struct run *x, size_t bytes);
void   saved_free(const struct run *x, void *saved);
/* A field's shape in files: states as --state-layout says. */
const char *field_shape(const struct run *x, const struct kcp_field *f);
int  field_is_grid(const struct kcp_field *f);
/* Rank r's args: the call, and a pointer for every field of the stage's table. */
void rank_args(struct run *x, const struct kcp_stage *s, struct kcp_comm *comm,
               enum kcp_pass pass, void *args);
int  ranks_go(struct run *x, int R, int (*body)(struct kcp_comm *, void *));
/* processes.c: ranks as a launcher's processes, where there is one; rank 0 gets all. */
int  processes_open(struct run *x);
int  processes_run(struct run *x, int (*body)(struct kcp_comm *, void *));
/* run_alive.c: |M|_F / sqrt(K) of this rank's part of the sequence that enters it. */
int  rank_alive(const struct kcp_forward *f, double *alive);
const struct kcp_stage *stage_of(const char *name);     /* "08" or "08_forward" */

/* write.c: all outputs appear, or none. */
int  outputs_ready(struct run *x);         /* before any work: can DIR be written? */
int  outputs_write(struct run *x);

/* print.c */
void print_summary(const struct run *x, double seconds);

#endif
