/* trial.h -- a trial: R ranks, each with arguments and buffers.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self_trials.c.
 * Next: rank_args.c fills a rank, trial.c runs them, expected.c, verdict.c judges.
 */
#ifndef KCP_TRIAL_H
#define KCP_TRIAL_H

#include "judge.h"

/* Bytes of NaN around every array, workspace and saved block: reads outside give NaN,
 * writes outside are found. With --exact there are none, so that memcheck, which knows
 * the size of an allocation, reports them. */
#define FENCE fence_bytes

struct buffer {
    const struct kcp_field *field;
    void *base;                    /* in the variant's memory, fences included */
    char *image, *back;           /* on the host: as sent, and as fetched after a run */
    size_t bytes;
    double *want;                  /* outputs: the expected numbers */
    int64_t dim[4], n, first;
    int nd;
};

struct rank_args {
    struct kcp_call call;
    const struct kcp_plan *plan;
    const struct memory *mem;
    enum kcp_storage storage;
    int ranks, status, n, id;       /* id: the case's */
    int lacks_forward;              /* 13: no forward takes this call */
    int poison;                     /* NaN where nothing reads; not for mutants */
    struct buffer buffer[32];
    char *arena;                   /* on a GPU: one allocation of all arrays; or NULL */
    size_t arena_bytes, args_bytes;
    char *args, why[96];            /* why: which array it wrote outside of */
    void *saved;
    size_t saved_bytes;
    struct kcp_traffic traffic;
};

/* Memory of an image: shared with the variant's process where it has one
 * (isolation.c) */
void *image_alloc(size_t n);
void image_free(void *p);

/* leftovers.c: the bytes of a workspace before a run: NaN, or those that the last run
 * left, or the last run of another size (if none had another size, the last run). */
enum leftovers { LEFT_NONE, LEFT_BY_LAST, LEFT_OTHER_SIZE };
void leftovers_keep(const struct rank_args *s, const void *work, size_t bytes);
int  leftovers_lay(const struct rank_args *s, void *work, size_t bytes,
                   enum leftovers which);

struct trial {
    const struct kcp_stage *stage;
    const struct kcp_variant *variant;
    const struct memory *mem;
    int R;
    struct rank_args *rank;
    enum leftovers stale;           /* the bytes of its workspace */
    const struct kcase *k;
    enum kcp_pass pass;
    int runs;                       /* since it was filled */
};

/* The inputs of a case and its expected outputs. */
struct expected {
    const struct kcp_stage *stage;
    struct kcase k;
    enum kcp_storage judged;
    enum kcp_pass pass;
    struct tensor_set in, want;
    struct tensor_set sums, moved;      /* squares of draws; their RMS */
    int draws;                          /* -1: none can be made */
    double alive, rms_v, rms_sum, rms_dA;
};
/* Made by the references, or found in the cache: valid until the next call. */
int expected_find(const struct kcp_stage *s, const struct kcase *k, enum kcp_pass pass,
                  enum kcp_storage judged, const struct kcp_plan *p,
                  const struct expected **x);
const struct expected *expected_of(const struct kcp_stage *s, const struct kcase *k,
                                   enum kcp_pass pass, enum kcp_storage judged,
                                   const struct kcp_plan *p);
/* All cases of a list, made by all cores, while the cache has memory for them. */
void expected_ahead(const struct kcp_stage *s, const struct kcase *list, int n,
                    enum kcp_storage judged);
/* How far output `field` of the case found last moves when every input is off by half a
 * place of its type (judge.h); NULL: unknown. */
const double *expected_moved(const char *field, int draws);
struct kcp_call call_of(const struct kcp_stage *s, const struct kcase *k,
                        const struct kcp_plan *p, int r, enum kcp_pass pass);
/* Natural sizes, from inputs and outputs in one set: RMS(v), and sums of gradients of
 * parameters if the signs of their terms were random. */
struct sizes_by_chance { double rms_v, rms_sum, rms_dA; };
struct sizes_by_chance sizes_by_chance(const struct tensor_set *b,
                                       const struct kcp_call *c);
int  has_backward(const struct kcp_stage *s);
/* The slice of output o of a rank: `got` numbers against `want`, `all` the whole tensor
 * of that name or NULL: `want`. */
struct slice slice_of(const struct trial *t, const struct rank_args *s,
                      const struct buffer *o, const struct expected *x,
                      const double *got, const double *want, const struct tensor *all);
/* The numbers of an image; the caller frees them. */
double *numbers_of(const struct buffer *o, const char *image);
/* The i-th field of a trial: the stage's fields, then NULL. For 13 also the outputs of
 * the forward before it, fields of 08 whose pointers follow 13's arguments. */
const struct kcp_field *trial_field(const struct kcp_stage *s, int i);
const struct kcp_stage *stage_of_field(const struct kcp_stage *s,
                                       const struct kcp_field *f);
/* "forward's " of such an output, else "". */
const char *whose_field(const struct kcp_field *f);
enum { BEHIND_ARGS = 64 };                    /* bytes for these pointers */
/* The reference's forward before 13; self_trials.c replaces it. */
extern int (*trial_forward)(struct kcp_forward *);

/* Images of all arrays of a rank; then arrays made from them (again from the same
 * images where they exist), fetched after a run, and compared: fences and inputs must
 * be as they were sent. After that `image` is what the run left. */
int  rank_args_fill(struct rank_args *s, const struct kcp_stage *stage,
                    const struct tensor_set *in, const struct tensor_set *want);
int  rank_args_send(struct rank_args *s);
int  rank_args_fetch(struct rank_args *s, char *why, size_t n);
int  rank_args_check(struct rank_args *s, char *why, size_t n);
/* Outputs are NaN again, for another run. */
void rank_args_reset(struct rank_args *s);
void rank_args_release(struct rank_args *s);     /* the arrays, not the images */
void rank_args_free(struct rank_args *s);
/* Images of all ranks of a case; of processes, of this one's rank. */
int  trial_fill(struct trial *t, const struct kcase *k, const struct kcp_plan *p,
                enum kcp_pass pass, const struct tensor_set *in,
                const struct tensor_set *want);
int  trial_launch(struct trial *t, char *why, size_t n);
int  trial_here(struct trial *t, char *why, size_t n);   /* send, launch, fetch */
int  trial_run(struct trial *t, char *why, size_t n);    /* here or there, checked */
/* How many bytes of output o differ from those of another run, `to`, where the first
 * row of o is row `first`. Rows of tokens, states that this rank owns, whole sums. */
int64_t buffer_other_bytes(const struct buffer *o, const struct buffer *to,
                           int64_t first);
void trial_free(struct trial *t);
int  row_a(const struct kcp_field *f, const char *letter); /* "T": one row per token? */
/* A sequence of NaN changes no bit of the others (bits.c); canonical segments give
 * equal bits on every number of ranks (bits.c). KCP_NA: not a check of its
 * stage. */
int  alone_variant(struct kcp_report *rep, const struct kcp_variant *v);
int  canonical_variant(struct kcp_report *rep, const struct kcp_variant *v);
const struct memory *gpu_of_threads(void);     /* NULL: none, or one for each rank */
/* The memory of a trial's arrays; NULL: no device. If the variant has a process, the
 * host's for both places, because only that process has the arrays. */
const struct memory *trial_memory(enum kcp_where where);
extern const struct memory *memory_forced;     /* instead, for the judge's own checks */

#endif
