/* trial.c -- one variant on one case: fenced, poisoned arrays in, judged slices out.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/self.c.
 * Next: core.c.
 *
 * A rank gets arrays of its own: its shard of every token tensor, and of the states
 * only the rows it owns (the others are NaN, so that reading them shows). Stages of one
 * rank are tried the same way with R = 1.
 */
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int first_letter(const struct kcp_field *f, const char *letter)
{
    const size_t n = strlen(letter);
    return !strncmp(f->shape, letter, n) && (f->shape[n] == ' ' || !f->shape[n]);
}

static int owns(const struct seat *s, const struct kcp_field *f, int n)
{
    const int at_end = !strcmp(f->name, "ht") || !strcmp(f->name, "dht") ||
                       !strcmp(f->name, "ot") || !strcmp(f->name, "dot");
    return (at_end ? s->plan->ht_rank : s->plan->h0_rank)[n] == s->call.r;
}

/* The rows of the whole tensor that this rank holds, as doubles it may change. */
static double *rows_of(const struct seat *s, const struct kcp_field *f,
                       const struct tensor *t, int64_t dim[4], int64_t *first)
{
    int64_t row = 1, n = 1;
    shape_dims(&s->call, f->shape, dim);
    for (int d = 0; d < t->nd; d++) n *= dim[d];
    for (int d = 1; d < t->nd; d++) row *= dim[d];
    double *x = malloc(8 * (size_t)n + 8);
    *first = s->ranks && first_letter(f, "T") ? s->plan->ctx[s->call.r].begin : 0;
    if (!x) return NULL;
    memcpy(x, (double *)t->p + *first * row, 8 * (size_t)n);
    if (s->ranks && first_letter(f, "N"))
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

static int place(struct seat *s, struct slot *o, const void *bytes, size_t n)
{
    char *image = malloc(n + 2 * FENCE);
    o->bytes = n;
    o->base = s->mem->alloc(n + 2 * FENCE);
    if (!image || !o->base) { free(image); return KCP_NO_MEMORY; }
    memset(image, 0xa5, n + 2 * FENCE);
    if (bytes) memcpy(image + FENCE, bytes, n);
    else memset(image + FENCE, 0xff, n);                       /* poison: NaN */
    int status = s->mem->copy(o->base, image, n + 2 * FENCE);
    o->image = image;
    void *p = (char *)o->base + FENCE;
    memcpy(s->args + o->field->at, &p, sizeof p);
    return status;
}

static int fill_slot(struct seat *s, const struct kcp_field *f, const struct bag *in,
                     const struct bag *want)
{
    struct slot *o = &s->slot[s->n];
    const struct kcp_context *x = s->ranks ? &s->plan->ctx[s->call.r] : NULL;
    const struct tensor *t = bag_find(field_in(f) ? in : want, f->name);
    const size_t width = store_bytes(f->store, s->storage);
    *o = (struct slot){ .field = f };
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
            const int cut = x && first_letter(f, "T");
            return place(s, o, (char *)t->p + (cut ? x->begin * row * (int)width : 0),
                         (size_t)n * width);
        }
        double *rows = rows_of(s, f, t, o->dim, &o->first);
        if (!rows) return KCP_NO_MEMORY;
        for (int d = 0; d < t->nd; d++) n *= o->dim[d];
        o->nd = t->nd, o->n = n;
        if (s->poison && !strcmp(f->name, "maps"))
            poison_maps(&s->call, bag_find(in, "range"), t, rows);
        void *coded = malloc((size_t)n * width + 8);
        if (coded && field_in(f)) encode(coded, rows, n, width);
        int status = coded ? place(s, o, field_in(f) ? coded : NULL, (size_t)n * width)
                           : KCP_NO_MEMORY;
        free(coded);
        if (field_in(f)) free(rows);
        else o->want = rows;
        return status;
    }
    const int *grid = !strcmp(f->name, "cu") ? x->cu
                    : !strcmp(f->name, "cn") ? x->cn : x->sc;
    return place(s, o, grid, 4 * (size_t)(f->shape[1] == 'S' ? x->NS + 1 : x->NC));
}

int seat_fill(struct seat *s, const struct kcp_stage *stage, const struct bag *in,
              const struct bag *want)
{
    s->args = calloc(1, stage->args + 64);
    if (!s->args) return KCP_NO_MEMORY;
    memcpy(s->args, &s->call, sizeof s->call);
    int status = KCP_OK;
    for (int i = 0; i < stage->nfields && !status; i++)
        if (field_used(&stage->fields[i], &s->call))
            status = fill_slot(s, &stage->fields[i], in, want);
    return status;
}

void seat_free(struct seat *s)
{
    for (int i = 0; i < s->n; i++) {
        if (s->slot[i].base) s->mem->free(s->slot[i].base);
        free(s->slot[i].image);
        free(s->slot[i].want);
    }
    free(s->args);
    *s = (struct seat){ 0 };
}

