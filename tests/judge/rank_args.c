/* rank_args.c -- fills, sends, fetches and checks the arguments of one rank of a trial.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * A rank gets its shard of every tensor with one row per token, and the state rows that
 * the rank owns. Other state rows are NaN, so that an output computed from these rows
 * is wrong. A stage without ranks is treated as a stage with one rank. Every buffer has
 * an image, a copy on the host with fences. Before the variant runs, images are copied
 * into arrays in the variant's memory. */
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int has_row_per(const struct kcp_field *f, const char *letter)
{
    const size_t n = strlen(letter);
    return !strncmp(f->shape, letter, n) && (f->shape[n] == ' ' || !f->shape[n]);
}

static int is_integer(const struct kcp_field *f)
{
    return f->store == KCP_I32 || f->store == KCP_I64;
}

/* Returns 1 if this rank owns row n of a state field. The rank with a sequence's first
 * token owns the initial state; the rank with the last token owns the final state. */
static int owns(const struct rank_args *s, const struct kcp_field *f, int n)
{
    static const char *const final[] = { "ht", "dht", "ot", "dot", "xt", "dxt" };
    int at_end = 0;
    for (int i = 0; i < 6; i++) at_end |= !strcmp(f->name, final[i]);
    return (at_end ? s->plan->ht_rank : s->plan->h0_rank)[n] == s->call.r;
}

/* Returns a copy of tensor t's rows for this rank. A number has `width` bytes. In rows
 * of other ranks all bits are 1, which is NaN. The caller frees the copy. */
static void *rows_of(const struct rank_args *s, const struct kcp_field *f,
                     const struct tensor *t, size_t width, struct buffer *o)
{
    int64_t row = 1;
    shape_dims(&s->call, f->shape, o->dim);
    for (int d = 1; d < t->nd; d++) row *= o->dim[d];
    o->nd = t->nd;
    o->n = t->nd ? row * o->dim[0] : 1;
    char *x = malloc(width * (size_t)o->n + 8);
    if (!x) return NULL;
    const size_t bytes = width * (size_t)row;
    if (s->ranks && has_row_per(f, "T")) {
        o->first = s->plan->ctx[s->call.r].begin;
        kcp_plan_take(s->plan, s->call.r, bytes, t->p, x);
    } else memcpy(x, t->p, width * (size_t)o->n);
    for (int i = 0; i < s->call.N && s->ranks && has_row_per(f, "N"); i++)
        if (!owns(s, f, i)) memset(x + (size_t)i * bytes, 0xff, bytes);
    return x;
}

/* Sets to NaN what a fold (composition of maps) must not read: maps outside the range,
 * and M of the first map, because the fold starts with the first map's h. */
static void poison_maps(const struct kcp_call *c, const struct tensor *range,
                        const struct tensor *t, double *maps)
{
    const int *at = range->p, first = c->pass == KCP_BACKWARD ? at[1] - 1 : at[0];
    const int64_t W = c->V + c->K, map = c->HV * c->K * W;
    for (int64_t i = 0; i < t->n; i++) {
        const int j = (int)(i / map);
        if (j < at[0] || j >= at[1] || (j == first && i % W >= c->V)) maps[i] = NAN;
    }
}

/* Allocates an image of n bytes: a copy of `bytes`, or NaN if `bytes` is NULL. */
static int make_image(struct buffer *o, const void *bytes, size_t n)
{
    o->bytes = n;
    o->image = image_alloc(n + 2 * FENCE);
    o->back = image_alloc(n + 2 * FENCE);
    if (!o->image || !o->back) return KCP_NO_MEMORY;
    memset(o->image, 0xff, n + 2 * FENCE);
    if (bytes) memcpy(o->image + FENCE, bytes, n);
    return KCP_OK;
}

