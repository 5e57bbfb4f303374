/* together.c -- compares kcp_layer_convs, which runs several convolutions, with single
 * calls.
 * Book: chapter 14. */
#include "checked.h"
#include "tests/judge/trial.h"

#include <stdlib.h>

enum { RANKS = 2, GRIDS = 3 };
enum run { SINGLE, TOGETHER, ONE_LEFT_OUT, OTHER_WEIGHTS, RUNS };

/* In the last case (GPU only), a thread of backward computes two chunks in the call
 * with D=1032 and one chunk in the other calls. */
static const char *const grids[GRIDS] = {
    "live C=64 lengths=150,0,37,70,1,5 R=1", "live C=64 lengths=150,0,37,70,1,5 R=2",
    "live C=16 lengths=3500 R=1" };
static const char *const calls[KCP_CONVS] = {
    "D=1032 act=silu seed=1", "D=520 act=silu h0 x0 dxt seed=2", "D=8 seed=3" };

struct job {
    const struct memory *mem;
    struct kcp_layer layer;
    struct kcp_plan *plan;
    struct rank_args set[2][RANKS][KCP_CONVS];       /* single calls; together */
    int64_t differ[RANKS][RUNS];                     /* bytes of outputs */
};

/* Returns KCP_OK if calls that fit one launch use one launch, and if two calls that
 * share a workspace are rejected. */
static int check_rules(const struct job *x, struct kcp_conv **c)
{
    void *const args[KCP_CONVS] = { c[0], c[1], c[2] }, *const work = c[2]->work;
    const int many = c[0]->R > 1, n_a = many && c[0]->pass == KCP_BACKWARD;
    if (x->mem->is_far &&
        x->layer.conv->run_many(args, KCP_CONVS) != (n_a ? KCP_NA : KCP_OK))
        return KCP_MISMATCH;
    c[2]->work = c[0]->work;
    const int bad = many || kcp_layer_convs(&x->layer, c, KCP_CONVS) == KCP_BAD;
    c[2]->work = work;
    return bad ? KCP_OK : KCP_MISMATCH;
}

static int run_calls(struct job *x, struct kcp_comm *comm, enum run run)
{
    struct rank_args *t = x->set[run != SINGLE][comm->r], *one = x->set[0][comm->r];
    struct kcp_conv *c[KCP_CONVS];
    char why[160];
    int status = KCP_OK;
    for (int i = 0; i < KCP_CONVS; i++) {
        rank_args_reset(&t[i]);
        if (rank_args_send(&t[i])) return KCP_NO_MEMORY;
        c[i] = (struct kcp_conv *)(void *)t[i].args;
        kcp_layer_call(&x->layer, (struct kcp_call *)c[i], x->plan,
                       comm->R > 1 ? comm : NULL);
        c[i]->work_bytes = kcp_layer_conv_work(&x->layer, c[i]) + 8;
        if (!c[i]->work) c[i]->work = x->mem->alloc(c[i]->work_bytes);
    }
    if (run == OTHER_WEIGHTS) c[1]->weight = c[0]->weight;
    for (int i = 0; i < KCP_CONVS && run == SINGLE && !status; i++)
        status = kcp_layer_conv(&x->layer, c[i]);
    if (run == TOGETHER) status = check_rules(x, c);
    if (run != SINGLE && !status)
        status = kcp_layer_convs(&x->layer, c, KCP_CONVS - (run == ONE_LEFT_OUT));
    if (x->mem->sync()) return KCP_CUDA;
    for (int i = 0; i < KCP_CONVS && !status; i++) {
        status = rank_args_fetch(&t[i], why, sizeof why);
        if (!status) status = rank_args_check(&t[i], why, sizeof why);
        for (int j = 0; j < t[i].n && !status; j++)
            if (t[i].buffer[j].want)
                x->differ[comm->r][run] += buffer_other_bytes(&t[i].buffer[j],
                                                              &one[i].buffer[j], 0);
    }
    return status;
}

