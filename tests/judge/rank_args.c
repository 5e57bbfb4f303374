/* rank_args.c -- one rank of a trial: fenced, poisoned buffers in, what it wrote out.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self.c.
 * Next: trial.c.
 *
 * A rank gets arrays of its own: its shard of every token tensor, and of the states
 * only the rows it owns (the others are NaN, so that reading them shows). Stages of one
 * rank are tried the same way with R = 1.
 */
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int row_a(const struct kcp_field *f, const char *letter)
{
    const size_t n = strlen(letter);
    return !strncmp(f->shape, letter, n) && (f->shape[n] == ' ' || !f->shape[n]);
}

static int owns(const struct rank_args *s, const struct kcp_field *f, int n)
{
    const int at_end = !strcmp(f->name, "ht") || !strcmp(f->name, "dht") ||
                       !strcmp(f->name, "ot") || !strcmp(f->name, "dot") ||
                       !strcmp(f->name, "xt") || !strcmp(f->name, "dxt");
    return (at_end ? s->plan->ht_rank : s->plan->h0_rank)[n] == s->call.r;
}

/* The rows of the whole tensor that this rank holds, as doubles it may change. */
static double *rows_of(const struct rank_args *s, const struct kcp_field *f,
                       const struct tensor *t, int64_t dim[4], int64_t *first)
{
    int64_t row = 1, n = 1;
    shape_dims(&s->call, f->shape, dim);
    for (int d = 0; d < t->nd; d++) n *= dim[d];
    for (int d = 1; d < t->nd; d++) row *= dim[d];
    double *x = malloc(8 * (size_t)n + 8);
    *first = s->ranks && row_a(f, "T") ? s->plan->ctx[s->call.r].begin : 0;
    if (!x) return NULL;
    if (s->ranks && row_a(f, "T"))
        kcp_plan_take(s->plan, s->call.r, 8 * (size_t)row, t->p, x);
    else
        memcpy(x, t->p, 8 * (size_t)n);
    if (s->ranks && row_a(f, "N"))
        for (int i = 0; i < s->call.N; i++)
            if (!owns(s, f, i)) memset(x + i * row, 0xff, 8 * (size_t)row);
    return x;
}

/* The fold starts from h of its first map; M of that one may never have been written,
 * nor any map outside the range. */
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

static int place(struct rank_args *s, struct buffer *o, const void *bytes, size_t n)
{
    char *image = malloc(n + 2 * FENCE);
    o->bytes = n;
    o->image = image;
    if (!image) return KCP_NO_MEMORY;
    memset(image, 0xff, n + 2 * FENCE);
    if (bytes) memcpy(image + FENCE, bytes, n);                 /* else NaN too */
    return KCP_OK;
}

/* ---- images to arrays and back
 *
 * On the host, and for tools that follow each allocation, every array has one of its
 * own. On a GPU all arrays of a rank lie in one, with more NaN between them: a copy
 * waits for the GPU, which others use too, so one goes and one comes back. */
enum { GAP = 4096 };

int arrays_apart;

static int has_arena(const struct rank_args *s)
{
    return s->mem->is_far && FENCE && !arrays_apart;
}

/* Where buffer i begins, its fence first; i == s->n: how long the arena is. */
static size_t arena_offset(const struct rank_args *s, int i)
{
    size_t at = GAP;
    for (int j = 0; j < i; j++)
        at += (s->buffer[j].bytes + 2 * FENCE + 255) / 256 * 256 + GAP;
    return at;
}

static int send_arena(struct rank_args *s)
{
    char *whole = malloc(s->arena_bytes);
    if (!whole) return KCP_NO_MEMORY;
    memset(whole, 0xff, s->arena_bytes);
    for (int i = 0; i < s->n; i++)
        memcpy(whole + arena_offset(s, i), s->buffer[i].image,
               s->buffer[i].bytes + 2 * FENCE);
    const int status = s->mem->copy(s->arena, whole, s->arena_bytes);
    free(whole);
    return status;
}

static int send_all(struct rank_args *s)
{
    int status = KCP_OK;
    if (has_arena(s)) {
        s->arena_bytes = arena_offset(s, s->n);
        s->arena = s->mem->alloc(s->arena_bytes);
        if (!s->arena) return KCP_NO_MEMORY;
    }
    for (int i = 0; i < s->n && !status; i++) {
        struct buffer *o = &s->buffer[i];
        const size_t all = o->bytes + 2 * FENCE;
        o->base = s->arena ? s->arena + arena_offset(s, i) : s->mem->alloc(all);
        if (!o->base) return KCP_NO_MEMORY;
        if (!s->arena) status = s->mem->copy(o->base, o->image, all);
        void *p = (char *)o->base + FENCE;
        memcpy(s->args + o->field->at, &p, sizeof p);
    }
    return s->arena ? send_arena(s) : status;
}

int rank_args_again(struct rank_args *s)
{
    int status = KCP_OK;
    for (int i = 0; i < s->n && !status; i++) {
        struct buffer *o = &s->buffer[i];
        if (!o->want || field_given(o->field, &s->call)) continue;
        memset(o->image + FENCE, 0xff, o->bytes);
        if (!s->arena) status = s->mem->copy(o->base, o->image, o->bytes + 2 * FENCE);
    }
    return s->arena ? send_arena(s) : status;
}

/* What lies between two arrays, beyond their fences, is as it was? Else who wrote. */
static int gaps_hold(const struct rank_args *s, const char *whole, char *why, size_t n)
{
    for (int i = 0; i <= s->n; i++) {
        const size_t to = i < s->n ? arena_offset(s, i) : s->arena_bytes;
        size_t at = i ? arena_offset(s, i - 1) + s->buffer[i - 1].bytes + 2 * FENCE : 0;
        for (; at < to; at++) {
            if (whole[at] == (char)0xff) continue;
            const struct kcp_field *f = s->buffer[i ? i - 1 : 0].field;
            snprintf(why, n, "rank %d wrote far %s %s%s", s->call.r,
                     i ? "past" : "before", whose_field(f), f->name);
            return 0;
        }
    }
    return 1;
}

