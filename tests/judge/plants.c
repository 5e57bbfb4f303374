/* plants.c -- plants: variants with at most one mistake, which test the judge.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "plants.h"
#include "tolerance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct plant *planted;

/* ---- mistakes in the field whose name is planted->field */
static int reference(void *args) { return stage_find(planted->stage)->ref(args); }

/* Returns the limit of the plant's stage for the storage type of the plant's cases. */
static double limit(int backward)
{
    const int number = atoi(planted->stage);
    const int is_bf16 = planted->cases && !strncmp(planted->cases, "bf16: ", 6);
    enum tolerance row = backward ? TOLERANCE_GRADIENTS : TOLERANCE_STATES;
    if (number == 8) row = TOLERANCE_LAYER;
    return tolerance_of(row, is_bf16 ? KCP_BF16 : KCP_F64);
}
static int is_backward(void) { return strstr("09 13", planted->stage) != NULL; }

static double *array(void *args, int64_t *n, int64_t *heads, int64_t *width)
{
    const struct kcp_stage *s = stage_find(planted->stage);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        int64_t dim[4] = { 0 };
        if (strcmp(f->name, planted->field)) continue;
        const int nd = shape_dims(args, f->shape, dim);
        *n = 1;
        for (int d = 0; d < nd; d++) *n *= dim[d];
        *heads = nd > 2 ? dim[1] : 1;
        *width = nd > 2 ? dim[2] : 1;
        return *(double **)(void *)((char *)args + f->at);
    }
    return NULL;
}

static double *number(void *args)
{
    int64_t n, heads, width;
    double *x = array(args, &n, &heads, &width);
    return x + (planted->at < END / 2 ? planted->at : n + planted->at - END);
}

static int puts_number(void *args)
{
    const int status = reference(args);
    *number(args) = planted->by;
    return status;
}

/* Adds `by` times number `at` of an input to output o. `at` may be out of bounds. */
static int reads_number(void *args)
{
    const int status = reference(args);
    ((double *)((struct kcp_chunk *)args)->o)[0] += planted->by * *number(args);
    return status;
}

/* Adds an error of `by` limits to a field, or if `at` is not 0, to the last head. */
static int scales(void *args)
{
    int64_t n, heads, width;
    const int status = reference(args);
    double *x = array(args, &n, &heads, &width);
    for (int64_t i = 0; i < n; i++)
        if (!planted->at || i / width % heads == heads - 1)
            x[i] *= 1 + planted->by * limit(is_backward());
    return status;
}

/* Gives the largest row of head 0 an error of `by` times the limit. */
static int scales_row(void *args)
{
    int64_t n, heads, width, at = 0;
    double most = -1;
    const int status = reference(args);
    double *x = array(args, &n, &heads, &width);
    for (int64_t row = 0; row < n; row += heads * width) {
        double sum = 0;
        for (int64_t i = row; i < row + width; i++) sum += x[i] * x[i];
        if (sum > most) at = row;
        most = fmax(most, sum);
    }
    for (int64_t i = at; i < at + width && n; i++)
        x[i] *= 1 + planted->by * limit(is_backward());
    return status;
}

/* Gives y in forward an error of `by` times the limit, and dx in backward an error of
 * (1 - `by`) times the limit. */
static int scales_pass(void *args)
{
    struct kcp_conv *a = args;
    const int status = ref_conv(a), back = a->pass == KCP_BACKWARD;
    const double by = (back ? 1 - planted->by : planted->by) * limit(back);
    double *x = back ? a->dx : a->y;
    for (int64_t i = 0; i < a->T * a->D && !status; i++) x[i] *= 1 + by;
    return status;
}