/* Copy all of it back. Outputs replace their image; inputs and fences must match. */
int seat_collect(struct seat *s, char *why, size_t size)
{
    for (int i = 0; i < s->n; i++) {
        struct slot *o = &s->slot[i];
        const size_t all = o->bytes + 2 * FENCE;
        char *now = malloc(all);
        if (!now || s->mem->copy(now, o->base, all))
            return free(now), KCP_NO_MEMORY;
        const int in = field_in(o->field);
        const char *broken = memcmp(now, o->image, FENCE) ? "before"
            : memcmp(now + FENCE + o->bytes, o->image + FENCE + o->bytes, FENCE)
            ? "past"
            : in && memcmp(now, o->image, all) ? "into input" : NULL;
        if (broken) {
            snprintf(why, size, "rank %d wrote %s %s", s->call.r, broken,
                     o->field->name);
            free(now);
            return KCP_BAD;
        }
        free(o->image);
        o->image = now;
    }
    return KCP_OK;
}

/* Forward first, when backward is tried: the same name's forward, or the reference's. A
 * mutant and its twin follow the reference's: theirs leave no block. */
static int run_forward(struct seat *s, const struct kcp_variant *v)
{
    const struct kcp_stage *back = stage_find("13_backward");
    const struct kcp_stage *fw = stage_find("08_forward");
    const struct kcp_variant *same;
    struct kcp_forward a;
    if (!fw) return KCP_NA;
    memset(&a, 0, sizeof a);
    memcpy(&a, s->args, sizeof(struct kcp_call));
    for (int i = 0; i < fw->nfields; i++)
        for (int j = 0; j < back->nfields; j++)
            if (!strcmp(fw->fields[i].name, back->fields[j].name))
                memcpy((char *)&a + fw->fields[i].at, s->args + back->fields[j].at, 8);
    const size_t width = s->storage == KCP_F64 ? 8 : s->storage == KCP_F32 ? 4 : 2;
    const size_t no = (size_t)a.T * a.HV * a.V * width + 8;
    const size_t nh = (size_t)a.N * a.HV * a.K * a.V * (width == 8 ? 8 : 4) + 8;
    s->saved_bytes = kcp_saved_bytes(&a);
    s->saved = a.saved = room_unwritten(s->mem, s->saved_bytes + 8);
    a.saved_bytes = s->saved_bytes;
    a.o = room_unwritten(s->mem, no), a.ht = room_unwritten(s->mem, nh);
    int status = !a.saved || !a.o || !a.ht ? KCP_NO_MEMORY : KCP_OK;
    const int wrong = is_mutant(v) || !strcmp(v->name, "twin");
    const int found = wrong ? 0 : kcp_variants("08_forward", v->name, &same, 1);
    if (!status && found && same->work && (a.work_bytes = same->work(&a)))
        a.work = room_unwritten(s->mem, a.work_bytes);
    if (!status && !found && v->where == KCP_DEVICE) status = KCP_NA;
    if (!status) status = found ? same->run(&a) : ref_forward(&a);
    if (s->mem->sync()) status = KCP_CUDA;
    s->mem->free(a.o), s->mem->free(a.ht);
    if (a.work) s->mem->free(a.work);
    return status;
}

static int rank_body(struct kcp_comm *comm, void *arg)
{
    struct table *t = arg;
    struct seat *s = &t->seat[comm ? comm->r : 0];
    struct kcp_call *c = (struct kcp_call *)s->args;
    void *work = NULL;
    int status = KCP_OK;
    c->comm = comm;
    c->ops = s->mem->mapops;
    c->plan = s->plan;
    if (s->ranks && !strncmp(t->stage->name, "13", 2)) {
        status = run_forward(s, t->variant);
        ((struct kcp_backward *)s->args)->saved = s->saved;
        ((struct kcp_backward *)s->args)->saved_bytes = s->saved_bytes;
    }
    if (comm) comm->traffic = (struct kcp_traffic){ 0 };
    if (!status && t->variant->work && (c->work_bytes = t->variant->work(s->args)))
        if (!(c->work = work = room_unwritten(s->mem, c->work_bytes)))
            status = KCP_NO_MEMORY;
    if (!status) status = t->variant->run(s->args);
    /* Over NCCL a stream that ran to its end may have been aborted. */
    if (comm && !status && ranks_apart()) {
        s->traffic = comm->traffic;
        status = comm->barrier(comm, NULL);
    }
    if (s->mem->sync() && !status) status = KCP_CUDA;
    if (comm && !ranks_apart()) s->traffic = comm->traffic;
    if (work) s->mem->free(work);
    if (s->saved) s->mem->free(s->saved);
    s->status = status;
    /* "Not my shape" must not look like a lost rank. */
    return status == KCP_NA ? KCP_OK : status;
}

int table_run(struct table *t, char *why, size_t n)
{
    int status = t->stage->ranks
        ? ranks_run(t->mem, t->R, rank_body, t, why, n) : rank_body(NULL, t);
    for (int r = 0; r < t->R && !status; r++) status = t->seat[r].status;
    return status;
}
