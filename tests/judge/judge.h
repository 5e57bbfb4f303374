/* judge.h -- the interfaces of the judge: cases, numbers, ranks, trials, reports.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * The judge finds a variant's inputs and outputs by name in the stage's field table, so
 * a new variant needs no new code here. */
#pragma once

#include "layer.h"
#include "ref.h"
#include <stdio.h>

#include "base/tensor_set.h"
#include "cuda/host/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kcp_report;

/* ---- random numbers (inputs.c), one stream per seed, case and tensor */
struct stream { uint64_t s; };
struct stream stream_of(uint64_t seed, const char *name);
double uniform(struct stream *s);       /* in (0, 1) */
double normal(struct stream *s);

/* ---- cases (cases.c) */
enum regime { LIVE, STRONG, SATURATED, TURNS, SPREAD, REGIMES };
enum deep { NOT_DEEP, DEEP_FIRST, DEEP_ONE, DEEP_HALF, DEEP_ALL, DEEPS };
enum { CASE_RANKS = 16 };                /* maximum ranks per case */
enum { MOST_SEQUENCES = 64 };
enum { MOST_GIVEN = 16 };                /* maximum cases per --case */
enum { STRIPE = 17, DEALT = KCP_STRIPED + 1 };     /* DEALT: random owners */
struct kcase {
    int id;
    struct kcp_call call;               /* sizes (also N, T) and options */
    enum regime regime;
    int64_t cu[MOST_SEQUENCES + 1];
    int64_t cuts[CASE_RANKS + 1];       /* cuts between ranks, if `uneven` */
    int uneven, with_h0, with_dht, mixed_want;
    /* `masks`: stage 15 drops tokens (0: a tenth, 1: none, 2: half, 3: whole runs). */
    int spike, masks;
    int64_t L;                          /* canonical segment length, or 0 */
    uint64_t seed;
    double alike;                       /* cosine of any two keys, or 0 */
    int exact_beta;                     /* 1: a third of beta is 0, a third is 1 */
    int null_rows;                      /* 1: a seventh of the rows of q and k are 0 */
    int plain_rows;                     /* 1: row norms are 0.2 to 1.3 unless l2norm */
    int steady;                         /* 1: equal gates for all tokens (inputs.c) */
    enum deep deep;                     /* which gates close (inputs.c) */
    int big;                            /* 1: multiply v by 1e4; if l2norm also q, k */
    int no_states;                      /* pass NULL for optional states */
    int spread;                         /* enum kcp_spread or DEALT */
    int again;                          /* 1: run twice (first case of a kernel path) */
    int with_x0, with_dxt;              /* 1: stage 14 has this input */
};
extern const char *const regime_name[], *const model_name[], *const storage_name[];
extern const char *const deep_name[];
extern const char *const gate_name[], *const beta_name[];
/* Draws a list of *n cases of a stage, which the caller frees. The list has every value
 * of each axis (property). It also has every pair of values of a few axes, e.g. number
 * of ranks and exchange form, or, with `full`, of all axes. With `wide`, K and V are 64
 * or 128 and C = 64, the sizes of tensor-core kernels. If ranks > 0, R = ranks. */
struct kcase *cases_make(const struct kcp_stage *s, int full, int wide, uint64_t seed,
                         int ranks, int *n);
/* Returns the anchors, the fixed cases of every list (see anchors.def). Their ids start
 * at `first`. If `wide` is 1, the last FIRST_WIDE anchors are small, and cases_of moves
 * them directly after case 0. */
enum { FIRST_WIDE = 2 };
struct kcase *cases_anchors(const struct kcp_stage *s, int wide, uint64_t seed,
                            int ranks, int first, int *n);
/* Returns four cases with HV > H and different K and V up to 256 (tall_sizes). */
struct kcase *cases_tall(const struct kcp_stage *s, uint64_t seed, int ranks, int *n);
/* A case's text (case_text.c) is words in any order; omitted words have usual values.
 * case_parse returns 0, or 1 with the wrong word or an error in `why`. cases_parse
 * reads cases separated by ';' and returns how many, or 0 with an error in `why`. */
void case_print(const struct kcase *k, char *buf, size_t n);
int  case_parse(const char *text, struct kcase *k, char *why, size_t n);
int  cases_parse(const char *text, struct kcase *k, int max, char *why, size_t n);
/* Writes the models of the stage's cases to `out`, and returns their number.
 * models_text writes the models' names. */
int  models_of(const struct kcp_stage *s, enum kcp_model *out);
void models_text(const struct kcp_stage *s, const char *between, char *out, size_t n);
double case_scale(int K);                     /* K^-1/2 */
/* Returns the plan of a case (caller frees), or NULL after one line on stderr. */
struct kcp_plan *case_plan(const struct kcase *k, int R);