/* Gives chunk 1 an error of 30 limits, and chunk 3 an error of 3000 limits. */
static int scales_chunks(void *args)
{
    struct kcp_chunk *a = args;
    const int status = ref_chunk(a);
    const int64_t row = (int64_t)a->HV * a->V;
    for (int64_t i = 16 * row; i < 64 * row && !status; i++) {
        if (i < 32 * row) ((double *)a->o)[i] *= 1 + 30 * limit(0);
        if (i >= 48 * row) ((double *)a->o)[i] *= 1 + 3000 * limit(0);
    }
    return status;
}

static int returns(void *args)
{
    (void)args;
    return (int)planted->by;
}

/* ---- maps that the kernel must not write, or must not read */
static int writes_unwanted(void *args)
{
    const struct kcp_affine *a = args;
    const int64_t n = (int64_t)a->HV * a->K * (a->V + a->K);
    for (int s = 0; s < a->NS; s++)
        if (((const int *)a->want)[s] != 3)
            memset((double *)a->map + s * n, 0, sizeof(double) * (size_t)n);
    return ref_affine(args);
}

/* Adds 0 times part M of the first map to S, so S is wrong only if M contains NaN. */
static int reads_first_M(void *args)
{
    const struct kcp_merge *a = args;
    const int W = a->V + a->K, *range = a->range;
    const double *maps = a->maps;
    const int status = ref_merge(args);
    for (int64_t i = 0; i < (int64_t)a->HV * a->K * a->V && range[0] < range[1]; i++) {
        const int at = a->pass == KCP_BACKWARD ? range[1] - 1 : range[0];
        const int64_t row = (int64_t)at * a->HV * a->K + i / a->V;
        ((double *)a->S)[i] += 0 * maps[row * W + a->V];
    }
    return status;
}

/* ---- workspaces and the saved block */
static size_t hundred(const void *a) { (void)a; return 100; }
static size_t by_tokens(const void *a)
{
    return 8 * (size_t)(2 + ((const struct kcp_chunk *)a)->T);
}

static int writes_work(void *args)             /* writes byte `at` of the workspace */
{
    struct kcp_call *c = args;
    const int64_t past = (int64_t)c->work_bytes + planted->at - END;
    const int64_t at = planted->at < END / 2 ? planted->at : past;
    ((char *)c->work)[at] = 0;
    return reference(args);
}

/* Reads the first 8 bytes of the workspace or, if `at` is not 0, the 8 bytes after the
 * workspace. If `by` > 0, first fills the workspace with 0. */
static int reads_work(void *args)
{
    struct kcp_call *c = args;
    double x;
    if (planted->by > 0) memset(c->work, 0, c->work_bytes);
    const int status = reference(args);
    memcpy(&x, (char *)c->work + (planted->at ? c->work_bytes : 0), sizeof x);
    ((double *)((struct kcp_chunk *)args)->o)[0] += 1000 * x;
    return status;
}

static int reads_saved(void *args)             /* past the block's end if `at` != 0 */
{
    struct kcp_backward *a = args;
    const struct kcp_saved *s = a->saved;
    double x;
    const int status = ref_backward(a);
    const size_t at = planted->at ? a->saved_bytes : s->bytes - sizeof x;
    memcpy(&x, (const char *)a->saved + at, sizeof x);
    if (a->T) ((double *)a->dv)[0] += 0 * x;
    return status;
}

static int writes_past_saved(void *args)
{
    struct kcp_backward *a = args;
    ((char *)(uintptr_t)a->saved)[a->saved_bytes] = 0;
    return ref_backward(a);
}

/* Returns a wrong o if the workspace contains the mark of an earlier call. */
static int counts_in_work(void *args)
{
    struct kcp_chunk *a = args;
    double *work = a->work;
    const int status = ref_chunk(a);
    if (work[0] > 0) ((double *)a->o)[0] += 1;
    work[0] = 1;
    return status;
}

/* Writes a 0 at the end of the workspace unless the first number marks the workspace as
 * prepared. Returns a wrong o if the workspace does not end with 0. */
