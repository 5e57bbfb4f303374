/* device.c -- kcp-run --device gpu: arrays to the GPU, a kernel, results back.
 *
 * Book: chapter 08.  Checked by: tests/cli/run_device.sh, against --device cpu.
 * Next: write.c.
 * The table of paths names the kernel, for stages that it has. 08 and 13 are chosen as
 * a pair. Every call copies all its arrays, so times are kcp-bench's task.
 */
#include "device.h"
#include "core/bounded.h"
#include "core/paths.h"
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

struct device {
    const struct memory *mem;
    enum kcp_storage storage;
    const char *variant;               /* --variant; NULL: the newest */
    const struct kcp_stage *stage;     /* --stage; NULL: the layer */
    struct kcp_layer layer;
    const char *ran;                   /* variant that ran; NULL: none yet */
};

enum { MOST = 64 };

/* 1: forward, 2: backward, which share the saved block; 0: another stage. */
static int pair_of(const struct kcp_stage *s)
{
    if (strncmp(s->name, "08", 2) == 0)
        return 1;
    return strncmp(s->name, "13", 2) == 0 ? 2 : 0;
}

/* The variants of a stage that can run here, newest first. */
static int candidates(const struct device *d, const struct kcp_stage *s,
                      const struct kcp_variant *out[MOST])
{
    const struct kcp_variant *v[256];
    const int pair = pair_of(s);
    int n = 0;
    if (pair) {
        out[0] = pair == 1 ? d->layer.forward : d->layer.backward;
        return 1;
    }
    const char *name = d->stage == s ? d->variant : NULL;
    for (int i = kcp_variants(s->name, name, v, 256) - 1; i >= 0 && n < MOST; i--)
        if (v[i]->where == KCP_DEVICE && v[i]->storage == d->storage)
            out[n++] = v[i];
    return n;
}

/* why <- the list of variants, because the stage has none of this name. */
static void list(struct device *d, const char *found, char *why, size_t n)
{
    const struct kcp_variant *v[MOST];
    d->variant = NULL;
    const int count = candidates(d, d->stage, v);
    size_t at = (size_t)snprintf(why, n, "found '%.60s', expected one of", found);
    for (int i = 0; i < count && at < n; i++)
        at += (size_t)snprintf(why + at, n - at, " %s", v[i]->name);
    if (!count)
        snprintf(why, n, "%s has no GPU kernel in this storage", d->stage->name);
}

struct device *device_open(enum kcp_storage storage, const char *variant,
                           const struct kcp_stage *stage, const char **what, char *why,
                           size_t n)
{
    const struct kcp_variant *v[MOST];
    struct device *d = calloc(1, sizeof *d);
    *what = "--device";
    snprintf(why, n, "out of memory");
    if (!d)
        return NULL;
    *d = (struct device){ .mem = device_memory(), .storage = storage,
                          .variant = variant, .stage = stage };
    const int pair = !stage || pair_of(stage);
    const int status = kcp_layer_gpu(&d->layer, storage, pair ? variant : NULL, why, n);
    int bad = 1;
    if (status == KCP_NA)
        snprintf(why, n, "this kcp-run was built without CUDA");
    else if (status || (!pair && !candidates(d, stage, v))) {
        *what = variant ? "--variant" : "--stage";
        if (!status)
            list(d, variant ? variant : "none", why, n);
    } else if (!d->mem)
        snprintf(why, n, "no GPU found");
    else
        bad = 0;
    if (!bad)
        return d;
    free(d);
    return NULL;
}

void device_close(struct device *d) { free(d); }

int device_ranks(const struct device *d, int R, int (*body)(struct kcp_comm *, void *),
                 void *arg, char *why, size_t n)
{
    const int enough = R > 1 && !d->mem->gpu(R - 1);
    d->mem->gpu(0);
    const int status = enough ? kcp_nccl_threads_run(R, body, arg, why, n) : KCP_NA;
    return status == KCP_NA ? d->mem->threads_run(R, body, arg, why, n) : status;
}

size_t device_saved(const struct device *d, const struct kcp_call *c)
{
    return kcp_layer_saved(&d->layer, c);
}

void *device_room(size_t bytes) { return device_memory()->alloc(bytes); }
void device_release(void *p) { if (p) device_memory()->free(p); }

const char *device_name(const struct device *d)
{
    const struct kcp_variant *v[MOST];
    const int n = d->stage ? candidates(d, d->stage, v) : 0;
    const char *ran = __atomic_load_n(&d->ran, __ATOMIC_RELAXED);
    if (ran)
        return ran;
    if (!d->stage)
        return d->layer.forward->name;
    return n ? v[0]->name : d->stage->name;
}

/* ---- one call */

/* One array of the args: n numbers of width bytes; at: its address on the GPU. */
struct ship {
    const struct kcp_field *f;
    double *host;
    void *at;
    int64_t n, row;
    size_t width;
};

/* Does this rank write row n of a state by global sequence? */
static int owns(const struct kcp_call *c, const struct kcp_field *f, int64_t n)
{
    const int ends = !strcmp(f->name, "ht") || !strcmp(f->name, "ot") ||
                     !strcmp(f->name, "xt");
    return (ends ? c->plan->ht_rank : c->plan->h0_rank)[n] == c->r;
}