/* inputs.c draws the inputs of a case and rounds them to a storage type. pipeline.c
 * computes outputs on one rank with the references of chapters 02 to 11, or with the
 * token recurrence. */
enum source { OF_CHAPTERS, OF_STEP, OF_LAYER, OF_CONV, OF_SPIKE, OF_FAMILY };
enum source source_of(const struct kcp_stage *s);   /* of a stage's inputs */
int  inputs_draw(struct tensor_set *b, const struct kcase *k, const struct kcp_stage *s,
                 enum kcp_storage storage);
/* Returns a word of the case's text that has no effect in the stage, or NULL. */
const char *inputs_ignore(const struct kcp_stage *s, const struct kcase *k);
void tensor_set_round(struct tensor_set *b, const struct kcp_call *c,
                      enum kcp_storage storage);
/* Returns RMS(a - b) / RMS(b) of n numbers, or the norm of `a` if `b` is 0. */
double rms_apart(const double *a, const double *b, int64_t n);
/* Returns rms_apart of tensor `name` in the two sets, or NaN if the sizes differ. */
double tensors_apart(const struct tensor_set *a, const struct tensor_set *b,
                     const char *name);
/* Runs the references of stages 02 to 11 that precede `end` in pass `pass`. If `end` is
 * 17, runs stages before 04; if `end` is 07 or 12, runs all. If the case's part is
 * KCP_REVERSE, also runs `end`, whose part KCP_LOCAL writes what KCP_REVERSE reads. */
int  pipeline_chunks(struct tensor_set *b, const struct kcase *k,
                     const struct kcp_stage *end, enum kcp_pass pass);
/* Like one more rounding, multiplies each number by a random factor within 1 +- 2^-9
 * (bf16) or 1 +- 2^-24 (fp32). Changes logits beta_raw so that beta changes by such a
 * factor: d beta / beta = (1 - sigmoid(beta_raw)) * d beta_raw. */
void tensor_disturb(struct tensor *t, const struct kcase *k, enum kcp_storage storage,
                    uint64_t *seed);
/* Applies tensor_disturb to all outputs of a stage. */
void pipeline_disturb(struct tensor_set *b, const struct kcase *k,
                      const struct kcp_stage *s, enum kcp_pass pass,
                      enum kcp_storage storage);
/* Computes a layer's outputs on one rank with the chapters' references, and applies
 * tensor_disturb to the outputs of each chapter. */
int  pipeline_disturbed(struct tensor_set *b, const struct kcase *k,
                        enum kcp_storage storage);
int  pipeline_oracle(struct tensor_set *b, const struct kcase *k, int backward);
/* Runs the whole batch of stages 14 to 16 on one rank, with the stage's oracle or, if
 * it has none, the stage's reference. */
int  pipeline_one_rank(struct tensor_set *b, const struct kcp_stage *s,
                       const struct kcase *k, enum kcp_pass pass);
/* gradients.c: compares the gradients of a case with finite differences of outputs,
 * once for the oracle of the stage and once for the reference. */
int  gradients_agree(struct kcp_report *rep, const char *stage, const char *words);
/* Functions that add tensors to a set. add_normal: normal numbers times `size`.
 * add_rows: rows of K numbers, of unit length if `unit`, nearly equal if `alike` and
 * the case has alike keys; the case may make rows 0, large or short. add_decays: logs
 * of decays in the case's regime. add_states: h0 and dht if the case has them. */
struct tensor *add_normal(struct tensor_set *b, const struct kcase *k, const char *name,
                          const char *shape, enum kcp_store store, double size);
struct tensor *add_rows(struct tensor_set *b, const struct kcase *k, const char *name,
                        const char *shape, int unit, int alike);
void add_decays(struct tensor_set *b, const struct kcase *k, const char *name,
                enum kcp_store store);
void add_states(struct tensor_set *b, const struct kcase *k);
double mean_logit(const struct kcase *k);
/* Draw all inputs of chapters 15 and 16 (family.c). */
void spike_draw(struct tensor_set *b, const struct kcase *k);
void family_draw(struct tensor_set *b, const struct kcase *k);
/* alive.c: returns the share of a state that remains at the last cut, or NaN if no
 * sequence crosses a cut. Runs the oracle of stage s, or the stage's reference, on the
 * tokens before the cut: the initial state has random entries 1 and -1, v is 0, and set
 * `b` has the other inputs. */
double alive_state(const struct tensor_set *b, const struct kcp_stage *s,
                   const struct kcase *k, const struct kcp_plan *p);

