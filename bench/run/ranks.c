/* ranks.c -- fills each rank's args from the table of fields, and starts the ranks.
 * Book: chapters 06, 08. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* In files of the layer, a gate of GDN has shape [T,HV], without axis KG. */
const char *field_shape(const struct run *x, const struct kcp_field *f)
{
    if (x->o.layout == KCP_VK && strcmp(f->shape, "N HV K V") == 0) return "N HV V K";
    const int per_head = kcp_models[x->o.model].gates == KCP_HEAD;
    if (per_head && strcmp(f->shape, "T HV KG") == 0) return "T HV";
    if (per_head && strcmp(f->shape, "HV KG") == 0) return "HV";
    return f->shape;
}

/* Returns the address of rank r's part of array `a`: its first row in an array of
 * tokens, or its copy in a sum over ranks. All ranks share an array of states,
 * because each rank uses only the states that it owns. */
static void *shard(const struct run *x, const struct tensor *a, int r)
{
    int64_t at, n;
    array_part(x, a, r, &at, &n);
    return (double *)a->p + at;        /* cu_seqlens, of int64_t, is not divided */
}

/* Returns the plan's array `name`, or NULL if the plan has no such array. */
static void *of_plan(const struct kcp_plan *p, const struct kcp_context *ctx,
                     const char *name)
{
    if (strcmp(name, "cu_seqlens") == 0) return p->cu_seqlens;
    if (strcmp(name, "cu") == 0) return ctx->cu;
    if (strcmp(name, "cn") == 0) return ctx->cn;
    return strcmp(name, "sc") == 0 ? ctx->sc : NULL;
}

void rank_args(struct run *x, const struct kcp_stage *s, struct kcp_comm *comm,
               enum kcp_pass pass, void *args)
{
    struct kcp_call c = x->call;
    const struct kcp_context *ctx = &x->plan->ctx[comm->r];
    c.pass = pass;
    c.plan = x->plan;
    c.comm = comm;
    c.r = comm->r;
    c.R = comm->R;
    c.T = ctx->end - ctx->begin;
    c.NS = ctx->NS;
    c.NC = ctx->NC;
    memset(args, 0, s->args);
    memcpy(args, &c, sizeof c);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        const struct tensor *a = tensor_find(&x->a, f->name);
        void *p = a ? shard(x, a, comm->r) : NULL;
        if (!a) p = of_plan(x->plan, ctx, f->name);
        memcpy((char *)args + f->at, &p, sizeof p);
    }
}

/* Starts the ranks as threads or, under a launcher, runs this process's rank. The first
 * failure ends all ranks, and the error names the rank that failed. */
static int start_ranks(struct run *x, int R, int (*body)(struct kcp_comm *, void *))
{
    char why[400] = "a rank failed";
    if (x->mpi.R > 1) return processes_run(x, body);
    const int status = x->gpu ? device_ranks(x, R, body, why, sizeof why)
                              : kcp_threads_run(R, body, x, why, sizeof why);
    if (!status) return 0;
    const int is_bad = status == KCP_NA || status == KCP_BAD;
    return run_error(x, is_bad ? RUN_BAD : RUN_FAILED, "ranks", "%s", why);
}

/* Permutes arrays with a row per token from token order, as in files, to shard order
 * (rank 0's rows, then rank 1's rows, etc.) or, if back = 1, to token order. */
static int permute(struct run *x, int back)
{
    const struct kcp_plan *p = x->plan;
    for (int i = 0; i < x->a.n; i++) {
        struct tensor *a = &x->a.t[i];
        if (!array_split(a) || a->copies > 1 || a->dim[0] < 1 || !a->p) continue;
        const size_t bytes = sizeof(double) * (size_t)a->n;
        const size_t row = bytes / (size_t)a->dim[0];
        char *whole = malloc(bytes + 1);
        if (!whole) return run_error(x, RUN_FAILED, a->file, "out of memory");
        memcpy(whole, a->p, bytes);
        for (int r = 0; r < p->R; r++) {
            const size_t at = row * (size_t)p->ctx[r].begin;
            if (back) kcp_plan_give(p, r, row, whole + at, a->p);
            else kcp_plan_take(p, r, row, whole, (char *)a->p + at);
        }
        free(whole);
    }
    return 0;
}

/* If a rank owns several ranges of tokens, the run needs shard order. */
int ranks_run(struct run *x, int R, int (*body)(struct kcp_comm *, void *))
{
    const int permuted = x->plan->scattered && R > 1;
    if (permuted && permute(x, 0) != 0) return -1;
    const int status = start_ranks(x, R, body);
    if (status == 0 && permuted) return permute(x, 1);
    return status;
}

int stage_call(struct run *x, const struct kcp_stage *s, void *args,
               struct kcp_comm *comm)
{
    return x->gpu ? device_call(x, s, args, comm) : s->ref(args);
}
