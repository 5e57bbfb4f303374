/* device.c -- kcp-run --device gpu: copies arrays to the GPU, calls the layer, and
 * copies results back.
 *
 * Book: chapter 08.  Checked by: tests/cli/run_device.sh, against --device cpu.
 * Next: write.c.
 * The layer (ref/layer.h) chooses the kernel by the table of paths. Every call copies
 * all arrays, so only kcp-bench reports useful times. */
#include "run.h"
#include "base/tensor_set.h"
#include "cuda/host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
    const struct memory *mem;
    const struct kcp_stage *stage;     /* --stage; NULL: the layer */
    struct kcp_layer layer;
    const char *ran;                   /* the path or variant that ran, or NULL */
};

enum { MOST = 64 };

struct device *device_open(enum kcp_storage storage, const char *variant,
                           const struct kcp_stage *stage, const char **what, char *why,
                           size_t n)
{
    const int number = stage ? atoi(stage->name) : 8;
    struct device *d = calloc(1, sizeof *d);
    *what = "--device";
    snprintf(why, n, "out of memory");
    if (!d)
        return NULL;
    *d = (struct device){ .mem = device_memory(), .stage = stage };
    const int status = kcp_layer_gpu(&d->layer, storage, variant, why, n);
    int bad = 1;
    if (status == KCP_NA)
        snprintf(why, n, "this kcp-run was built without CUDA");
    else if (status)
        *what = "--variant";
    else if (number != 8 && (number < 13 || number > 16))
        snprintf(why, n, "%s runs on the CPU only; kcp-check judges its kernels",
                 stage->name);
    else if (variant && number > 13)
        snprintf(why, n, "--variant is for the layer and stages 08 and 13");
    else if (!d->mem)
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

void *device_alloc(size_t bytes) { return device_memory()->alloc(bytes); }
void device_release(void *p) { if (p) device_memory()->free(p); }

const char *device_name(const struct device *d)
{
    const char *ran = __atomic_load_n(&d->ran, __ATOMIC_RELAXED);
    return ran ? ran : d->layer.forward->name;
}

/* ---- one call */

/* An array of an args struct: n numbers of `width` bytes each, at GPU address `at`. */
struct device_array {
    const struct kcp_field *f;
    double *host;
    void *at;
    int64_t n, row;
    size_t width;
};

/* Returns 1 if this rank writes the state of sequence n. */
static int owns(const struct kcp_call *c, const struct kcp_field *f, int64_t n)
{
    const int ends = !strcmp(f->name, "ht") || !strcmp(f->name, "ot") ||
                     !strcmp(f->name, "xt");
    return (ends ? c->plan->ht_rank : c->plan->h0_rank)[n] == c->r;
}

static int upload(const struct device *d, const struct kcp_call *c,
                  struct device_array *x)
{
    const int whole = x->f->store == KCP_I32 || x->f->store == KCP_I64;
    int64_t dim[4] = { 0 };
    const int nd = shape_dims(c, x->f->shape, dim);
    x->width = store_bytes(x->f->store, d->layer.storage);
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

static int download(const struct device *d, const struct kcp_call *c,
                    const struct device_array *x)
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

/* Call the layer's function for a stage. */
static size_t work_bytes(const struct kcp_layer *layer, int number, const void *args)
{
    switch (number) {
    case 8: return kcp_layer_forward_work(layer, args);
    case 13: return kcp_layer_backward_work(layer, args);
    case 14: return kcp_layer_conv_work(layer, args);
    case 15: return kcp_layer_scan_work(layer, args);
    default: return kcp_layer_family_work(layer, args);
    }
}

static int call_layer(const struct kcp_layer *layer, int number, void *args)
{
    switch (number) {
    case 8: return kcp_layer_forward(layer, args);
    case 13: return kcp_layer_backward(layer, args);
    case 14: return kcp_layer_conv(layer, args);
    case 15: return kcp_layer_scan(layer, args);
    default: return kcp_layer_family(layer, args);
    }
}

static const char *name_of(const struct kcp_layer *layer, int number, const void *args)
{
    switch (number) {
    case 8: return kcp_layer_path(layer, args, 0);
    case 13: return kcp_layer_path(layer, args, 1);
    case 14: return layer->conv->name;
    case 15: return layer->scan->name;
    default: return layer->family->name;
    }
}

static int run_kernel(struct device *d, const struct kcp_stage *s, void *args,
                      struct kcp_comm *comm)
{
    const int number = atoi(s->name);
    struct kcp_call *c = args;
    c->work_bytes = work_bytes(&d->layer, number, args);
    c->work = c->work_bytes ? d->mem->alloc(c->work_bytes) : NULL;
    int status = c->work || !c->work_bytes ? call_layer(&d->layer, number, args)
                                           : KCP_NO_MEMORY;
    if (!status)
        status = comm->barrier(comm, c->stream);
    if (d->mem->sync() && !status)
        status = KCP_CUDA;
    device_release(c->work);
    if (!status && (d->stage ? s == d->stage : number == 8))
        __atomic_store_n(&d->ran, name_of(&d->layer, number, args), __ATOMIC_RELAXED);
    return status;
}

int device_call(struct device *d, const struct kcp_stage *s, void *args,
              struct kcp_comm *comm)
{
    char *on = malloc(s->args);
    struct device_array x[MOST];
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
        x[n] = (struct device_array){ .f = f, .host = host };
        status = upload(d, c, &x[n]);
        memcpy(on + f->at, &x[n++].at, sizeof host);
    }
    if (!status)
        status = run_kernel(d, s, on, comm);
    for (int i = 0; i < n; i++) {
        if (!status && !field_in(x[i].f))
            status = download(d, c, &x[i]);
        device_release(x[i].at);
    }
    free(on);
    return status;
}
