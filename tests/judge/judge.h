/* judge.h -- the interfaces of the judge: cases, numbers, ranks, trials, reports.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self_trials.c.
 * Next: core.c, which walks stages, variants and cases.
 *
 * Inputs and outputs come from a stage's field table, by name, so that a new variant is
 * judged without a line of code.
 */
#ifndef KCP_JUDGE_H
#define KCP_JUDGE_H

#include "layer.h"
#include "ref.h"
#include <stdio.h>

#include "base/storage.h"
#include "base/tensor_set.h"
#include "cuda/host/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- random numbers (inputs.c), one stream per seed, case and tensor */
struct stream { uint64_t s; };
struct stream stream_of(uint64_t seed, const char *name);
double uniform(struct stream *s);       /* (0, 1) */
double normal(struct stream *s);

/* ---- cases (cases.c) */
enum regime { LIVE, STRONG, SATURATED, TURNS, SPREAD, REGIMES };
enum { CASE_RANKS = 16 };                /* the most ranks of a case */
enum { MOST_SEQUENCES = 64 };
enum { MOST_GIVEN = 16 };                /* cases in words of one call */
enum { STRIPE = 17, DEALT = KCP_STRIPED + 1 };     /* DEALT: random owners */
struct kcase {
    int id;
    struct kcp_call call;               /* sizes and options; N, T filled in */
    enum regime regime;
    int64_t cu[MOST_SEQUENCES + 1];
    int64_t cuts[CASE_RANKS + 1];       /* between ranks, if uneven */
    int uneven, with_h0, with_dht, mixed_want;
    int spike, masks;                   /* 15: a few, none, half, long runs */
    int64_t L;                          /* canonical segment length, or 0 */
    uint64_t seed;
    double alike;                       /* cosine of any two keys, or 0 */
    int exact_beta;                     /* a third of beta is 0, a third 1 */
    int null_rows;                      /* a seventh of the rows of q and k are 0 */
    int plain_rows;                     /* of lengths 0.2 to 1.3, without l2norm */
    int big;                            /* v, and what is normalised, times 1e4 */
    int no_states;                      /* pass NULL for optional states */
    int spread;                         /* kcp_spread, or DEALT */
    int again;                          /* the first that reaches a path: repeat it */
    int with_x0, with_dxt;              /* 14: rows before sequences; xt is an output */
};
extern const char *const regime_name[], *const model_name[];
/* The drawn list of a stage: every value of each axis, all pairs of regime, ranks and
 * form; full: all pairs of all axes. wide: K, V of 64 and 128 and C = 64, which kernels
 * for tensor cores take. ranks > 0 fixes R. *n cases; the caller frees. */
struct kcase *cases_make(const struct kcp_stage *s, int full, int wide, uint64_t seed,
                         int ranks, int *n);
/* The anchors of every list (anchors.c): states alive in each form and model, several
 * chunks for each size of tensor cores, alike keys, alternating gates, null rows,
 * options left out. ids count from first. The last FIRST_WIDE wide ones are small:
 * cases_of moves them after case 0. */
enum { FIRST_WIDE = 2 };
struct kcase *cases_anchors(const struct kcp_stage *s, int wide, uint64_t seed,
                            int ranks, int first, int *n);
/* Four cases of unequal K and V up to 256, HV > H: for kernels that claim any size. */
struct kcase *cases_tall(const struct kcp_stage *s, uint64_t seed, int ranks, int *n);
/* A case as text (case_text.c). parse: 0, or 1 and the wrong word in why. */
void case_print(const struct kcase *k, char *buf, size_t n);
int  case_parse(const char *text, struct kcase *k, char *why, size_t n);
int  cases_parse(const char *text, struct kcase *k, int max, char *why, size_t n);
double case_scale(int K);                     /* K^-1/2 */
/* The plan of a case; the caller frees it. NULL: out of memory. */
struct kcp_plan *case_plan(const struct kcase *k, int R);
/* The table of owners of a case with a spread. */
int case_owners(const struct kcase *k, int R, struct kcp_owners *o, const char **why);