static int fill_buffer(struct rank_args *s, const struct kcp_field *f,
                       const struct tensor_set *in,
                     const struct tensor_set *want)
{
    struct buffer *o = &s->buffer[s->n];
    const struct kcp_context *x = s->ranks ? &s->plan->ctx[s->call.r] : NULL;
    const struct tensor *t = tensor_find(field_in(f) ? in : want, f->name);
    const size_t width = store_bytes(f->store, s->storage);
    *o = (struct buffer){ .field = f };
    if (x && !strcmp(f->shape, "NS+1"))
        s->n++;
    else if (x && !strcmp(f->shape, "NC"))
        s->n++;
    else if (!t)
        return f->when == KCP_MAYBE ? KCP_OK : KCP_BAD;
    else {
        s->n++;
        int64_t n = 1;
        if (f->store == KCP_I32 || f->store == KCP_I64) {
            shape_dims(&s->call, f->shape, o->dim);
            for (int d = 0; d < t->nd; d++) n *= o->dim[d];
            const int64_t row = o->dim[0] ? n / o->dim[0] : 0;
            if (!x || !row_a(f, "T")) return place(s, o, t->p, (size_t)n * width);
            void *rows = malloc((size_t)n * width + 8);
            if (!rows) return KCP_NO_MEMORY;
            kcp_plan_take(s->plan, s->call.r, (size_t)row * width, t->p, rows);
            const int placed = place(s, o, rows, (size_t)n * width);
            free(rows);
            return placed;
        }
        double *rows = rows_of(s, f, t, o->dim, &o->first);
        if (!rows) return KCP_NO_MEMORY;
        for (int d = 0; d < t->nd; d++) n *= o->dim[d];
        o->nd = t->nd;
        o->n = n;
        if (s->poison && !strcmp(f->name, "maps"))
            poison_maps(&s->call, tensor_find(in, "range"), t, rows);
        void *coded = malloc((size_t)n * width + 8);
        const int given = field_in(f) || field_given(f, &s->call);
        if (coded && given) encode(coded, rows, n, width);
        int status = KCP_NO_MEMORY;
        if (coded) status = place(s, o, given ? coded : NULL, (size_t)n * width);
        free(coded);
        if (field_in(f)) free(rows);
        else o->want = rows;
        return status;
    }
    const int *grid = x->sc;
    if (!strcmp(f->name, "cu")) grid = x->cu;
    if (!strcmp(f->name, "cn")) grid = x->cn;
    return place(s, o, grid, 4 * (size_t)(f->shape[1] == 'S' ? x->NS + 1 : x->NC));
}

int rank_args_fill(struct rank_args *s, const struct kcp_stage *stage,
                   const struct tensor_set *in,
              const struct tensor_set *want)
{
    s->args = calloc(1, stage->args + BEHIND_ARGS);
    if (!s->args) return KCP_NO_MEMORY;
    memcpy(s->args, &s->call, sizeof s->call);
    int status = KCP_OK;
    const struct kcp_field *f;
    for (int i = 0; (f = trial_field(stage, i)) && !status; i++)
        if (field_used(f, &s->call)) status = fill_buffer(s, f, in, want);
    return status ? status : send_all(s);
}

void rank_args_free(struct rank_args *s)
{
    for (int i = 0; i < s->n; i++) {
        if (s->buffer[i].base && !s->arena) s->mem->free(s->buffer[i].base);
        free(s->buffer[i].image);
        free(s->buffer[i].want);
    }
    if (s->arena) s->mem->free(s->arena);
    free(s->args);
    *s = (struct rank_args){ 0 };
}

int rank_args_keep(struct rank_args *s, struct buffer *o, char *now, char *why,
                   size_t n)
{
    const size_t all = o->bytes + 2 * FENCE;
    const int in = field_in(o->field);
    const char *broken = in && memcmp(now, o->image, all) ? "into input" : NULL;
    if (memcmp(now + FENCE + o->bytes, o->image + FENCE + o->bytes, FENCE))
        broken = "past";
    if (memcmp(now, o->image, FENCE)) broken = "before";
    free(broken ? now : o->image);
    if (!broken) o->image = now;
    else snprintf(why, n, "rank %d wrote %s %s%s", s->call.r, broken,
                  whose_field(o->field), o->field->name);
    return broken ? KCP_BAD : KCP_OK;
}

/* Copy all of it back. Outputs replace their image; inputs and fences must match. */
int rank_args_collect(struct rank_args *s, char *why, size_t size)
{
    int status = KCP_OK;
    char *whole = s->arena ? malloc(s->arena_bytes) : NULL;
    if (s->arena && !whole) return KCP_NO_MEMORY;
    if (whole) status = s->mem->copy(whole, s->arena, s->arena_bytes);
    for (int i = 0; i < s->n && !status; i++) {
        struct buffer *o = &s->buffer[i];
        const size_t all = o->bytes + 2 * FENCE;
        char *now = malloc(all);
        if (now && whole) memcpy(now, whole + arena_offset(s, i), all);
        else if (!now || s->mem->copy(now, o->base, all)) {
            free(now);
            status = KCP_NO_MEMORY;
            break;
        }
        status = rank_args_keep(s, o, now, why, size);
    }
    if (!status && whole && !gaps_hold(s, whole, why, size)) status = KCP_BAD;
    free(whole);
    return status;
}
