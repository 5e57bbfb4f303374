/* setup.c -- makes a rank's plan, index arrays and tensors, and the args of a stage.
 * Book: chapter 18. */
#include "bench.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* Copies this rank's grid (cu, cn, sc and other index arrays) to the GPU. */
static int fill_grid(struct runner *x)
{
    const struct kcp_context *at = &x->plan->ctx[x->call.r];
    struct kcp_call *c = &x->call;
    c->T = at->end - at->begin;
    c->NS = at->NS;
    c->NC = at->NC;
    int *want = malloc(sizeof(int) * ((size_t)c->NS + 1));
    if (!want) return KCP_NO_MEMORY;
    for (int i = 0; i < c->NS; i++) want[i] = KCP_WANT_H | KCP_WANT_M;
    const int range[] = { 0, c->NS };
    const struct { const char *name; const void *from; size_t bytes; } rows[] = {
        { "cu", at->cu, 4 * ((size_t)c->NS + 1) },
        { "cn", at->cn, 4 * ((size_t)c->NS + 1) },
        { "sc", at->sc, 4 * (size_t)c->NC }, { "want", want, 4 * (size_t)c->NS },
        { "range", range, 8 }, { "cu_seqlens", x->b->cu, 8 * ((size_t)c->N + 1) },
    };
    int e = KCP_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !e; i++) {
        void *p = device_add(&x->tensors, rows[i].name, rows[i].bytes);
        if (!p || cudaMemcpy(p, rows[i].from, rows[i].bytes, cudaMemcpyHostToDevice))
            e = KCP_NO_MEMORY;
    }
    free(want);
    return e;
}

/* With --canonical, or if --segments exceeds the number of ranks, the plan cuts
 * sequences every L tokens. Each rank then scans several segments concurrently. */
static int make_plan(struct runner *x, int R, const char **why)
{
    const struct bench *b = x->b;
    const struct kcp_call *all = &b->call;
    struct kcp_owners owners = { 0 };
    const int64_t L = all->NS > R ? (all->T + all->NS - 1) / all->NS : b->canonical;
    if (b->spread == KCP_CONTIGUOUS)
        return kcp_plan_make(&x->plan, all->N, b->cu, R, NULL, L, all->C, 4, why);
    int e = kcp_owners_make(&owners, (enum kcp_spread)b->spread, all->N, b->cu, R, 0,
                            why);
    if (!e) e = kcp_plan_owned(&x->plan, all->N, b->cu, R, &owners, L, all->C, 4, why);
    kcp_owners_free(&owners);
    return e;
}

int runner_open(struct runner *x, struct kcp_comm *comm)
{
    const struct kcp_call *all = &x->b->call;
    const char *why = "";
    struct CUstream_st *stream;
    x->call = *all;
    x->call.R = comm->R;
    x->call.r = comm->r;
    x->call.comm = comm;
    x->call.ops = device_memory()->mapops;
    int e = make_plan(x, comm->R, &why);
    if (e) fprintf(stderr, "kcp-bench: the plan was not made: %s\n", why);
    x->call.plan = x->plan;
    if (!e && cudaStreamCreate(&stream)) e = KCP_CUDA;
    if (!e) x->call.stream = stream;
    if (!e) e = fill_grid(x);
    return e ? e : fill_inputs(x);
}

void runner_close(struct runner *x)
{
    judge_timed_end(x);
    if (x->call.stream) cudaStreamDestroy(x->call.stream);
    kcp_plan_free(x->plan);
    device_free(&x->tensors);
    x->plan = NULL;
    x->call.stream = NULL;
}

/* The stage's inputs must exist. Allocates its outputs. */
char *args_of(struct runner *x, const struct kcp_stage *st, const struct kcp_call *c,
              enum kcp_storage as)
{
    struct tensor_set *s = &x->tensors;
    char *args = calloc(1, st->args);
    if (args) memcpy(args, c, sizeof *c);
    for (int i = 0; args && i < st->nfields; i++) {
        const struct kcp_field *f = &st->fields[i];
        if (!field_used(f, c) || is_left_out(f)) continue;
        const char *shared_as = f->name;
        if (!strcmp(f->name, "maps")) shared_as = "map";
        if (!strcmp(f->name, "h_kept_in")) shared_as = "h_in";
        void *p = device_find(s, shared_as);
        const size_t bytes = (size_t)kcp_field_numbers(c, f)
                             * kcp_bytes_of(c, f->store, as);
        if (!p) shared_as = f->name;
        if (!field_in(f)) p = device_add(s, shared_as, bytes);
        const char *wrong = p ? NULL : field_in(f) ? "is missing" : "was not allocated";
        if (p && device_bytes(s, shared_as) < bytes) wrong = "is too small";
        if (wrong && (p || f->when != KCP_MAYBE)) {
            fprintf(stderr, "kcp-bench: %s: %s %s\n", st->name, shared_as, wrong);
            free(args);
            return NULL;
        }
        memcpy(args + f->at, &p, sizeof p);
    }
    return args;
}