static int body(struct kcp_comm *comm, void *arg)
{
    int status = KCP_OK;
    for (int run = SINGLE; run < RUNS && !status; run++)
        status = run_calls(arg, comm, (enum run)run);
    return status;
}

static int fill(struct job *x, struct rank_args *t, const struct kcase *k, int r,
                enum kcp_pass pass)
{
    const struct kcp_stage *s = stage_find("14");
    const struct expected *e = expected_of(s, k, pass, x->layer.storage, x->plan);
    *t = (struct rank_args){ .call = call_of(s, k, x->plan, r, pass), .plan = x->plan,
                             .mem = x->mem, .ranks = 1, .storage = x->layer.storage };
    return e ? rank_args_fill(t, s, &e->in, &e->want) : KCP_BAD;
}

static void compare(struct kcp_report *rep, struct job *x, const char *grid,
                    enum kcp_pass pass)
{
    struct kcase k[KCP_CONVS];
    char words[120], why[200] = "";
    int status = KCP_OK;
    for (int i = 0; i < KCP_CONVS; i++) {
        snprintf(words, sizeof words, "%s %s", grid, calls[i]);
        status |= case_parse(words, &k[i], why, sizeof why);
    }
    const int R = k[0].call.R, n = 2 * R * KCP_CONVS;
    x->plan = case_plan(&k[0], R);
    for (int i = 0; i < n && !status; i++) {
        const int r = i / 2 / KCP_CONVS, c = i / 2 % KCP_CONVS;
        status = fill(x, &x->set[i % 2][r][c], &k[c], r, pass);
    }
    if (!status) status = ranks_threads(x->mem, R, body, x, why, sizeof why);
    EXPECT(rep, !status, "%s, pass %d: status %d %s", grid, pass, status, why);
    for (int r = 0; r < R && !status; r++)
        for (int run = TOGETHER; run < RUNS; run++)
            EXPECT(rep, (x->differ[r][run] > 0) == (run != TOGETHER),
                   "%s, pass %d, rank %d, run %d: %lld bytes differ from single calls, "
                   "expected %s", grid, pass, r, run, (long long)x->differ[r][run],
                   run == TOGETHER ? "0" : "more than 0");
    for (int i = 0; i < n; i++) {
        struct rank_args *t = &x->set[i % 2][i / 2 / KCP_CONVS][i / 2 % KCP_CONVS];
        if (t->args) x->mem->free(((struct kcp_conv *)(void *)t->args)->work);
        rank_args_free(t);
    }
    kcp_plan_free(x->plan);
}

static int run(struct kcp_report *rep, const struct kcp_layer *layer,
               const struct memory *mem, int count)
{
    for (int i = 0; i < 2 * count; i++) {
        struct job x = { .mem = mem, .layer = *layer };
        compare(rep, &x, grids[i / 2], i % 2 ? KCP_BACKWARD : KCP_FORWARD);
    }
    return KCP_OK;
}

static int on_host(struct kcp_report *rep)
{
    struct kcp_layer layer;
    kcp_layer_ref(&layer);
    return run(rep, &layer, &host_memory, GRIDS - 1);
}

static int on_gpu(struct kcp_report *rep)
{
    struct kcp_layer layer;
    const struct memory *m = gpu_of_threads();
    if (m && !kcp_layer_gpu(&layer, KCP_BF16, NULL, NULL, 0))
        return run(rep, &layer, m, GRIDS);
    printf("  (found no GPU that threads can share: not run)\n");
    return KCP_NA;
}

#define WHAT "three convolutions in one call give the bits of three calls, and two " \
             "planted mistakes are found"
KCP_CHECK(conv_together) = { "14_conv", "together", WHAT, on_host };
KCP_CHECK(conv_gpu_together) = { "14_conv", "gpu_together", WHAT, on_gpu };