static int field_up(const struct device *d, const struct kcp_call *c, struct ship *x)
{
    const int whole = x->f->store == KCP_I32 || x->f->store == KCP_I64;
    int64_t dim[4] = { 0 };
    const int nd = shape_dims(c, x->f->shape, dim);
    x->width = store_bytes(x->f->store, d->storage);
    x->n = x->row = 1;
    for (int i = 0; i < nd; i++) {
        x->n *= dim[i];
        x->row *= i ? dim[i] : 1;
    }
    const size_t bytes = (size_t)x->n * x->width;
    char *coded = malloc(bytes + 8);
    x->at = d->mem->alloc(bytes + 8);
    int status = coded && x->at ? KCP_OK : KCP_NO_MEMORY;
    if (!status && !field_in(x->f))
        memset(coded, 0xff, bytes);
    else if (!status && whole)
        memcpy(coded, x->host, bytes);
    else if (!status)
        encode(coded, x->host, x->n, x->width);
    if (!status)
        status = d->mem->copy(x->at, coded, bytes);
    free(coded);
    return status;
}

static int field_down(const struct device *d, const struct kcp_call *c,
                      const struct ship *x)
{
    const size_t bytes = (size_t)x->n * x->width;
    const int states = c->plan && !strncmp(x->f->shape, "N ", 2);
    char *coded = malloc(bytes + 8);
    int status = coded ? d->mem->copy(coded, x->at, bytes) : KCP_NO_MEMORY;
    for (int64_t e = 0; !status && e < x->n; e += states ? x->row : x->n)
        if (!states || owns(c, x->f, e / x->row))
            decode(x->host + e, coded + (size_t)e * x->width, states ? x->row : x->n,
                   x->width);
    free(coded);
    return status;
}

/* The row of the table of paths that takes the call; NULL: none. The layer chooses 08
 * and 13 as a pair. */
static const struct kcp_path *row_of(const struct device *d, const struct kcp_stage *s,
                                     const void *args)
{
    const int pair = pair_of(s);
    struct kcp_device here;
    const struct kcp_ask q = { .stage = s->name, .storage = d->storage, .call = args,
                               .args = args, .device = &here };
    if (!pair)
        return kcp_device_here(&here) ? NULL : kcp_path_find(&q, NULL, NULL, 0);
    const char *name = kcp_layer_path(&d->layer, args, pair == 2);
    for (int i = 0; name && i < kcp_npaths; i++)
        if (!strcmp(kcp_paths[i].name, name))
            return &kcp_paths[i];
    return NULL;
}

/* The kernels to try: that of the table's row, or all candidates if the table does not
 * have the stage or --variant names one. */
static int kernels_of(const struct device *d, const struct kcp_stage *s,
                      const void *args, const struct kcp_variant *out[MOST])
{
    const int n = candidates(d, s, out);
    const int named = d->variant && (d->stage == s || !d->stage);
    if (named || !n || !kcp_path_knows(s->name, out[0]->name))
        return n;
    const struct kcp_path *p = row_of(d, s, args);
    return p ? kcp_variants(s->name, p->kernel, out, 1) : 0;
}

static int one_run(const struct device *d, const struct kcp_stage *s,
                   const struct kcp_variant *v, void *args, struct kcp_comm *comm)
{
    struct kcp_call *c = args;
    c->work_bytes = v->work ? v->work(args) : 0;
    c->work = c->work_bytes ? d->mem->alloc(c->work_bytes) : NULL;
    int status = c->work || !c->work_bytes ? kcp_run_bounded(v, args) : KCP_NO_MEMORY;
    if (!status && s->ranks)
        status = comm->barrier(comm, c->stream);
    if (d->mem->sync() && !status)
        status = KCP_CUDA;
    device_release(c->work);
    return status;
}

static int kernel_run(struct device *d, const struct kcp_stage *s, void *args,
                      struct kcp_comm *comm)
{
    const struct kcp_variant *v[MOST], *any[MOST];
    char takes[200];
    const int n = kernels_of(d, s, args, v), known = candidates(d, s, any);
    int status = KCP_NA;
    for (int i = 0; i < n && status == KCP_NA; i++) {
        status = one_run(d, s, v[i], args, comm);
        if (!status && (d->stage ? s == d->stage : pair_of(s) == 1))
            __atomic_store_n(&d->ran, v[i]->name, __ATOMIC_RELAXED);
    }
    if (status == KCP_NA) {
        snprintf(takes, sizeof takes, "no variant of %s takes this shape; %s", s->name,
                 known ? any[0]->shapes : "use --device cpu");
        if (kcp_why()[0])
            snprintf(takes, sizeof takes, "%s", kcp_why());
        comm->fail(comm, KCP_NA, takes);
    }
    return status;
}

int device_go(struct device *d, const struct kcp_stage *s, void *args,
              struct kcp_comm *comm)
{
    char *on = malloc(s->args);
    struct ship x[MOST];
    int n = 0, status = on ? KCP_OK : KCP_NO_MEMORY;
    struct kcp_call *c = (struct kcp_call *)on;
    if (on) {
        memcpy(on, args, s->args);
        c->ops = d->mem->mapops;
    }
    for (int i = 0; i < s->nfields && !status; i++) {
        const struct kcp_field *f = &s->fields[i];
        double *host;
        memcpy(&host, on + f->at, sizeof host);
        if (!host || !field_used(f, c))
            continue;
        x[n] = (struct ship){ .f = f, .host = host };
        status = field_up(d, c, &x[n]);
        memcpy(on + f->at, &x[n++].at, sizeof host);
    }
    if (!status)
        status = kernel_run(d, s, on, comm);
    for (int i = 0; i < n; i++) {
        if (!status && !field_in(x[i].f))
            status = field_down(d, c, &x[i]);
        device_release(x[i].at);
    }
    free(on);
    return status;
}
