/* trial.h -- a trial of R ranks, each with arguments and buffers of its own.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self.c.
 * Next: rank_args.c fills a rank, trial.c runs them, expected.c, verdict.c judges.
 */
#ifndef KCP_TRIAL_H
#define KCP_TRIAL_H

#include "judge.h"

/* Around every array, workspace and saved block lie so many bytes of NaN: who reads
 * past the end computes NaN, who writes there is seen. --exact: none, so that memcheck,
 * which knows how long an allocation is, sees it too. */
#define FENCE fence_bytes

struct buffer {
    const struct kcp_field *field;
    void *base;                    /* in the variant's memory, fences included */
    char *image;                   /* on the host: what was put there, then what is */
    size_t bytes;
    double *want;                  /* outputs: what should be there */
    int64_t dim[4], n, first;
    int nd;
};

struct rank_args {
    struct kcp_call call;
    const struct kcp_plan *plan;
    const struct memory *mem;
    enum kcp_storage storage;
    int ranks, status, n, id;       /* the case's */
    int lacks_forward;              /* its forward is n/a: it did not run */
    int poison;                     /* NaN where nobody reads; mutants fail by values */
    struct buffer buffer[32];
    char *arena;                    /* on a GPU: all of them, NaN between; or NULL */
    size_t arena_bytes;
    char *args, why[96];            /* why: what was written that is not its own */
    void *saved;
    size_t saved_bytes;
    struct kcp_traffic traffic;
};

/* leftovers.c: what is in a workspace before a run: NaN, or what the last run left, or
 * the last one that wanted another size (the last one, when all wanted the same). */
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
    enum leftovers stale;           /* workspaces as an earlier run left them */
    const struct kcase *k;          /* what it is a trial of */
    enum kcp_pass pass;
    int runs;                       /* since it was filled */
};

/* The inputs of a case and what should come of them, until the next is asked for. */
struct expected {
    const struct kcp_stage *stage;
    struct kcase k;
    enum kcp_storage judged;
    enum kcp_pass pass;
    struct tensor_set in, want;
    struct tensor_set sums, moved;      /* of draws' squares; what is made of them */
    int draws;                          /* -1: none can be made */
    double alive, rms_v, rms_sum, rms_dA;
};
int expected_find(const struct kcp_stage *s, const struct kcase *k, enum kcp_pass pass,
                  enum kcp_storage judged, const struct kcp_plan *p,
                  const struct expected **x);
/* Made now by all cores, for processes that are started later; while memory lasts. */
void expected_ahead(const struct kcp_stage *s, const struct kcase *list, int n,
                    enum kcp_storage judged);
/* Of many seeds not all storages' have room: those of others than this one are given up
 * where what was made so far leaves too little. */
void expected_make_room(const struct kcp_stage *s, enum kcp_storage judged);
/* Of the case that expected_of made last: how far its expected tensor `name` moves
 * when every input is off by half a place of its type, as judge.h says; NULL: not
 * known. */
const double *expected_moved(const char *field, int draws);
const struct expected *expected_of(const struct kcp_stage *s, const struct kcase *k,
                                   enum kcp_pass pass, enum kcp_storage judged,
                                   const struct kcp_plan *p);
struct kcp_call call_of(const struct kcp_stage *s, const struct kcase *k,
                        const struct kcp_plan *p, int r, enum kcp_pass pass);
/* What slices of a layer are held against, of inputs and outputs in one set: RMS(v),
 * and the sums of parameters' gradients as they would be by chance. */
struct sizes_by_chance { double rms_v, rms_sum, rms_dA; };
struct sizes_by_chance sizes_by_chance(const struct tensor_set *b,
                                       const struct kcp_call *c);
int  has_backward(const struct kcp_stage *s);
/* What a trial has arrays of: a stage's fields, NULL behind the last. Of 13 the outputs
 * of the forward before it too, which is judged where it saves: their pointers lie
 * behind 13's arguments, and they are fields of 08. */
const struct kcp_field *trial_field(const struct kcp_stage *s, int i);
const struct kcp_stage *stage_of_field(const struct kcp_stage *s,
                                       const struct kcp_field *f);
/* "forward's " of such an output, else "". */
const char *whose_field(const struct kcp_field *f);
enum { BEHIND_ARGS = 64 };                    /* bytes, for pointers and for guards */
/* The reference's forward before 13; the judge's own checks put a wrong one here. */
extern int (*trial_forward)(struct kcp_forward *);

int  rank_args_fill(struct rank_args *s, const struct kcp_stage *stage,
                    const struct tensor_set *in,
               const struct tensor_set *want);
int  rank_args_collect(struct rank_args *s, char *why, size_t n);
/* Where it ran before: the inputs are as they were, the outputs NaN again. */
int  rank_args_again(struct rank_args *s);
/* What came back of a buffer: its image, if fences and inputs are as they were; or why
 * not. `now` belongs to the buffer then. */
int  rank_args_keep(struct rank_args *s, struct buffer *o, char *now, char *why,
                    size_t n);
void rank_args_free(struct rank_args *s);
/* Seats for all ranks of a case; this process's alone where it has one. */
int  trial_fill(struct trial *t, const struct kcase *k, const struct kcp_plan *p,
               enum kcp_pass pass, const struct tensor_set *in,
               const struct tensor_set *want);
/* Rank r's sizes and options, before its arrays. */
void trial_seat(struct trial *t, int r, const struct kcase *k, const struct kcp_plan *p,
                enum kcp_pass pass);
int  trial_launch(struct trial *t, char *why, size_t n);
int  trial_run(struct trial *t, char *why, size_t n);    /* and copy outputs back */
/* Bytes of output o that are not those of another run's, `to`. There o's first row is
 * row `first`: o->first, where one rank has them all. Rows of tokens, states that this
 * rank owns, sums whole. */
int64_t buffer_other_bytes(const struct buffer *o, const struct buffer *to,
                           int64_t first);
void trial_free(struct trial *t);
int  row_a(const struct kcp_field *f, const char *letter);  /* a row a token, "T"? */
/* A sequence of NaN changes no bit of the others (alone.c); canonical segments give the
 * same bits on every number of ranks (canonical.c). KCP_NA: not asked of its stage. */
int  alone_variant(struct kcp_report *rep, const struct kcp_variant *v);
int  canonical_variant(struct kcp_report *rep, const struct kcp_variant *v);
const struct memory *gpu_of_threads(void);     /* NULL: none, or ranks have their own */
/* Where the judge fills the arrays of a trial; NULL: no device. A shared object's are
 * filled on the host, for they are copied to its process. */
const struct memory *trial_memory(enum kcp_where where);

#endif