/* The inputs of a case, rounded to a storage type (inputs.c), and their outputs by the
 * references (pipeline.c): 02 to 11 on one rank, or the token recurrence. */
enum source { OF_CHAPTERS, OF_STEP, OF_LAYER, OF_CONV, OF_SPIKE, OF_FAMILY };
enum source source_of(const struct kcp_stage *s);   /* of a stage's inputs */
int  inputs_draw(struct tensor_set *b, const struct kcase *k, const struct kcp_stage *s,
                 enum kcp_storage storage);
/* Makes rows of K numbers alike, null, or of other lengths, as the case says. */
void rows_unlike(struct tensor *t, const struct kcase *k, int alike);
/* A word of the case that the stage ignores; NULL: none. */
const char *inputs_ignore(const struct kcp_stage *s, const struct kcase *k);
/* Normals times size; rows of K normals, scaled to unit length if unit. */
void fill_normal(struct tensor *t, uint64_t seed, double size);
void fill_rows(struct tensor *t, uint64_t seed, int K, int unit);
void tensor_set_round(struct tensor_set *b, enum kcp_storage storage);
/* The stages of 02 to 11 before `end` in this pass (17 counts as 04; all for 07 and
 * 12); `end` too for part KCP_REVERSE, which reads what part KCP_LOCAL writes. */
int  pipeline_chunks(struct tensor_set *b, const struct kcase *k,
                     const struct kcp_stage *end, enum kcp_pass pass);
/* Adds up to half a place of its type to each number, as one more rounding. To beta_raw
 * as much as moves beta so: d beta / beta = (1 - sigmoid) d raw. */
void tensor_disturb(struct tensor *t, const struct kcase *k, enum kcp_storage storage,
                    uint64_t *seed);
/* All outputs of a stage. */
void pipeline_disturb(struct tensor_set *b, const struct kcase *k,
                      const struct kcp_stage *s, enum kcp_pass pass,
                      enum kcp_storage storage);
/* A layer's outputs on one rank, by chapters whose outputs are rounded. */
int  pipeline_disturbed(struct tensor_set *b, const struct kcase *k,
                        enum kcp_storage storage);
int  pipeline_oracle(struct tensor_set *b, const struct kcase *k, int backward);
/* The whole batch of 14 to 16 on one rank, by the stage's oracle if it has one. */
int  pipeline_one_rank(struct tensor_set *b, const struct kcp_stage *s,
                       const struct kcase *k, enum kcp_pass pass);
/* family.c */
void family_draw(struct tensor_set *b, const struct kcase *k);
/* spike.c */
void spike_draw(struct tensor_set *b, const struct kcase *k);
int  grid_add(struct tensor_set *b, const struct kcp_context *x,
              const struct kcp_call *c);
/* alive.c: the share of a state that is left at the last cut; NaN if no sequence
 * crosses one. alive_state: by the stage's oracle; alive_far: by 02's gates. */
double alive_state(const struct tensor_set *b, const struct kcp_stage *s,
                   const struct kcase *k, const struct kcp_plan *p);
double alive_far(const struct tensor_set *b, const struct kcase *k,
                 const struct kcp_plan *p);

/* ---- numbers (check.c) */
enum outcome { PASS, MARGINAL, FAIL, NA, SKIP };
extern const char *const outcome_name[];
struct worst {
    double err, tol, got, want;         /* err / tol is the largest seen */
    char field[16], where[96], first[64];
    int rank, head, nan;
    int of_forward;                 /* an output of the forward before 13 */
};
/* One rank's slice of a tensor, and the expected one. */
struct slice {
    const struct kcp_stage *stage;
    const struct kcp_field *field;
    int of_forward;                     /* before 13: of 08, on 13's case */
    const struct kcp_call *call;        /* of the rank */
    const double *got, *want;           /* dim[0] rows each */
    int64_t dim[4];
    int nd, rank;
    int64_t first;                      /* global number of row 0, for messages */
    const double *all;                  /* the whole expected tensor */
    int64_t all_rows;
    double rms_v;                       /* RMS(v), the natural size of states */
    double rms_sum;                     /* a random sum of dg_raw over tokens */
    double rms_dA;                      /* a random sum of terms of dA_log */
    double alike;                       /* cosine of the keys */
    /* How far `all` moves when inputs are rounded once more, by `draws` of MOVED_DRAWS
     * (fewer: less); or NULL. */
    const double *(*moved)(const char *field, int draws);
    int is_plain;                       /* 1: the limit does not rise */
    enum kcp_storage judged;
};
enum { MOVED_DRAWS = 8 };
/* Upper bound on the scaling of a tolerance. */
double limit_rises_by(enum kcp_storage judged, const struct kcp_call *c);
double tolerance(const struct slice *s, int is_M);
int    head_axis(const struct kcp_field *f);     /* of its shape; -1: none */
void   check_slice(const struct slice *s, struct worst *w);
double to_storage(double x, enum kcp_storage storage);

