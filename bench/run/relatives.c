/* relatives.c -- DPLR, GDN-2, GLA and Spike-KDA as kcp-run's main job.
 *
 * Book: chapters 15, 16.  Checked by: tests/cli/run_relatives.sh.  Next: stage.c.
 * Loading and results are the stage's, 16 or 15; here both passes run on every rank,
 * forward's initial states are kept for backward, and the summary has its numbers.
 */
#include "run.h"
#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --model of a relative without --stage: its stage, and no option that is KDA's. */
int relative_read(struct run *x)
{
    struct options *o = &x->o;
    const int spike = o->model == MODEL_SPIKE;
    x->model = o->model;
    if (spike)
        o->model = KCP_KDA;
    if (o->stage && spike && stage_of(o->stage) != stage_of("15"))
        return run_error(x, RUN_BAD, "--model", "found spike with --stage %.40s, "
                         "expected --stage 15 or none", o->stage);
    if (o->stage || (o->model < KCP_DPLR && !spike))
        return 0;
    const struct { int wrong; const char *option; } rows[] = {
        { o->gate != KCP_GATE_RAW, "--gate" }, { o->beta != KCP_BETA_RAW, "--beta" },
        { o->l2norm, "--l2norm" }, { o->reuse_M, "--reuse-m" },
        { o->save != KCP_RECOMPUTE, "--save" }, { o->conv != NULL, "--conv" },
        { !isnan(o->lower_bound), "--lower-bound" }, { o->act, "--act" },
        { o->shift, "--shift" }, { o->backward, "--backward" },
        { spike && !isnan(o->scale), "--scale" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].wrong)
            return run_error(x, RUN_BAD, rows[i].option, "found with a model that has "
                             "none, expected with kda or gdn");
    x->relative = 1;
    o->stage = spike ? "15" : "16";
    return 0;
}

/* Of 16's a, b and omega and their gradients: has the model it? All have the rest. */
int relative_has(const struct run *x, const char *field)
{
    const char *name = field + (*field == 'd' && field[1]);
    if (!strcmp(name, "a"))
        return x->model == KCP_DPLR;
    if (!strcmp(name, "b"))
        return x->model == KCP_DPLR || x->model == KCP_GDN2;
    return strcmp(name, "omega") != 0 || x->model == KCP_GDN2;
}

/* Fields that may be NULL by the table and not in this model. */
int relative_needs(const struct run *x, const char *field)
{
    const int gate = !strcmp(field, "a") || !strcmp(field, "b") ||
                     !strcmp(field, "omega");
    return x->relative && gate && relative_has(x, field);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

union relative {
    struct kcp_call call;
    struct kcp_family family;
    struct kcp_scan scan;
};

/* ---- how much of a state that enters is left: |M|_F / sqrt(K)
 * M's columns are what becomes of unit vectors where v is 0, V of them at a time. */
static int columns(struct run *x, union relative *a, double *h0, double *ht,
                   double *sum)
{
    const struct kcp_call *c = &a->call;
    const int64_t KV = (int64_t)c->K * c->V;
    for (int j = 0; j < c->K; j += c->V) {
        memset(h0, 0, sizeof *h0 * (size_t)(c->HV * KV));
        for (int n = 0; n < c->HV; n++)
            for (int v = 0; v < c->V && j + v < c->K; v++)
                h0[n * KV + (j + v) * c->V + v] = 1;
        const int status = x->stage->ref(a);
        if (status)
            return status;
        for (int64_t e = 0; e < c->HV * KV; e++)
            *sum += ht[e] * ht[e];
    }
    return KCP_OK;
}

/* The first local sequence as one rank's whole batch; -1 where nothing enters. */
static int alive(struct run *x, const union relative *of, double *alive)
{
    const struct kcp_context *ctx = &x->plan->ctx[of->call.r];
    union relative a = *of;
    struct kcp_call *c = &a.call;
    struct kcp_plan *plan = NULL;
    *alive = -1;
    if (ctx->n_local == 0 || ctx->is_first_rank)
        return KCP_OK;
    const int64_t cu[2] = { 0, ctx->cu_seqlens[1] };
    if (kcp_plan_make(&plan, 1, cu, 1, NULL, 0, c->C, 0, NULL))
        return KCP_NO_MEMORY;
    const size_t state = (size_t)c->HV * (size_t)c->K * (size_t)c->V;
    const size_t value = (size_t)cu[1] * (size_t)c->HV * (size_t)c->V;
    double *v = calloc(2 * value + 2 * state + (size_t)(c->HV * c->V), sizeof *v);
    double *o = v + value, *h0 = o + value, *ht = h0 + state, sum = 0;
    kcp_layer_call(&(struct kcp_layer){ .ops = &ref_mapops }, c, plan, NULL);
    c->pass = KCP_FORWARD;
    c->layout = KCP_KV;
#define PROBE(args)                                                                   \
    do {                                                                              \
        args.cu = plan->ctx[0].cu;                                                    \
        args.cn = plan->ctx[0].cn;                                                    \
        args.sc = plan->ctx[0].sc;                                                    \
        args.v = v;                                                                   \
        args.o = o;                                                                   \
        args.h0 = h0;                                                                 \
        args.ht = ht;                                                                 \
    } while (0)
    if (x->stage == stage_of("16")) {
        PROBE(a.family);
        a.family.h_kept = NULL;
    } else {
        PROBE(a.scan);
        a.scan.o0 = NULL;
        a.scan.ot = ht + state;
    }
#undef PROBE
    const int status = v ? columns(x, &a, h0, ht, &sum) : KCP_NO_MEMORY;
    *alive = sqrt(sum / ((double)c->HV * c->K));
    free(v);
    kcp_plan_free(plan);
    return status;
}

/* ---- one rank: forward, and back where there is do */
static int one_pass(struct run *x, union relative *a, struct kcp_comm *comm, void *kept,
                    enum kcp_pass pass)
{
    struct told *told = &x->told[comm->r];
    const double start = now();
    comm->traffic = (struct kcp_traffic){ 0, 0, 0 };
    rank_args(x, x->stage, comm, pass, a);
    if (x->stage == stage_of("16"))
        a->family.h_kept = kept;
    const int status = stage_go(x, x->stage, a, comm);
    const double seconds = now() - start;
    if (pass == KCP_BACKWARD) {
        told->sent_backward = comm->traffic;
        told->backward = seconds;
    } else {
        told->sent_forward = comm->traffic;
        told->forward = seconds;
    }
    return status;
}

int relative_rank(struct kcp_comm *comm, void *arg)
{
    struct run *x = arg;
    struct told *told = &x->told[comm->r];
    union relative a = { 0 };
    void *kept = NULL;
    rank_args(x, x->stage, comm, KCP_FORWARD, &a);
    if (x->both && x->stage == stage_of("16")) {
        const size_t state = (size_t)a.call.HV * (size_t)a.call.K * (size_t)a.call.V;
        told->saved[0] = (size_t)kcp_saved_states(&a.call) * state *
                         (x->gpu ? sizeof(float) : sizeof(double));
        kept = saved_room(x, told->saved[0] + 8);
        if (!kept)
            return KCP_NO_MEMORY;
    }
    int status = one_pass(x, &a, comm, kept, KCP_FORWARD);
    if (!status)
        status = alive(x, &a, &told->alive);
    if (!status && x->both)
        status = one_pass(x, &a, comm, kept, KCP_BACKWARD);
    saved_free(x, kept);
    return status;
}
