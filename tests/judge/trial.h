/* trial.h -- a trial: R ranks, each with arguments and buffers.
 * Book: CONTRIBUTING.md, "How the judge works". */
#pragma once

#include "judge.h"

/* Number of NaN bytes before and after every array, workspace and saved block. A read
 * out of bounds returns NaN, and a write out of bounds is detected. With --exact there
 * are no fences, so that memcheck reports accesses out of bounds. */
#define FENCE fence_bytes

struct buffer {
    const struct kcp_field *field;
    void *base;                    /* the buffer in the variant's memory, with fences */
    char *image, *back;           /* on the host: `image` is sent, `back` fetched */
    size_t bytes;
    enum kcp_type type;            /* of numbers */
    double *want;                  /* expected numbers of an output */
    int64_t dim[4], n, first;
    int nd;
};

struct rank_args {
    struct kcp_call call;
    const struct kcp_plan *plan;
    const struct memory *mem;
    enum kcp_storage storage;
    int ranks, status, n, id;       /* id: number of the case */
    int lacks_forward;              /* 1: stage 13 has no forward for this call */
    int poison;                     /* 1: maps that 07 must not read are NaN */
    struct buffer buffer[32];
    char *arena;                   /* one GPU allocation of all arrays, or NULL */
    size_t arena_bytes, args_bytes;
    char *args, why[96];            /* why: this rank's error, or "" */
    void *saved;
    size_t saved_bytes;
    struct kcp_traffic traffic;
};

/* Allocates memory for an image, shared with the variant's process (isolation.c). */
void *image_alloc(size_t n);
void image_free(void *p);

/* Content of a workspace before a run (memory.c): NaN, the last run's bytes, or the
 * bytes of the last run whose workspace had another size. If no such run exists, the
 * last run's bytes are used. */
enum leftovers { LEFT_NONE, LEFT_BY_LAST, LEFT_OTHER_SIZE };
void leftovers_keep(const struct rank_args *s, const void *work, size_t bytes);
int  leftovers_fill(const struct rank_args *s, void *work, size_t bytes,
                   enum leftovers which);

struct trial {
    const struct kcp_stage *stage;
    const struct kcp_variant *variant;
    const struct memory *mem;
    int R;
    struct rank_args *rank;
    enum leftovers stale;           /* content of the workspace before a run */
    const struct kcase *k;
    struct kcp_plan *plan;          /* freed by trial_free */
    const struct expected *expected;        /* set by trial_case */
    enum kcp_pass pass;
    int runs;                       /* runs since trial_fill */
};

struct expected {
    const struct kcp_stage *stage;
    struct kcase k;
    enum kcp_storage judged;
    enum kcp_pass pass;
    struct tensor_set in, want;
    struct tensor_set sums, moved;      /* `sums`: squared changes; `moved`: RMS */
    int draws;                          /* number of draws; -1 after a failure */
    double alive;
    struct natural_sizes sizes;
};
/* Computes expected outputs with the references, or finds them in the cache. Returns
 * NULL if a reference fails. The result is valid until the next call. */
const struct expected *expected_of(const struct kcp_stage *s, const struct kcase *k,
                                   enum kcp_pass pass, enum kcp_storage judged,
                                   const struct kcp_plan *p);
/* Computes expected outputs of a list of cases on at most eight cores, until the cache
 * is full. */
void expected_ahead(const struct kcp_stage *s, const struct kcase *list, int n,
                    enum kcp_storage judged);
/* Implements `moved` of struct slice (judge.h) for expected_of's last case. */
const double *expected_moved(const char *field, int draws);
struct kcp_call call_of(const struct kcp_stage *s, const struct kcase *k,
                        const struct kcp_plan *p, int r, enum kcp_pass pass);
struct natural_sizes natural_sizes(const struct tensor_set *b,
                                   const struct kcp_call *c);
int  has_backward(const struct kcp_stage *s);
/* Describes output o of a rank as a slice. `all` is the whole expected tensor; NULL
 * means that `want` is the whole tensor. */
struct slice slice_of(const struct trial *t, const struct rank_args *s,
                      const struct buffer *o, const struct expected *x,
                      const double *got, const double *want, const struct tensor *all);
/* Converts an image to an array of double, which the caller frees. */
double *numbers_of(const struct buffer *o, const char *image);
/* Returns the i-th field of a trial, or NULL after the last field: the stage's fields
 * and, for stage 13, outputs o and ht of the forward that runs first. Pointers to o and
 * ht follow 13's arguments. */
