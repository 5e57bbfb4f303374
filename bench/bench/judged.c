/* judged.c -- judges a timed variant on a few heads of the timed call.
 * Book: chapter 18.
 *
 * Heads are independent, so it is enough to judge a few value heads (choose_parts). The
 * heads' rounded inputs come from the GPU. The reference runs on the host in double, on
 * as many ranks as the kernel. Each part (heads or channels) has one thread per rank.
 * Tolerances are those of kcp-check. */
#include "bench.h"
#include "tests/judge/trial.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MOST = 4, RANKS_MOST = 8, CHANNELS = 128 };

/* One rank's inputs and reference results, for some heads or convolution channels. */
struct part {
    struct kcp_call call;
    struct tensor_set set;
    int64_t from, n;                   /* n query heads or channels from `from` on */
    int status;
};

/* The judged parts of a stage on one rank, in one pass. */
static struct side {
    const struct kcp_stage *stage;
    struct part part[PARTS_MOST];
    int n, changed;
    struct worst worst;
} sides[RANKS_MOST][2];

static struct side *side_of(const struct runner *x, int pass)
{
    return &sides[x->world->r % RANKS_MOST][pass];
}

static int is_conv(const struct kcp_stage *st) { return st->facts & KCP_CONVOLVES; }

/* A field's shape as [outer][heads][inner]; heads = 0 if no axis counts heads. */
struct axes { int64_t outer, heads, inner, per; };

static struct axes axes_of(const struct kcp_stage *st, const struct kcp_field *f,
                           const struct kcp_call *c)
{
    struct axes a = { 1, 0, 1, 1 };
    int64_t dim[4];
    const int nd = shape_dims(c, f->shape, dim);
    int axis = head_axis(f);
    if (is_conv(st) && strchr(f->shape, 'D')) axis = f->shape[0] == 'D' ? 0 : nd - 1;
    for (int i = 0; i < nd; i++)
        if (i == axis) a.heads = dim[i];
        else if (axis < 0 || i < axis) a.outer *= dim[i];
        else a.inner *= dim[i];
    if (strstr(f->shape, "HV")) a.per = c->HV / c->H;
    return a;
}

static void *pointer_of(const char *args, const struct kcp_field *f)
{
    void *p;
    memcpy(&p, args + f->at, sizeof p);
    return p;
}

/* Returns the elements of field f that belong to part t, copied from the GPU to an
 * array of doubles or integers. The caller frees it. Returns NULL on failure. */
static void *copy_from_gpu(const struct kcp_stage *st, const struct kcp_field *f,
                           const char *args, const struct part *t,
                           enum kcp_storage as)
{
    const struct kcp_call *c = (const struct kcp_call *)(const void *)args;
    const struct axes a = axes_of(st, f, c);
    const size_t w = kcp_bytes_of(c, f->store, as), row = (size_t)a.inner * w;
    const size_t n = a.heads ? (size_t)(t->n * a.per) : 1;
    const size_t width = n * row, pitch = a.heads ? (size_t)a.heads * row : row;
    const char *from = pointer_of(args, f);
    char *raw = malloc(width * (size_t)a.outer + 8);
    if (a.heads) from += (size_t)(t->from * a.per) * row;
    if (raw && width && a.outer && cudaMemcpy2D(raw, width, from, pitch, width,
                                                (size_t)a.outer,
                                                cudaMemcpyDeviceToHost)) {
        free(raw);
        return NULL;
    }
    if (!raw || f->store == KCP_I32 || f->store == KCP_I64) return raw;
    const int64_t all = (int64_t)n * a.inner * a.outer;
    double *x = malloc(8 * (size_t)all + 8);
    if (x) decode(x, raw, all, kcp_type_of(c, f->store, as));
    free(raw);
    return x;
}

/* Returns the call for the reference: a copy of c with only the heads or channels of
 * part t. */
static struct kcp_call call_of_part(const struct kcp_stage *st,
                                    const struct kcp_call *c, const struct part *t)
{
    struct kcp_call mine = *c;
    mine.stream = NULL;
    mine.work = NULL;
    mine.work_bytes = 0;
    mine.ops = &ref_mapops;
    mine.comm = NULL;
    mine.form = KCP_ALL_GATHER;
    mine.reuse_M = 0;
    if (is_conv(st)) mine.D = (int)t->n;
    else {
        mine.H = (int)t->n;
        mine.HV = (int)(t->n * (c->HV / c->H));
    }
    return mine;
}