static int fill_array(struct rank_args *s, struct buffer *o, const struct tensor *t,
                      const struct tensor_set *in)
{
    const struct kcp_field *f = o->field;
    const enum kcp_type type = kcp_type_of(&s->call, f->store, s->storage);
    const size_t width = kcp_bytes_of(&s->call, f->store, s->storage);
    const int numbers = !is_integer(f), given = field_in(f) || field_given(f, &s->call);
    void *rows = rows_of(s, f, t, numbers ? sizeof(double) : width, o);
    void *coded = malloc((size_t)o->n * width + 8);
    int status = rows && coded ? KCP_OK : KCP_NO_MEMORY;
    o->type = type;
    if (!status && s->poison && !strcmp(f->name, "maps"))
        poison_maps(&s->call, tensor_find(in, "range"), t, rows);
    if (!status && numbers) encode(coded, rows, o->n, type);
    else if (!status) memcpy(coded, rows, (size_t)o->n * width);
    if (!status) status = make_image(o, given ? coded : NULL, (size_t)o->n * width);
    free(coded);
    if (field_in(f)) free(rows);
    else o->want = rows;
    return status;
}

static int fill_buffer(struct rank_args *s, const struct kcp_field *f,
                       const struct tensor_set *in, const struct tensor_set *want)
{
    const struct kcp_context *x = s->ranks ? &s->plan->ctx[s->call.r] : NULL;
    const struct tensor *t = tensor_find(field_in(f) ? in : want, f->name);
    const int bounds = !strcmp(f->shape, "NS+1"), chunks = !strcmp(f->shape, "NC");
    const int is_grid = x && (bounds || chunks);
    if (!is_grid && !t) return f->when == KCP_MAYBE ? KCP_OK : KCP_BAD;
    if (s->n == sizeof s->buffer / sizeof *s->buffer) return KCP_NO_MEMORY;
    struct buffer *o = &s->buffer[s->n++];
    *o = (struct buffer){ .field = f };
    if (is_grid) {
        const int *grid = !strcmp(f->name, "cu") ? x->cu : x->cn;
        return make_image(o, chunks ? x->sc : grid,
                          4 * (size_t)(bounds ? x->NS + 1 : x->NC));
    }
    return fill_array(s, o, t, in);
}

int rank_args_fill(struct rank_args *s, const struct kcp_stage *stage,
                   const struct tensor_set *in, const struct tensor_set *want)
{
    int status = KCP_OK;
    const struct kcp_field *f;
    s->args_bytes = stage->args + BEHIND_ARGS;
    for (int i = 0; (f = trial_field(stage, i)) && !status; i++)
        if (field_used(f, &s->call)) status = fill_buffer(s, f, in, want);
    return status;
}

/* ---- copies between images and arrays
 *
 * On the host, and with --exact, every array is a separate allocation, because memory
 * checkers check accesses per allocation. On a GPU all arrays of a rank are parts of
 * one allocation, the arena, with NaN between the arrays. Each copy waits for the GPU,
 * so one copy of the arena is faster than one copy per array. */
enum { GAP = 4096 };

/* Returns the offset of buffer i's first fence in the arena, or the arena's size if i
 * == s->n. */
static size_t arena_offset(const struct rank_args *s, int i)
{
    size_t at = GAP;
    for (int j = 0; j < i; j++)
        at += (s->buffer[j].bytes + 2 * FENCE + 255) / 256 * 256 + GAP;
    return at;
}

static int make_arrays(struct rank_args *s)
{
    s->args = calloc(1, s->args_bytes);
    if (!s->args) return KCP_NO_MEMORY;
    memcpy(s->args, &s->call, sizeof s->call);
    if (s->mem->is_far && FENCE) {
        s->arena_bytes = arena_offset(s, s->n);
        s->arena = s->mem->alloc(s->arena_bytes);
        if (!s->arena) return KCP_NO_MEMORY;
    }
    for (int i = 0; i < s->n; i++) {
        struct buffer *o = &s->buffer[i];
        o->base = s->arena ? s->arena + arena_offset(s, i)
                           : s->mem->alloc(o->bytes + 2 * FENCE);
        if (!o->base) return KCP_NO_MEMORY;
        void *p = (char *)o->base + FENCE;
        memcpy(s->args + o->field->at, &p, sizeof p);
    }
    return KCP_OK;
}