/* ---- memory (memory.c; a GPU's: cuda/host/memory.cu)
 * Unwritten memory between fences: all ones, which is NaN in every storage type.
 * _soon: filled at the next sync. fenced_free: NULL, or "before" or "past": where it
 * was written outside. */
extern int arrays_apart;                      /* an allocation for each array */
void *fenced_unwritten_soon(const struct memory *m, size_t n);
void *fenced_unwritten(const struct memory *m, size_t n);
const char *fenced_free(const struct memory *m, void *p, size_t n);
extern const struct memory host_memory;
void memory_settle(void);                     /* once, before a process's trials */
void blas_alone(void);                        /* OpenBLAS: no threads of its own */

/* ---- calls between ranks (hooks.c) */
/* Counts groups of messages from here to groups_end: NULL, or what is wrong with
 * them. */
void groups_count(struct kcp_comm *c);
const char *groups_end(struct kcp_comm *c);
int  ranks_threads(const struct memory *m, int R,
                   int (*body)(struct kcp_comm *, void *), void *arg, char *why,
                   size_t n);

/* ---- ranks (ranks.c): threads of this process; or processes, each of which judges its
 * rank, and all agree on the verdict */
struct verdict;
/* backend: NULL, "threads" or "nccl". Sets *R to the launcher's when there is one.
 * Status 0, or 1 or 2 for main, with one line said. */
int  ranks_open(const char *backend, int device, int *R);
void ranks_close(void);
int  ranks_mine(void);                       /* this process's rank; -1: all are here */
int  ranks_started(void);                    /* by a launcher; 0: all are here */
const char *ranks_launcher(void);            /* its name, as "mpirun" */
void ranks_as_threads(int on);               /* for a while: of this process alone */
int  ranks_apart(void);                       /* each on a GPU of its own? */
int  ranks_run(const struct memory *m, int R, int (*body)(struct kcp_comm *, void *),
               void *arg, char *why, size_t n);
/* Over NCCL: the processes of the launcher, else threads; a GPU each. */
int  ranks_over_nccl(int R, int (*body)(struct kcp_comm *, void *), void *arg,
                     char *why, size_t n);
void ranks_doing(const char *what);           /* printed when a rank is lost */
void ranks_agree(struct verdict *t);            /* the worst of all processes' */
/* Exchanges of random plans and maps, every form, bit for bit: trials of them. */
int  exchange_trials(int trials, int R, int device);
/* One such plan over existing ranks, each with a copy of it. Adds this rank's wrong
 * numbers to *wrong. */
int  exchange_on(struct kcp_comm *comm, const struct memory *m, uint64_t seed,
                 long long *wrong);