static int fetch(struct part *t, const struct kcp_stage *st, const char *args,
                 enum kcp_storage as)
{
    const struct kcp_call *c = (const struct kcp_call *)(const void *)args;
    t->call = call_of_part(st, c, t);
    for (int i = 0; i < st->nfields; i++) {
        const struct kcp_field *f = &st->fields[i];
        if (!field_used(f, c) || !field_in(f) || !pointer_of(args, f)) continue;
        void *x = copy_from_gpu(st, f, args, t, as);
        if (!x) return KCP_NO_MEMORY;
        struct tensor *to = tensor_add(&t->set, f->name, f->shape, f->store, &t->call);
        free(to->p);
        to->p = x;
    }
    return KCP_OK;
}

/* Selects evenly spaced query heads, from the first to the last, with at most four
 * value heads in total, or the first query head if it has more than two value heads.
 * For a convolution, selects up to four ranges of channels. */
static void choose_parts(struct side *s, const struct kcp_stage *st,
                         const struct kcp_call *c)
{
    const int conv = is_conv(st);
    const int64_t all = conv ? c->D : c->H, group = conv ? 1 : c->HV / c->H;
    int64_t each = conv ? CHANNELS : 1, n = conv ? PARTS_MOST : PARTS_MOST / group;
    if (each > all) each = all;
    if (n < 1) n = 1;
    if (n > all / each) n = all / each;
    s->n = (int)n;
    for (int64_t i = 0; i < n; i++) {
        s->part[i] = (struct part){ .n = each };
        s->part[i].from = n > 1 ? i * (all - each) / (n - 1) : 0;
    }
}

static void free_side(struct side *s)
{
    for (int i = 0; i < s->n; i++) tensor_set_free(&s->part[i].set);
    *s = (struct side){ 0 };
}

/* Copies this rank's inputs from the GPU. One copy per stage is enough, because all
 * variants and exchange algorithms of the stage read these inputs. */
static int take_inputs(struct side *s, const struct kcp_stage *st, const char *args,
                       enum kcp_storage as)
{
    int e = KCP_OK;
    s->changed = s->stage != st;
    if (!s->changed) return KCP_OK;
    free_side(s);
    *s = (struct side){ .stage = st, .changed = 1 };
    choose_parts(s, st, (const struct kcp_call *)(const void *)args);
    for (int i = 0; i < s->n && !e; i++) e = fetch(&s->part[i], st, args, as);
    return e;
}

/* ---- the reference of all parts, concurrently */
struct work { struct side *first; const struct kcp_stage *stage; int at, R; };

/* Sets pointers in args to the part's tensors. Allocates missing output tensors. */
static void fill_args(struct part *t, const struct kcp_stage *st, void *args)
{
    memcpy(args, &t->call, sizeof t->call);
    for (int i = 0; i < st->nfields; i++) {
        const struct kcp_field *f = &st->fields[i];
        struct tensor *x = tensor_find(&t->set, f->name);
        if (!x && !field_in(f))
            x = tensor_add(&t->set, f->name, f->shape, f->store, &t->call);
        if (x) memcpy((char *)args + f->at, &x->p, sizeof x->p);
    }
}

/* Runs forward, which writes the block `saved`, then backward, which reads `saved`. */
static int backward_of(struct part *t, struct kcp_comm *comm,
                       const struct kcp_stage *st)
{
    struct kcp_forward f = { 0 };
    struct kcp_backward b = { 0 };
    t->call.comm = comm;
    fill_args(t, stage_find("08_forward"), &f);
    fill_args(t, st, &b);
    b.saved_bytes = f.saved_bytes = kcp_saved_bytes(&f);
    b.saved = f.saved = malloc(f.saved_bytes + 8);
    int e = f.saved ? ref_forward(&f) : KCP_NO_MEMORY;
    if (!e) e = ref_backward(&b);
    free(f.saved);
    return e;
}

static int body_of_part(struct kcp_comm *comm, void *arg)
{
    const struct work *w = arg;
    struct part *t = &w->first[2 * comm->r].part[w->at];
    if (w->stage->facts & KCP_LOADS) t->status = backward_of(t, comm, w->stage);
    else {
        t->call.comm = w->stage->ranks ? comm : NULL;
        t->status = reference_run(&t->set, w->stage, &t->call);
    }
    t->call.comm = NULL;
    return t->status;
}

/* The thread of part comm->r, which starts a thread per rank. */
static int run_part(struct kcp_comm *comm, void *arg)
{
    struct work w = *(const struct work *)arg;
    int *status = &w.first->part[comm->r].status;
    char why[160];
    w.at = comm->r;
    const int e = kcp_threads_run(w.R, body_of_part, &w, why, sizeof why);
    if (!*status) *status = e;
    return *status;
}

static int references(struct side *first, const struct kcp_stage *st, int R)
{
    struct work w = { .first = first, .stage = st, .R = R };
    char why[160];
    int changed = 0;
    for (int r = 0; r < R; r++) changed |= first[2 * r].changed;
    return changed ? kcp_threads_run(first->n, run_part, &w, why, sizeof why) : KCP_OK;
}