static int marks_work(void *args)
{
    struct kcp_chunk *a = args;
    const int64_t n = 2 + a->T;
    double *work = a->work;
    const int status = ref_chunk(a);
    if (work[0] != 4.25) work[n - 1] = 0;
    if (work[n - 1] != 0) ((double *)a->o)[0] += 1;
    for (int64_t i = 0; i < n - 1; i++) work[i] = 4.25;
    return status;
}

/* Returns a wrong o if the workspace has the mark of an earlier call of the same T. */
static int marks_own_work(void *args)
{
    struct kcp_chunk *a = args;
    double *work = a->work;
    const int status = ref_chunk(a);
    if (work[0] == 4.25 && work[1] == (double)a->T) ((double *)a->o)[0] += 1;
    work[0] = 4.25;
    work[1] = (double)a->T;
    return status;
}

/* Requests a workspace only in runs 1 and 2. Fails if a later run gets a workspace. */
static int runs;
static size_t work_at_first(const void *a) { (void)a; return runs < 2 ? 64 : 0; }
static int needs_no_old_work(void *args)
{
    struct kcp_call *c = args;
    if (runs++ >= 2 && c->work) return KCP_BAD;
    if (c->work_bytes) memset(c->work, 0, c->work_bytes);
    return ref_backward(args);
}

/* ---- mistakes that depend on earlier calls, with static variables */
static int moves_bits(void *args)
{
    static int calls;
    const int status = ref_chunk(args);
    ((double *)((struct kcp_chunk *)args)->o)[0] *= 1 + 1e-15 * (calls++ % 2);
    return status;
}

static int writes_twice(void *args)
{
    static int calls;
    return calls++ < 2 ? ref_chunk(args) : KCP_OK;
}

static int wrong_once_in_fifty(void *args)
{
    static int calls;
    const int status = ref_chunk(args);
    if (++calls % 50 == 0) ((double *)((struct kcp_chunk *)args)->o)[0] += 1;
    return status;
}

/* ---- messages: in pass `by`, group number `at` is neither begun nor ended */
static __thread struct { int (*group)(struct kcp_comm *, int); int begun; } rank;

static int without_one(struct kcp_comm *c, int begin)
{
    rank.begun += begin;
    return rank.begun == planted->at ? KCP_OK : rank.group(c, begin);
}

static int leaves_pair_out(void *args)
{
    const struct kcp_call *c = args;
    struct kcp_comm *comm = c->comm;
    if (!comm || c->pass != (enum kcp_pass)planted->by) return reference(args);
    rank.group = comm->group;
    rank.begun = 0;
    comm->group = without_one;
    const int status = reference(args);
    comm->group = rank.group;
    return status;
}

static int opens_group(void *args)
{
    struct kcp_forward *f = args;
    const int status = ref_forward(f);
    f->comm->group(f->comm, 1);
    return status;
}

/* ---- mistakes in the forward that runs before stage 13 */
static int forward_puts_o(struct kcp_forward *a)
{
    const int status = ref_forward(a);
    const int64_t n = a->T * a->HV * a->V, at = planted->at;
    if (!status) ((double *)a->o)[at < END / 2 ? at : n + at - END] = planted->by;
    return status;
}

/* Changes ht of the first sequence that ends on this rank. */
static int forward_moves_ht(struct kcp_forward *a)
{
    const int status = ref_forward(a);
    const int64_t row = (int64_t)a->HV * a->K * a->V;
    int n = 0;
    while (n < a->N && a->plan->ht_rank[n] != a->r) n++;
    for (int64_t i = 0; i < row && n < a->N && !status; i++)
        ((double *)a->ht)[n * row + i] += .5;
    return status;
}

#define SMALL "H=1 HV=2 K=8 V=6 C=16"
#define RANKS "live kda R=2 " SMALL " lengths=40 h0 dht"
#define ROW \
    "bf16: live kda H=1 HV=2 K=64 V=64 C=64 lengths=64 l2norm beta=sigmoid " \
    "gate=softplus h0 dht"
