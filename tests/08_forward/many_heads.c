/* many_heads.c -- checks kernels on tensors of more than 2^31 numbers.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * The references are too slow for so many numbers. But heads are independent, so the
 * inputs of one head are repeated until a tensor has more than 2^31 numbers. Then the
 * outputs of all heads must have equal bits, and the first head's outputs must equal
 * those expected from a call with one head. */
#include "tests/judge/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A buffer of one head, viewed as [outer][inner bytes]. `heads` is 1 if the buffer
 * has an axis of heads. */
struct copies { int64_t outer, inner; int heads; };

static struct copies copies_of(const struct buffer *o)
{
    const int axis = head_axis(o->field);
    struct copies c = { .outer = 1, .heads = axis >= 0 };
    for (int d = 0; d < axis; d++) c.outer *= o->dim[d];
    c.inner = c.outer ? (int64_t)o->bytes / c.outer : 0;
    return c;
}

static size_t bytes_of(const struct buffer *o, int heads)
{
    return o->bytes * (size_t)(copies_of(o).heads ? heads : 1);
}

/* Copies one head's buffer `one` to the device at `base`, as `heads` equal heads. */
static int put_copies(const struct memory *m, const struct copies *c, int heads,
                      const char *one, char *base)
{
    const size_t bytes = (size_t)(c->outer * c->inner * heads);
    char *all = malloc(bytes + 8), *p = all;
    if (!all) return KCP_NO_MEMORY;
    for (int64_t i = 0; i < c->outer; i++)
        for (int h = 0; h < heads; h++, p += c->inner)
            memcpy(p, one + i * c->inner, (size_t)c->inner);
    const int status = m->copy(base, all, bytes);
    free(all);
    return status;
}

/* Copies a buffer from the device and stores the first head in `one`. Adds to *wrong
 * the number of rows in which another head differs from the first head. */
static int take_copies(const struct memory *m, const struct copies *c, int heads,
                       char *one, const char *base, int64_t *wrong)
{
    const size_t row = (size_t)c->inner, bytes = (size_t)c->outer * row * (size_t)heads;
    char *all = malloc(bytes + 8);
    if (!all) return KCP_NO_MEMORY;
    const int status = m->copy(all, base, bytes);
    for (int64_t i = 0; i < c->outer && !status; i++) {
        const char *first = all + (size_t)i * row * (size_t)heads;
        memcpy(one + (size_t)i * row, first, row);
        for (int h = 1; h < heads; h++)
            *wrong += memcmp(first, first + (size_t)h * row, row) != 0;
    }
    free(all);
    return status;
}

/* Builds the arguments of a call with `heads` equal heads from a call with one head. */
static int fill_many(struct trial *many, const struct trial *one, int heads)
{
    const struct rank_args *from = &one->rank[0];
    struct rank_args *s = &many->rank[0];
    int status = KCP_OK;
    *s = *from;
    s->call.H = s->call.HV = heads;
    s->n = 0;
    s->arena = NULL;
    s->args = calloc(1, one->stage->args + BEHIND_ARGS);
    if (!s->args) return KCP_NO_MEMORY;
    memcpy(s->args, &s->call, sizeof s->call);
    for (int i = 0; i < from->n && !status; i++) {
        const struct buffer *o = &from->buffer[i];
        const struct copies c = copies_of(o);
        struct buffer *to = &s->buffer[s->n++];
        *to = (struct buffer){ .field = o->field, .bytes = bytes_of(o, heads) };
        to->base = s->mem->alloc(to->bytes);
        if (!to->base) return KCP_NO_MEMORY;
        memcpy(s->args + o->field->at, &to->base, sizeof to->base);
        const int given = field_in(o->field) || field_given(o->field, &s->call);
        if (given)
            status = put_copies(s->mem, &c, c.heads ? heads : 1, o->image + FENCE,
                                to->base);
        else status = s->mem->fill(to->base, 0xff, to->bytes);
    }
    return status;
}

static struct worst first_head(const struct trial *one, const struct buffer *o,
                               const char *first, const struct expected *e)
{
    struct worst w = { .tol = 0 };
    double *got = numbers_of(o, first - FENCE);
    const struct slice x = slice_of(one, &one->rank[0], o, e, got, o->want, NULL);
    check_slice(&x, &w);
    free(got);
    return w;
}

/* `rows` counts rows in which another head differs from the first head. `over` is the
 * first head's worst error divided by its limit. Output `field` has this error. */
struct found { int64_t rows; double over; const char *field; };

static int compare_many(const struct trial *many, const struct trial *one,
                        const struct expected *e, int heads, struct found *found)
{
    int status = KCP_OK;
    for (int i = 0; i < one->rank[0].n && !status; i++) {
        const struct buffer *o = &one->rank[0].buffer[i];
        const struct copies c = copies_of(o);
        if (!o->want || !c.heads) continue;
        char *first = alloc_or_exit(o->bytes + 8);
        status = take_copies(many->mem, &c, heads, first,
                             many->rank[0].buffer[i].base, &found->rows);
        const struct worst w = first_head(one, o, first, e);
        const double over = w.nan ? INFINITY : w.err / w.tol;
        if (!(over <= found->over)) {
            found->over = over;
            found->field = o->field->name;
        }
        free(first);
    }
    return status;
}

