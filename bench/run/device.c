/* device.c -- kcp-run --device gpu: copies arrays to the GPU, calls the layer, and
 * copies results back.
 * Book: chapter 08.
 * The layer (ref/layer.h) chooses the kernel by ref/core/paths.def. Every call copies
 * all arrays, and the printed time includes the copies. kcp-bench times kernels. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

void *saved_alloc(const struct run *x, size_t bytes)
{
    return x->gpu ? x->gpu->alloc(bytes) : malloc(bytes);
}

void saved_free(const struct run *x, void *saved)
{
    if (!x->gpu) free(saved);
    else if (saved) x->gpu->free(saved);
}

int device_open(struct run *x)
{
    const char *variant = x->o.variant;
    char why[400];
    if (!x->o.device) {
        kcp_layer_ref(&x->layer);
        return 0;
    }
    const int status = kcp_layer_gpu(&x->layer, x->o.dtype == 1 ? KCP_F32 : KCP_BF16,
                                     variant, why, sizeof why);
    if (status == KCP_NA)
        return run_error(x, RUN_BAD, "--device", "this kcp-run was built without CUDA");
    if (status) return run_error(x, RUN_BAD, "--variant", "%s", why);
    x->gpu = device_memory();
    return x->gpu ? 0 : run_error(x, RUN_BAD, "--device", "no GPU found");
}

int device_ranks(struct run *x, int R, int (*body)(struct kcp_comm *, void *),
                 char *why, size_t n)
{
    const int enough = R > 1 && !x->gpu->gpu(R - 1);
    x->gpu->gpu(0);
    const int status = enough ? kcp_nccl_threads_run(R, body, x, why, n) : KCP_NA;
    return status == KCP_NA ? x->gpu->threads_run(R, body, x, why, n) : status;
}

/* ---- one call */

/* An array of an args struct: n numbers of `width` bytes each, at GPU address `at`. */
struct device_array {
    const struct kcp_field *f;
    double *host;
    void *at;
    int64_t n;
    size_t width;
    enum kcp_type type;
};

/* Returns 1 if this rank, not another, writes the state of sequence n in field f. */
static int owns(const struct kcp_call *c, const struct kcp_field *f, int64_t n)
{
    const int ends = !strcmp(f->name, "ht") || !strcmp(f->name, "ot") ||
                     !strcmp(f->name, "xt");
    return (ends ? c->plan->ht_rank : c->plan->h0_rank)[n] == c->r;
}

static int upload(const struct run *run, const struct kcp_call *c,
                  struct device_array *x)
{
    const int whole = x->f->store == KCP_I32 || x->f->store == KCP_I64;
    x->width = kcp_bytes_of(c, x->f->store, run->layer.storage);
    x->type = kcp_type_of(c, x->f->store, run->layer.storage);
    x->n = kcp_field_numbers(c, x->f);
    const size_t bytes = (size_t)x->n * x->width;
    char *coded = malloc(bytes + 8);
    x->at = run->gpu->alloc(bytes + 8);
    int status = x->n >= 0 && coded && x->at ? KCP_OK : KCP_NO_MEMORY;
    if (!status && !field_in(x->f)) memset(coded, 0xff, bytes);
    else if (!status && whole) memcpy(coded, x->host, bytes);
    else if (!status) encode(coded, x->host, x->n, x->type);
    if (!status) status = run->gpu->copy(x->at, coded, bytes);
    free(coded);
    return status;
}

static int download(const struct run *run, const struct kcp_call *c,
                    const struct device_array *x)
{
    const size_t bytes = (size_t)x->n * x->width;
    const int states = c->plan && !strncmp(x->f->shape, "N ", 2);
    const int64_t rows = states ? c->N : 1, row = rows ? x->n / rows : 0;
    char *coded = malloc(bytes + 8);
    int status = coded ? run->gpu->copy(coded, x->at, bytes) : KCP_NO_MEMORY;
    for (int64_t i = 0; !status && i < rows; i++)
        if (!states || owns(c, x->f, i))
            decode(x->host + i * row, coded + (size_t)(i * row) * x->width, row,
                   x->type);
    free(coded);
    return status;
}

/* Each of the next two functions calls the layer's function for stage 08 (fact
 * KCP_SAVES), 13 (KCP_LOADS) or 14. */

static size_t work_bytes(const struct kcp_layer *layer, int fact, const void *args)
{
    switch (fact) {
    case KCP_SAVES: return kcp_layer_forward_work(layer, args);
    case KCP_LOADS: return kcp_layer_backward_work(layer, args);
    default: return kcp_layer_conv_work(layer, args);
    }
}

static int call_layer(const struct kcp_layer *layer, int fact, void *args)
{
    switch (fact) {
    case KCP_SAVES: return kcp_layer_forward(layer, args);
    case KCP_LOADS: return kcp_layer_backward(layer, args);
    default: return kcp_layer_conv(layer, args);
    }
}

static int run_kernel(struct run *run, const struct kcp_stage *s, void *args,
                      struct kcp_comm *comm)
{
    const int fact = s->facts & (KCP_SAVES | KCP_LOADS);
    struct kcp_call *c = args;
    c->work_bytes = work_bytes(&run->layer, fact, args);
    c->work = c->work_bytes ? run->gpu->alloc(c->work_bytes) : NULL;
    int status = c->work || !c->work_bytes ? call_layer(&run->layer, fact, args)
                                           : KCP_NO_MEMORY;
    if (!status) status = comm->barrier(comm, c->stream);
    if (run->gpu->sync() && !status) status = KCP_CUDA;
    saved_free(run, c->work);
    if (!status && fact == KCP_SAVES)
        __atomic_store_n(&run->ran, kcp_layer_path(&run->layer, args, 0),
                         __ATOMIC_RELAXED);
    return status;
}

int device_call(struct run *run, const struct kcp_stage *s, void *args,
                struct kcp_comm *comm)
{
    char *on = malloc(s->args);
    struct device_array x[MOST];
    int n = 0, status = on ? KCP_OK : KCP_NO_MEMORY;
    struct kcp_call *c = (struct kcp_call *)on;
    if (on) {
        memcpy(on, args, s->args);
        c->ops = run->gpu->mapops;
    }
    for (int i = 0; i < s->nfields && !status; i++) {
        const struct kcp_field *f = &s->fields[i];
        double *host;
        memcpy(&host, on + f->at, sizeof host);
        if (!host || !field_used(f, c)) continue;
        x[n] = (struct device_array){ .f = f, .host = host };
        status = upload(run, c, &x[n]);
        memcpy(on + f->at, &x[n++].at, sizeof host);
    }
    if (!status) status = run_kernel(run, s, on, comm);
    for (int i = 0; i < n; i++) {
        if (!status && !field_in(x[i].f)) status = download(run, c, &x[i]);
        saved_free(run, x[i].at);
    }
    free(on);
    return status;
}