#define SAVING(mode) \
    "bf16: live kda R=3 chain " SMALL " lengths=40,9 h0 dht l2norm save=" mode
#define TOKENS(n, id) "live " SMALL " lengths=" n " id=" id
#define CHAIN "live kda chain R=2 H=1 HV=1 K=8 V=4 C=16 lengths=40 h0 id=1"
#define HALO "live kda R=7 D=5 Wc=6 lengths=3,4,2 h0 x0 dxt id=1"
#define AGAIN "differs when run again"
#define OUTSIDE "outside a group"
#define IN(field_, at_, by_) .field = field_, .at = at_, .by = by_
#define PAIR(pair, pass) .at = pair, .by = pass
#define WORK(bytes, at_, by_) .work = bytes, .at = at_, .by = by_
#define FORWARD(at_, by_) .forward = forward_puts_o, .at = at_, .by = by_
#define FAR .memory = FAR_ONLY
#define PLAIN .at = 0

/* A plant's verdict must contain the words in the fifth column. If an output is wrong,
 * the words are e.g. "o wrong in head 1" or "NaN in o", or "forward o" if the forward
 * before stage 13 wrote the output. Otherwise they are "ok,", "marginal", "n/a" or an
 * error message of the judge. If cases begin with "bf16: ", bf16's limits apply. */