/* Runs a variant on one case with many heads and compares the heads. Prints a line if
 * memory runs out. Returns KCP_NA then, or if the variant does not support the case. */
static int many_heads(const struct kcp_variant *v, const struct memory *m,
                      const char *words, int64_t numbers, struct found *found,
                      char why[160])
{
    const struct kcp_stage *s = stage_find(v->stage);
    struct kcase k;
    if (case_parse(words, &k, why, 160)) return KCP_BAD;
    const enum kcp_pass pass = has_backward(s) ? KCP_BACKWARD : KCP_FORWARD;
    const int heads = (int)(numbers / (k.call.T * k.call.V)) + 2;
    struct trial one = { .stage = s, .variant = v, .mem = m }, many = one;
    struct kcp_plan *p = case_plan(&k, 1);
    const struct expected *e = p ? expected_of(s, &k, pass, v->storage, p) : NULL;
    int status = e ? trial_fill(&one, &k, p, pass, &e->in, &e->want) : KCP_BAD;
    if (!status) status = trial_run(&one, why, 160);
    many.R = 1;
    many.rank = calloc(1, sizeof *many.rank);
    if (!status) status = many.rank ? fill_many(&many, &one, heads) : KCP_NO_MEMORY;
    if (!status) status = trial_launch(&many, why, 160);
    if (!status) status = compare_many(&many, &one, e, heads, found);
    if (status == KCP_NO_MEMORY)
        printf("  skip    many heads of %s: out of memory for %d heads of '%s'\n",
               v->name, heads, words);
    trial_free(&many);
    trial_free(&one);
    kcp_plan_free(p);
    return status == KCP_NO_MEMORY ? KCP_NA : status;
}

/* ---- on the host, with few numbers: wrapped offsets must be found */
static int64_t wraps_at;

/* Runs the reference, then overwrites o[wraps_at + i] with o[i] for all i >= 0. */
static int wrapping(void *args)
{
    const struct kcp_forward *a = args;
    const int64_t n = a->T * a->HV * a->V;
    double *o = a->o;
    const int status = ref_forward(args);
    for (int64_t i = wraps_at; i < n && !status; i++) o[i] = o[i - wraps_at];
    return status;
}

static int by_hand(struct kcp_report *rep)
{
    static const char words[] = "live kda H=1 K=8 V=6 C=16 lengths=40,0,33 h0 dht "
                                "l2norm beta=sigmoid gate=softplus";
    const struct kcp_variant v = { "08_forward", "wraps", "", KCP_F64, KCP_HOST, "any",
                                   wrapping, NULL };
    for (int wraps = 0; wraps < 2; wraps++) {
        struct found x = { 0 };
        char why[160] = "";
        wraps_at = wraps ? 2999 : INT64_MAX;
        const int status = many_heads(&v, &host_memory, words, 3000, &x, why);
        EXPECT(rep, !status && (x.rows > 0) == wraps && (wraps || x.over <= 1),
               "offsets wrap: %d (1: rows must differ); status %d %s; %lld rows differ "
               "from head 0; error of head 0 is %.2g times its limit",
               wraps, status, why, (long long)x.rows, x.over);
    }
    return KCP_OK;
}
KCP_CHECK(check_08_many_heads) = { "08_forward", "many_heads",
    "many heads with equal inputs give equal bits and the expected numbers, and "
    "wrapped offsets are detected", by_hand };

/* ---- on a GPU, with more than 2^31 numbers: --full */
static int on_gpu(struct kcp_report *rep, const char *stage, const char *const *words)
{
    const struct kcp_variant *v[256];
    const struct memory *m = gpu_of_threads();
    const int n = kcp_variants(stage, NULL, v, 256);
    int ran = 0;
    if (!judge_full || !m) {
        printf("  (%s: not run)\n",
               judge_full ? "no GPU that all threads share" : "needs --full and a GPU");
        return KCP_NA;
    }
    for (; *words; words++)
        for (int i = 0; i < n; i++) {
            struct found x = { .field = "no output" };
            char why[160] = "";
            if (v[i]->where != KCP_DEVICE || v[i]->storage != KCP_BF16) continue;
            const int status = many_heads(v[i], m, *words, INT64_C(1) << 31, &x, why);
            if (status == KCP_NA) continue;
            EXPECT(rep, !status && !x.rows && x.over <= 1, "%s: status %d %s; %lld "
                   "rows differ between equal heads; error of %s in head 0 "
                   "is %.2g times its limit",
                   v[i]->name, status, why, (long long)x.rows, x.field, x.over);
            ran = 1;
        }
    return ran ? KCP_OK : KCP_NA;
}

#define LONG "K=128 V=128 C=64 lengths=16000,384 l2norm beta=sigmoid gate=softplus"
static const char *const large[] = { "live kda H=1 " LONG, "live gdn H=1 " LONG, NULL };
static int of_08(struct kcp_report *rep) { return on_gpu(rep, "08_forward", large); }
static int of_13(struct kcp_report *rep) { return on_gpu(rep, "13_backward", large); }
#define WHAT "with --full, heads with equal inputs give equal bits and the " \
             "expected numbers in tensors of more than 2^31 numbers"
KCP_CHECK(check_08_gpu_many_heads) = { "08_forward", "gpu_many_heads", WHAT, of_08 };
KCP_CHECK(check_13_gpu_many_heads) = { "13_backward", "gpu_many_heads", WHAT, of_13 };
