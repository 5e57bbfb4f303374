/* stage.c -- runs the stage that --stage or --model selects: 15 for spike, and 16 for
 * models of kind KCP_FAMILY.
 * Book: chapters 00, 15, 16. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

int relative_read(struct run *x)
{
    struct options *o = &x->o;
    const int spike = o->model == MODEL_SPIKE;
    x->model = o->model;
    if (spike) o->model = KCP_KDA;
    if (o->stage && spike && kcp_stage_find(o->stage) != kcp_stage_find("15"))
        return run_error(x, RUN_BAD, "--model", "spike needs stage 15, found %.40s",
                         o->stage);
    x->relative = !o->stage && (spike || kcp_models[o->model].kind == KCP_FAMILY);
    if (x->relative) o->stage = spike ? "15" : "16";
    return 0;
}

/* Without cu.npy, makes index arrays cu, cn, sc for one rank with all sequences. */
static int make_grid(struct run *x)
{
    if (plan_make(x) != 0) return -1;
    const struct kcp_context *ctx = &x->plan->ctx[0];
    struct kcp_call *z = &x->size;
    if (x->stage->ranks) return 0;
    if ((z->NS >= 0 && z->NS != ctx->NS) ||
        (z->NC >= 0 && z->NC != ctx->NC))
        return run_error(x, RUN_BAD, "cu_seqlens.npy", "found NS = %d, NC = %d; other "
                         "arrays differ in NS or NC: add cu.npy, cn.npy and sc.npy",
                         ctx->NS, ctx->NC);
    z->NS = ctx->NS;
    z->NC = ctx->NC;
    return call_make(x);
}

static int load_all(struct run *x)
{
    const struct kcp_stage *s = x->stage;
    int needs_grid = s->ranks, inputs = 0, there = 1;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        needs_grid |= field_is_grid(f) || strcmp(f->name, "cu_seqlens") == 0;
        if (f->io == KCP_BIN && f->when == KCP_ALWAYS) {
            inputs = 1;
            there &= array_exists(x, field_file(f));
        }
    }
    x->from = x->o.backward ? KCP_BACKWARD : KCP_FORWARD;
    x->to = x->o.backward || (inputs && there) ? KCP_BACKWARD : KCP_FORWARD;
    x->both = x->to > x->from;
    if (x->relative && !x->both && array_exists(x, "dht"))
        x->note = "dht.npy is ignored, because do.npy is missing";
    if (x->o.chunk) x->size.C = x->o.chunk;
    if (needs_grid && plan_read(x) != 0) return -1;
    if (inputs_load(x, s) != 0) return -1;
    const int given = tensor_find(&x->a, "cu") != NULL;
    if (given && x->size.C < 0) x->size.C = 64;
    return needs_grid && !given ? make_grid(x) : call_make(x);
}

/* Runs stage 08 on stage 13's inputs, because stage 13 reads what stage 08 saves. */
static int before_13(struct run *x, struct kcp_comm *comm, struct kcp_backward *b)
{
    struct kcp_forward f;
    rank_args(x, kcp_stage_find("08"), comm, KCP_FORWARD, &f);
    const size_t state = (size_t)f.HV * (size_t)f.K * (size_t)f.V;
    f.saved_bytes = b->saved_bytes =
        kcp_layer_saved(&x->layer, (const struct kcp_call *)&f);
    b->saved = f.saved = saved_alloc(x, f.saved_bytes);
    f.o = malloc(sizeof(double) * ((size_t)(f.T * f.HV * f.V) + 1));
    f.ht = malloc(sizeof(double) * ((size_t)f.N * state + 1));
    const int status = !f.saved || !f.o || !f.ht ? KCP_NO_MEMORY
                     : stage_call(x, kcp_stage_find("08"), &f, comm);
    free(f.o);
    free(f.ht);
    return status;
}

/* Allocates what forward saves for backward. For stage 13, also runs stage 08. */
static int keep(struct run *x, struct kcp_comm *comm, union pass_args *a, void **kept)
{
    if (x->stage->facts & KCP_LOADS && !*kept) {
        const int status = before_13(x, comm, &a->backward);
        *kept = (void *)a->backward.saved;
        return status;
    }
    if (!(x->stage->facts & KCP_KEEPS) || !x->both) return KCP_OK;
    size_t *bytes = &x->report[comm->r].saved;
    *bytes = kcp_layer_family_kept(&x->layer, &a->call);
    if (!*kept) *kept = saved_alloc(x, *bytes + 8);
    a->family.h_kept = *kept;
    return *kept ? KCP_OK : KCP_NO_MEMORY;
}

static int stage_rank(struct kcp_comm *comm, void *arg)
{
    struct run *x = arg;
    struct rank_report *report = &x->report[comm->r];
    union pass_args *a = calloc(1, sizeof *a + x->stage->args);
    void *kept = NULL;
    int status = a ? KCP_OK : KCP_NO_MEMORY;
    for (int pass = x->from; pass <= x->to && !status; pass++) {
        comm->traffic = (struct kcp_traffic){ 0, 0, 0 };
        rank_args(x, x->stage, comm, (enum kcp_pass)pass, a);
        status = keep(x, comm, a, &kept);
        const double start = seconds_now();
        status = status ? status : stage_call(x, x->stage, a, comm);
        report->sent[pass] = comm->traffic;
        report->seconds[pass] = seconds_now() - start;
    }
    saved_free(x, kept);
    free(a);
    return rank_status(comm, status);
}

int stage_run(struct run *x)
{
    x->stage = kcp_stage_find(x->o.stage);
    if (!x->stage)
        return run_error(x, RUN_BAD, "--stage", "found '%.40s', expected NN or "
                         "NN_name from kcp-run --help", x->o.stage);
    const char *many = x->o.ranks > 1 ? "--ranks" : NULL;
    if (x->o.cuts || x->o.spread) many = x->o.cuts ? "--cuts" : "--layout";
    if (!x->stage->ranks && many)
        return run_error(x, RUN_BAD, many, "stage %s runs only on one rank",
                         x->stage->name);
    if (x->o.conv) return run_error(x, RUN_BAD, "--conv", "not possible with --stage");
    if (load_all(x) != 0 || outputs_make(x, x->stage) != 0 || sums_check(x) != 0)
        return -1;
    if (!x->report) x->report = calloc(1, sizeof *x->report);
    if (!x->report) return run_error(x, RUN_FAILED, "--stage", "out of memory");
    if (ranks_run(x, x->stage->ranks ? x->plan->R : 1, stage_rank) != 0) return -1;
    return x->relative && x->mpi.r == 0 ? outs_check(x) : 0;
}