/* ---- numbers (check.c) */
enum outcome { PASS, MARGINAL, FAIL, NA, SKIP };
extern const char *const outcome_name[];
struct worst {
    double err, tol, got, want;         /* err / tol is the largest so far */
    char field[16], where[96], first[64];
    int rank, head, nan;
    int of_forward;                 /* 1: output of stage 13's forward */
};
/* Natural sizes. rms_v is RMS(v), the size of states. Gradients of parameters are sums.
 * rms_dA is the RMS that dA_log would have if the terms of its sums had random signs,
 * and rms_sum is this RMS of gradients that are sums of dg_raw. */
struct natural_sizes { double rms_v, rms_sum, rms_dA; };
/* One rank's slice of a tensor, computed (got) and expected (want). */
struct slice {
    const struct kcp_stage *stage;
    const struct kcp_field *field;
    int of_forward;                     /* 1: output of stage 13's forward */
    const struct kcp_call *call;        /* the rank's call */
    const double *got, *want;           /* dim[0] rows each */
    int64_t dim[4];
    int nd, rank;
    int64_t first;                      /* global number of row 0, for messages */
    const double *all;                  /* the whole expected tensor */
    int64_t all_rows;
    struct natural_sizes sizes;
    double alike;                       /* cosine of the keys */
    /* Returns by how much each number of `all` changes if the inputs are rounded once
     * more. The change is the RMS of MOVED_DRAWS random samples. Only the first
     * `draws` samples are computed, and the others count as 0. NULL means unknown. */
    const double *(*moved)(const char *field, int draws);
    int is_plain;                       /* 1: do not raise the limit */
    enum kcp_storage judged;
};
enum { MOVED_DRAWS = 8 };
/* Returns the largest factor by which a limit may rise. */
double limit_rises_by(enum kcp_storage judged, const struct kcp_call *c);
double tolerance(const struct slice *s, int is_M);
int    is_unwritten(double x);                  /* 1: all bits are 1, as before a run */
int    head_axis(const struct kcp_field *f);     /* axis of heads in f's shape, or -1 */
void   check_slice(const struct slice *s, struct worst *w);
int    is_wrong(const struct worst *w);         /* 1: the error exceeds the limit */
/* Writes the field, the error, the worst and the first wrong element as text. */
void   worst_text(const struct worst *w, int has_rank, char *text, size_t n);

/* ---- memory (memory.c; a GPU's: cuda/host/memory.cu) */
/* fenced_unwritten_soon allocates memory between two fences and starts to set all bits
 * (with --bare, only the fences' bits) to 1, which is NaN in every storage type. The
 * next sync waits until the bits are set. fenced_free returns NULL if the fences are
 * intact, else the beginning of an error message, e.g. "wrote past". */
void *fenced_unwritten_soon(const struct memory *m, size_t n);
const char *fenced_free(const struct memory *m, void *p, size_t n);
extern const struct memory host_memory;
void memory_settle(void);                     /* call once, before the first trial */

/* ---- calls between ranks (hooks.c) */
/* Counts groups of messages until groups_end, which returns NULL or an error text. */
void groups_count(struct kcp_comm *c);
const char *groups_end(struct kcp_comm *c);
int  ranks_threads(const struct memory *m, int R,
                   int (*body)(struct kcp_comm *, void *), void *arg, char *why,
                   size_t n);

/* ---- ranks (ranks.c): threads of this process, or processes that each judge one rank
 * and agree on the verdict */
struct verdict;
/* Argument `backend` is NULL, "threads" or "nccl". Under a launcher, sets *R to the
 * launcher's number of ranks. Returns 0, or exit status 1 or 2 after printing one line
 * on stderr. */
int  ranks_open(const char *backend, int device, int *R);
void ranks_close(void);
int  ranks_mine(void);                      /* this process's rank; -1 if no launcher */
int  ranks_started(void);                    /* number of the launcher's ranks, or 0 */
const char *ranks_launcher(void);            /* the launcher's name: "mpirun" */
void ranks_as_threads(int on);               /* 1: ranks are threads; 0: undo */
int  ranks_apart(void);                       /* 1: each rank has a GPU */
int  ranks_run(const struct memory *m, int R, int (*body)(struct kcp_comm *, void *),
               void *arg, char *why, size_t n);
/* Runs R ranks over NCCL, one GPU per rank. Ranks are the launcher's processes, or
 * threads if there is no launcher. */
int  ranks_over_nccl(int R, int (*body)(struct kcp_comm *, void *), void *arg,
                     char *why, size_t n);
void ranks_doing(const char *what);           /* `what` is printed if a rank is lost */
void ranks_agree(struct verdict *t);            /* *t = the worst verdict */
/* Runs `trials` random exchanges in every form and requires exact results. */
int  exchange_trials(int trials, int R, int device);
/* Runs the exchange of one seed on existing ranks, and adds the number of wrong
 * values on this rank to *wrong. */
int  exchange_on(struct kcp_comm *comm, const struct memory *m, uint64_t seed,
                 long long *wrong);