int rank_args_send(struct rank_args *s)
{
    int status = s->args ? KCP_OK : make_arrays(s);
    char *whole = s->arena ? malloc(s->arena_bytes) : NULL;
    if (s->arena && !whole) status = KCP_NO_MEMORY;
    if (whole) memset(whole, 0xff, s->arena_bytes);
    for (int i = 0; i < s->n && !status; i++) {
        const struct buffer *o = &s->buffer[i];
        const size_t all = o->bytes + 2 * FENCE;
        if (whole) memcpy(whole + arena_offset(s, i), o->image, all);
        else status = s->mem->copy(o->base, o->image, all);
    }
    if (whole && !status) status = s->mem->copy(s->arena, whole, s->arena_bytes);
    free(whole);
    return status;
}

/* Returns 1 if the arena is still NaN outside arrays and fences. */
static int gaps_hold(const struct rank_args *s, const char *whole, char *why, size_t n)
{
    for (int i = 0; i <= s->n; i++) {
        const size_t to = i < s->n ? arena_offset(s, i) : s->arena_bytes;
        size_t at = i ? arena_offset(s, i - 1) + s->buffer[i - 1].bytes + 2 * FENCE : 0;
        for (; at < to; at++) {
            if (whole[at] == (char)0xff) continue;
            const struct kcp_field *f = s->buffer[i ? i - 1 : 0].field;
            snprintf(why, n, "rank %d wrote far %s %s%s", s->call.r,
                     i ? "past" : "before", forward_prefix(f), f->name);
            return 0;
        }
    }
    return 1;
}

int rank_args_fetch(struct rank_args *s, char *why, size_t n)
{
    int status = KCP_OK;
    char *whole = s->arena ? malloc(s->arena_bytes) : NULL;
    if (s->arena && !whole) return KCP_NO_MEMORY;
    if (whole) status = s->mem->copy(whole, s->arena, s->arena_bytes);
    for (int i = 0; i < s->n && !status; i++) {
        const struct buffer *o = &s->buffer[i];
        const size_t all = o->bytes + 2 * FENCE;
        if (whole) memcpy(o->back, whole + arena_offset(s, i), all);
        else status = s->mem->copy(o->back, o->base, all);
    }
    if (!status && whole && !gaps_hold(s, whole, why, n)) status = KCP_BAD;
    free(whole);
    return status;
}

int rank_args_check(struct rank_args *s, char *why, size_t n)
{
    for (int i = 0; i < s->n; i++) {
        struct buffer *o = &s->buffer[i];
        char *now = o->back, *before = o->image;
        const size_t end = FENCE + o->bytes;
        const char *broken = NULL;
        if (field_in(o->field) && memcmp(now, before, end + FENCE))
            broken = "into input";
        if (memcmp(now + end, before + end, FENCE)) broken = "past";
        if (memcmp(now, before, FENCE)) broken = "before";
        if (broken) {
            snprintf(why, n, "rank %d wrote %s %s%s", s->call.r, broken,
                     forward_prefix(o->field), o->field->name);
            return KCP_BAD;
        }
        o->image = now;
        o->back = before;
    }
    return KCP_OK;
}

void rank_args_reset(struct rank_args *s)
{
    for (int i = 0; i < s->n; i++) {
        struct buffer *o = &s->buffer[i];
        if (o->want && !field_given(o->field, &s->call))
            memset(o->image + FENCE, 0xff, o->bytes);
    }
}

void rank_args_release(struct rank_args *s)
{
    for (int i = 0; i < s->n && !s->arena; i++)
        if (s->buffer[i].base) s->mem->free(s->buffer[i].base);
    if (s->arena) s->mem->free(s->arena);
    free(s->args);
    s->arena = s->args = NULL;
}

void rank_args_free(struct rank_args *s)
{
    rank_args_release(s);
    for (int i = 0; i < s->n; i++) {
        image_free(s->buffer[i].image);
        image_free(s->buffer[i].back);
        free(s->buffer[i].want);
    }
    *s = (struct rank_args){ 0 };
}