/* ---- trials (trial.c): one variant on one case */
struct verdict {
    enum outcome outcome;
    int backward;                             /* the pass */
    int no_forward, no_backward;              /* this pass alone is n/a */
    int refused;                              /* the variant returned n/a */
    int again;                                /* other bits when run again */
    struct worst worst;
    double alive;
    struct kcp_traffic traffic;               /* of all ranks */
    char why[160];                            /* n/a, skip, or what broke */
    char map[1024];                           /* a failure by rank and chunk */
};
struct options {
    const char *stage, *variant;
    int ranks, full, quick, quiet, strict;
    int only_device;                          /* kernels alone */
    enum kcp_storage storage;                 /* of --emit */
    int small;                                /* of --emit: drawn cases only */
    const char *shapes;                       /* of --emit: "128x128,64x64", or NULL */
    uint64_t seed;
    const struct kcase *given;                /* only these cases, or NULL */
    int ngiven;
    const struct kcp_variant *reference;      /* of its stage, or NULL: ours */
    const char *object;                       /* shared object of the variant */
    int stop;                                 /* at the first failure */
    int seeds;                                /* from seed on; 0, 1: that one */
};
enum { MOST_SEEDS = 32 };
void repeats_begin(void);                     /* the next case is a first one */
extern int case_repeats;                     /* --repeats (1) */
/* judged: the tolerance, and the rounding of the inputs. A mutant is written in double
 * and judged at all three. */
int judge_case(const struct kcp_stage *s, const struct kcp_variant *v,
              const struct kcase *k, enum kcp_storage judged, struct verdict *out);

/* ---- variants and checks, found by the linker (ref/core/variants.c, registry.c) */
const struct kcp_stage *stage_find(const char *name);
int is_mutant(const struct kcp_variant *v);
/* A variant from a shared object; NULL and *why on failure. */
const struct kcp_variant *variant_load(const char *path, char *why, size_t n);

/* ---- isolation.c: a variant in a process of its own */
extern int isolation_off;                     /* --here: all in this process */
extern int isolation_limit;                   /* seconds for a run; 0: no limit */

/* ---- report.c */
struct kcp_report {
    int pass, marginal, fail, na, skip, caught, survived, expectations;
    int quiet, selected;                      /* selected: --variant */
    int stop;                                 /* --stop: no case after a failure */
    char first[256];                          /* the first failure, for Criterion */
    double seconds;                           /* of many seeds: of this one */
    double lost;                              /* seconds without an answer */
};
void expect_(struct kcp_report *r, int ok, const char *file, int line, const char *expr,
             const char *fmt, ...) __attribute__((format(printf, 6, 7)));
#define EXPECT(rep, ok, ...)                                                          \
    expect_(rep, (ok) != 0, __FILE__, __LINE__, #ok, __VA_ARGS__)
/* The program and the options of a command that repeats a failure. */
extern const char *judge_program, *judge_options;
extern int judge_full;                        /* --full, for checks */
/* s as a word of the shell, quoted if necessary. */
const char *shell_word(const char *s, char *buf, size_t n);
void report_fail(struct kcp_report *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int  report_close(const struct kcp_report *r, int strict);    /* the exit status */

/* A check of a stage beside its variants: tests/NN_name. gpu_* and `alone` run under
 * --device too; a gpu_* prints a line and returns KCP_NA if there is no GPU. */
struct kcp_check { const char *stage, *name, *what; int (*run)(struct kcp_report *); };
#define KCP_CHECK(ident)                                                              \
    extern const struct kcp_check ident;                                              \
    __attribute__((used, section("kcp_checks")))                                      \
    const struct kcp_check *const ident##_at = &ident;                                \
    const struct kcp_check ident
/* The checks of a stage, NULL: all. If there are more than max, the program ends; max
 * 1: is there one? */
enum { MOST_CHECKS = 256 };
int kcp_checks(const char *stage, const struct kcp_check **out, int max);
/* Is the check selected by --variant and --device? */
int check_asked(const struct options *o, const struct kcp_check *c);
/* Not under --quick; under a launcher only those for processes, by name. */
int check_is_here(const struct options *o, const struct kcp_check *c);

/* ---- the core (core.c), called by Criterion, kcp-check and the labs. rep: one per
 * seed. */
int judge_variant(const struct kcp_stage *s, const struct kcp_variant *v,
                  const struct options *o, struct kcp_report *rep);
int judge_object(const struct kcp_variant *v, const struct options *o,
                 struct kcp_report *rep);      /* of a shared object: o->object */
int judge_check(const struct kcp_check *c, struct kcp_report *rep);
int judge_all(const struct options *o, struct kcp_report *rep);

#ifdef __cplusplus
}
#endif
#endif