/* ---- trials (trial.c): one variant on one case */
struct verdict {
    enum outcome outcome;
    int backward;                             /* 1: a verdict of backward */
    int no_forward, no_backward;              /* only that pass is n/a */
    int refused;                              /* the variant returned n/a */
    int again;                                /* a repeated run gave other bits */
    struct worst worst;
    double alive;
    struct kcp_traffic traffic;               /* sum over all ranks */
    char why[160];                            /* reason of n/a, skip or failure */
    char map[1024];                           /* errors by rank and chunk */
};
struct options {
    const char *stage, *variant;
    int ranks, full, quick, quiet, strict;
    int only_device;                          /* judge only kernels */
    enum kcp_storage storage;                 /* of --emit */
    int small;                                /* of --emit: small random cases only */
    const char *shapes;                       /* of --emit: "128x128,64x64", or NULL */
    uint64_t seed;
    const struct kcase *given;                /* judge only these cases, or NULL */
    int ngiven;
    const struct kcp_variant *reference;      /* --reference, or NULL */
    const char *object;                       /* shared object of the variant */
    int stop;                                 /* 1: stop at the first failure */
};
void repeats_begin(void);                     /* the next case is the first of a list */
extern int case_repeats;                     /* --repeats, usually 1 */
/* `judged` selects the tolerance and the rounding of the inputs. A mutant computes
 * in double and is judged with all three storage types. */
int judge_case(const struct kcp_stage *s, const struct kcp_variant *v,
              const struct kcase *k, enum kcp_storage judged, struct verdict *out);

/* ---- variants and checks, found by the linker (ref/core/variants.c, registry.c) */
const struct kcp_stage *stage_find(const char *name);
int is_mutant(const struct kcp_variant *v);
/* Returns the reference of a stage as a variant named "ref". */
struct kcp_variant reference_of(const struct kcp_stage *s);
/* Loads a variant from a shared object. Returns NULL with `why` on failure. */
const struct kcp_variant *variant_load(const char *path, char *why, size_t n);

/* ---- isolation.c: a variant in a separate process */
extern int isolation_off;                     /* --here: run all in this process */
extern int isolation_limit;                   /* seconds per run; 0: no limit */
extern int isolation_start;                   /* more seconds, to start a process: 10 */

/* ---- report.c */
struct kcp_report {
    int pass, marginal, fail, na, skip, caught, survived, expectations;
    int quiet, selected;                      /* selected: 1 with --variant */
    int stop;                                 /* --stop: run no case after a failure */
    char first[256];                          /* the first failure, for Criterion */
    double lost;                              /* seconds of runs that timed out */
};
void expect_(struct kcp_report *r, int ok, const char *file, int line, const char *expr,
             const char *fmt, ...) __attribute__((format(printf, 6, 7)));
#define EXPECT(rep, ok, ...)                                                          \
    expect_(rep, (ok) != 0, __FILE__, __LINE__, #ok, __VA_ARGS__)
/* The program and its options, for commands that repeat a failure. */
extern const char *judge_program, *judge_options;
extern int judge_full;                        /* 1 with --full; read by checks */
/* Returns s as a shell word, quoted if necessary. */
const char *shell_word(const char *s, char *buf, size_t n);
void report_fail(struct kcp_report *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int  report_close(const struct kcp_report *r, int strict);    /* returns exit status */

/* A check of a stage runs after the stage's variants. Checks of other chapters and of
 * the judge run last. With --device, only checks named gpu_* or `alone` run. Without a
 * GPU a gpu_* check prints a line and returns KCP_NA. */
struct kcp_check { const char *stage, *name, *what; int (*run)(struct kcp_report *); };
#define KCP_CHECK(ident)                                                              \
    extern const struct kcp_check ident;                                              \
    __attribute__((used, section("kcp_checks")))                                      \
    const struct kcp_check *const ident##_at = &ident;                                \
    const struct kcp_check ident
/* Finds the checks of a stage (of all stages if NULL) and returns their number. If
 * `max` is 1, returns at most 1. If `max` > 1 is too small, the program exits. */
enum { MOST_CHECKS = 256 };
int kcp_checks(const char *stage, const struct kcp_check **out, int max);
/* Returns 1 if --variant and --device select the check. */
int check_is_selected(const struct options *o, const struct kcp_check *c);
/* Returns 1 if check c runs with options o. --quick omits all checks. Under a launcher,
 * a check runs only if the check supports processes and --variant names the check. */
int check_is_here(const struct options *o, const struct kcp_check *c);

/* ---- the core (core.c), called by Criterion and kcp-check. */
void judge_object(const struct kcp_variant *v, const struct options *o,
                  struct kcp_report *rep);     /* judges o->object */
int judge_all(const struct options *o, struct kcp_report *rep);

#ifdef __cplusplus
}
#endif