const struct plant plants[] = {
    { "honest", "04", reference, NULL, "ok,", PLAIN },
    { "one_nan", "04", puts_number, NULL, "NaN in o", IN("o", 0, NAN) },
    { "one_inf", "04", puts_number, NULL, "NaN in o", IN("o", 0, INFINITY) },
    { "not_mine", "04", returns, NULL, "n/a", .by = KCP_NA },
    { "refuses", "04", returns, NULL, "returned status", .by = KCP_BAD },
    { "outside", "04", puts_number, NULL, "past o", IN("o", END, 1) },
    { "outside_by_13", "04", puts_number, NULL, "past o", IN("o", END + 13, 1) },
    { "before", "04", puts_number, NULL, "before o", IN("o", -1, 1) },
    { "before_by_25", "04", puts_number, NULL, "before o", IN("o", -25, 1) },
    { "reads_past", "04", reads_number, NULL, "NaN in o", IN("u", END, 1000) },
    { "reads_before", "04", reads_number, NULL, "NaN in o", IN("u", -1, 1e-3) },
    { "into_input", "04", puts_number, NULL, "into input u", IN("u", 3, 1) },
    { "strays", "04", puts_number, NULL, "far past", IN("o", END + 75, 1), FAR },
    { "strays_far", "04", puts_number, NULL, "far past", IN("o", END + 500, 1), FAR },
    { "strays_before", "04", puts_number, NULL, "far past", IN("o", -75, 1), FAR },
    { "strays_past_last", "04", puts_number, NULL, "far past h_out",
      IN("h_out", END + 500, 1), FAR },
    { "strays_before_first", "04", puts_number, NULL, "far before cu",
      IN("cu", -40, 1), FAR },
    { "one_head", "04", scales, NULL, "o wrong in head 1", IN("o", 1, 1e10) },
    { "scaled_half", "04", scales, NULL, "ok,", IN("o", 0, 0.5) },
    { "scaled_nearly", "04", scales, NULL, "marginal", IN("o", 0, 0.95) },
    { "scaled_over", "04", scales, NULL, "o wrong", IN("o", 0, 1.1) },
    { "scaled_below", "04", scales, NULL, "o wrong", IN("o", 0, -1.1) },
    { "one_token", "04", scales_row, NULL, "o wrong", IN("o", 0, 6) },
    { "off_08", "08", scales_row, ROW, "o wrong", IN("o", 0, 6) },
    { "off_13", "13", scales_row, ROW, "dq_raw wrong", IN("dq_raw", 0, 4) },
    { "scaled_conv", "14", scales_pass, "bf16: live kda lengths=90", "dx at 0.60",
      .by = 0.4 },
    { "scaled_conv_forward", "14", scales_pass, "bf16: live kda lengths=90",
      "y at 0.60", .by = 0.6 },
    { "wrong_chunks", "04", scales_chunks, "bf16: live kda " SMALL " lengths=90",
      "chunks  .2.4..\n", PLAIN },
    { "unwanted", "05", writes_unwanted, "live kda " SMALL " lengths=40,33,20 mixed",
      "NaN in h_ext", PLAIN },
    { "reads_first_M", "07", reads_first_M, "live kda " SMALL " lengths=90 L=24",
      "NaN in S", PLAIN },
    { "writes_past_work", "04", writes_work, NULL, "past the workspace",
      WORK(hundred, END, 0) },
    { "writes_before_work", "04", writes_work, NULL, "before the workspace",
      WORK(hundred, -1, 0) },
    { "reads_work", "04", reads_work, NULL, "NaN in o", WORK(hundred, 0, 0) },
    { "reads_written_work", "04", reads_work, NULL, "ok,", WORK(hundred, 0, 1) },
    { "reads_past_work", "04", reads_work, NULL, "NaN in o", WORK(hundred, END, 1) },
    { "reads_saved", "13", reads_saved, RANKS, "ok,", PLAIN },
    { "reads_past_saved", "13", reads_saved, RANKS, "NaN in dv", .at = END },
    { "writes_past_saved", "13", writes_past_saved, RANKS, "past the saved", PLAIN },
    { "counts_on", "04", counts_in_work, NULL, AGAIN, .work = hundred },
    { "marks", "04", marks_work, TOKENS("40", "2") ";" TOKENS("17", "1"), AGAIN,
      .work = by_tokens },
    { "kept_by_size", "04", marks_work, TOKENS("40", "2") ";" TOKENS("17", "2") ";"
      TOKENS("17", "1"), AGAIN, .work = by_tokens },
    { "counts_own", "04", marks_own_work, TOKENS("17", "2"), AGAIN, .work = by_tokens },
    { "runs_again", "13", needs_no_old_work, TOKENS("9", "1"), "ok,",
      .work = work_at_first, .memory = HOST_ONLY },
    { "moving", "04", moves_bits, NULL, AGAIN, PLAIN },
    { "writes_twice", "04", writes_twice, NULL, AGAIN, .memory = HOST_ONLY },
    { "now_and_then", "04", wrong_once_in_fifty, NULL, AGAIN, PLAIN },
    { "opens_group", "08", opens_group, RANKS, "groups of messages", PLAIN },
    { "without pair 1 of 1", "08", leaves_pair_out, CHAIN, OUTSIDE, PAIR(1, 0) },
    { "without pair 2 of 1", "08", leaves_pair_out, CHAIN, "ok,", PAIR(2, 0) },
    { "without pair 2 of 2", "14", leaves_pair_out, HALO, OUTSIDE, PAIR(2, 0) },
    { "without pair 4 of 4", "14", leaves_pair_out, HALO, OUTSIDE, PAIR(4, 1) },
    { "without pair 5 of 4", "14", leaves_pair_out, HALO, "ok,", PAIR(5, 1) },
    { "forward_right", "13", reference, SAVING("all"), "ok,", PLAIN },
    { "scaled_o", "13", reference, SAVING("all"), "forward o wrong",
      FORWARD(0, 10) },
    { "wrong_ht", "13", reference, SAVING("all"), "forward ht wrong",
      .forward = forward_moves_ht },
    { "without_o", "13", reference, SAVING("none"), "NaN in forward o",
      FORWARD(0, NAN) },
    { "past_o", "13", reference, SAVING("all"), "past forward's o",
      FORWARD(END, 0) },
};
const int nplants = sizeof plants / sizeof *plants;