/* ---- compares the kernel's results with the reference */
static int compare_part(struct worst *w, const struct part *t,
                        const struct kcp_stage *st, const char *args,
                        enum kcp_storage as)
{
    const struct kcp_call *c = (const struct kcp_call *)(const void *)args;
    const struct natural_sizes sizes = natural_sizes(&t->set, &t->call);
    for (int i = 0; i < st->nfields; i++) {
        const struct kcp_field *f = &st->fields[i];
        const struct tensor *want = tensor_find(&t->set, f->name);
        if (!field_used(f, c) || field_in(f) || !want || !pointer_of(args, f)) continue;
        double *got = copy_from_gpu(st, f, args, t, as);
        if (!got) return KCP_NO_MEMORY;
        struct slice x = { .stage = st, .field = f, .call = &t->call, .got = got,
                           .want = want->p, .nd = want->nd, .rank = c->r,
                           .all = want->p, .all_rows = want->dim[0],
                           .sizes = sizes, .judged = as };
        memcpy(x.dim, want->dim, sizeof x.dim);
        const struct worst before = *w;
        check_slice(&x, w);
        if (memcmp(&before, w, sizeof before))
            w->head += (int)(t->from * axes_of(st, f, c).per);
        free(got);
    }
    return KCP_OK;
}

/* Fills the outputs with NaN and runs the variant again. If the environment variable
 * KCP_BENCH_WRONG is set, overwrites the first output's start with wrong numbers. */
static int run_once_more(const struct kcp_stage *st, const struct kcp_variant *v,
                         char *args)
{
    const struct kcp_call *c = (const struct kcp_call *)(const void *)args;
    void *first = NULL;
    size_t first_bytes = 0;
    for (int i = 0; i < st->nfields; i++) {
        const struct kcp_field *f = &st->fields[i];
        void *p = pointer_of(args, f);
        if (!field_used(f, c) || field_in(f) || !p) continue;
        const size_t bytes = (size_t)kcp_field_numbers(c, f)
                             * kcp_bytes_of(c, f->store, v->storage);
        if (cudaMemset(p, 0xff, bytes)) return KCP_CUDA;
        if (!first) first = p;
        if (first == p) first_bytes = bytes;
    }
    if (cudaDeviceSynchronize()) return KCP_CUDA;
    const int e = v->run(args);
    if (e || cudaDeviceSynchronize()) return e ? e : KCP_CUDA;
    const int wrong = getenv("KCP_BENCH_WRONG") != NULL;
    return wrong && cudaMemset(first, 0x41, first_bytes < 4096 ? first_bytes : 4096)
        ? KCP_CUDA : KCP_OK;
}

static int wait_for_all(struct runner *x)
{
    return x->world->R > 1 ? x->world->barrier(x->world, x->call.stream) : KCP_OK;
}

int judge_timed(struct runner *x, const struct kcp_stage *st,
                const struct kcp_variant *v, char *args, struct judged *out)
{
    const struct kcp_call *c = (const struct kcp_call *)(void *)args;
    const int R = st->ranks ? x->call.R : 1, pass = c->pass == KCP_BACKWARD;
    struct side *mine = side_of(x, pass);
    struct side *first = mine - 2 * (st->ranks ? x->call.r : 0);
    *out = (struct judged){ .outcome = NA };
    if (x->world->R > RANKS_MOST || ranks_mine() >= 0) return KCP_OK;
    int e = run_once_more(st, v, args);
    if (!e) e = take_inputs(mine, st, args, v->storage);
    int other = wait_for_all(x);
    if (!e && !other && first == mine) e = references(first, st, R);
    if (!other) other = wait_for_all(x);
    mine->worst = (struct worst){ 0 };
    if (!e) e = other;
    for (int i = 0; i < mine->n && !e; i++) {
        e = mine->part[i].status;
        if (!e) e = compare_part(&mine->worst, &mine->part[i], st, args, v->storage);
    }
    if (wait_for_all(x) && !e) e = KCP_COMM;
    for (int r = 0; r < x->world->R && !e; r++) {
        const struct worst *w = &sides[r][pass].worst;
        if (w->tol > 0 && (!(out->worst.tol > 0) ||
                           !(w->err / w->tol <= out->worst.err / out->worst.tol)))
            out->worst = *w;
    }
    const struct worst *w = &out->worst;
    out->outcome = PASS;
    if (w->err > 0.9 * w->tol) out->outcome = MARGINAL;
    if (!(w->tol > 0) || is_wrong(w)) out->outcome = FAIL;
    if (wait_for_all(x) && !e) e = KCP_COMM;
    return e;
}

void judge_timed_end(const struct runner *x)
{
    for (int pass = 0; pass < 2; pass++) free_side(side_of(x, pass));
}