const struct kcp_field *trial_field(const struct kcp_stage *s, int i);
const struct kcp_stage *stage_of_field(const struct kcp_stage *s,
                                       const struct kcp_field *f);
/* Returns "forward's " for outputs of the forward that stage 13 runs first, else "". */
const char *forward_prefix(const struct kcp_field *f);
enum { BEHIND_ARGS = 64 };                    /* bytes for the forward's pointers */
/* The forward that runs before stage 13 if no forward variant does (see trial.c): the
 * reference, unless tests/00_judge/trials.c sets another function. */
extern int (*trial_forward)(struct kcp_forward *);

/* Makes the images of all arrays of a rank. */
int  rank_args_fill(struct rank_args *s, const struct kcp_stage *stage,
                    const struct tensor_set *in, const struct tensor_set *want);
/* Allocates the arrays unless they exist, and copies the images into them. */
int  rank_args_send(struct rank_args *s);
/* After a run, copies the arrays back to the host. */
int  rank_args_fetch(struct rank_args *s, char *why, size_t n);
/* Checks that fences and inputs did not change. Afterwards each buffer's `image`
 * contains the bytes that the run wrote. */
int  rank_args_check(struct rank_args *s, char *why, size_t n);
/* Fills the outputs' images with NaN for the next run. */
void rank_args_reset(struct rank_args *s);
void rank_args_release(struct rank_args *s);     /* frees arrays, not images */
void rank_args_free(struct rank_args *s);
/* Makes the images of all ranks or, under a launcher, of this process's rank. */
int  trial_fill(struct trial *t, const struct kcase *k, const struct kcp_plan *p,
                enum kcp_pass pass, const struct tensor_set *in,
                const struct tensor_set *want);
/* Makes the plan of case k, fills the images from `in`, and runs the trial. */
int  trial_with(struct trial *t, const struct kcase *k, enum kcp_pass pass,
                const struct tensor_set *in, const struct tensor_set *want, char *why,
                size_t n);
/* Runs a trial with the inputs of case k rounded to type `judged`. */
int  trial_case(struct trial *t, const struct kcase *k, enum kcp_pass pass,
                enum kcp_storage judged, char *why, size_t n);
int  trial_launch(struct trial *t, char *why, size_t n);
int  trial_here(struct trial *t, char *why, size_t n);   /* send, launch, fetch */
int  trial_run(struct trial *t, char *why, size_t n);    /* here or isolated, checks */
/* Counts the bytes in which output o differs from another run's output `to`; row 0 of o
 * is compared with row `first` of `to`. States that this rank does not own are not
 * compared. */
int64_t buffer_other_bytes(const struct buffer *o, const struct buffer *to,
                           int64_t first);
void trial_free(struct trial *t);
/* Returns 1 if the field has one row per token ("T"), sequence ("N"), ... */
int  has_row_per(const struct kcp_field *f, const char *letter);
/* bits.c: checks that segments cut at fixed tokens give equal bits on every number of
 * ranks (if is_canonical is 1), or that a NaN sequence changes no bit of the other
 * sequences (if 0). Returns KCP_NA if the stage has no such check. */
int  bits_of_variant(struct kcp_report *rep, const struct kcp_variant *v,
                     int is_canonical);
/* Runs the reference of a stage on 1 to 8 ranks, with segments cut at fixed tokens, and
 * requires equal bits in each form (exchange algorithm) that composes maps in order. */
int  canonical_reference(struct kcp_report *rep, const char *stage, const char *words);
/* Runs variant v on the case `words`, and variant `other` on the case `words` with
 * `more` appended. The outputs must have equal bits. */
int  bits_agree(struct kcp_report *rep, const struct kcp_variant *v, const char *words,
                const struct kcp_variant *other, const char *more);
/* Judges the reference of a stage in every form on 1 to 12 ranks, with uneven cuts and
 * empty ranks: errors above 1e-12 fail. `words` must describe a case of 421 tokens. */
int  cuts_agree(struct kcp_report *rep, const char *stage, const char *words);
/* traffic.c: compares the bytes and messages that the reference sent in trial t with
 * the formulas. Returns 1 if the numbers are equal, or 0 with the numbers in `why`. */
int  traffic_is_right(const struct trial *t, char *why, size_t n);
const struct memory *gpu_of_threads(void);     /* NULL: no GPU, or a GPU per rank */
/* Returns the memory of a trial's arrays, or NULL if there is no device. If the variant
 * runs in a separate process, returns host memory for device variants too, because only
 * that process has arrays on the device. */
const struct memory *trial_memory(enum kcp_where where);
extern const struct memory *memory_forced;     /* if set, the result in checks */
