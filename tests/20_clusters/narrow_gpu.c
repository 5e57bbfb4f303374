/* narrow_gpu.c -- checks that bf16 messages between GPUs are rounded as on the host.
 *
 * Book: chapter 20.  Checked by: itself; a state that was not rounded fails.
 * Next: ../../cuda/host/narrow.cu.
 *
 * Ranks are threads, or the processes of a launcher. Threads share one GPU; if there
 * are two GPUs, each thread has a GPU. */
#include "comm/lossy.h"
#include "tests/judge/judge.h"
#include "tests/judge/tolerance.h"
#include "base/bf16.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, MOST = 5, TOKENS = 300, MOST_STATE = HEADS * 64 * 64, SEQUENCES = 2 };

struct narrow_trial {
    const struct memory *mem;
    const struct kcp_plan *plan;
    enum kcp_form form;
    int backward, K, V;
    struct kcp_wire wire;
    float state[MOST][SEQUENCES][MOST_STATE];
    struct kcp_traffic sent[MOST], formula[MOST];
    const char *fence[MOST];
};

static float *random_floats(const struct memory *m, size_t numbers, double size,
                            uint64_t seed)
{
    float *host = malloc(sizeof *host * numbers), *x = m->alloc(sizeof *x * numbers);
    for (size_t i = 0; host && i < numbers; i++)
        host[i] = (float)(size * random_normal(&seed));
    if (!host || !x || m->copy(x, host, sizeof *x * numbers)) {
        if (x) m->free(x);
        x = NULL;
    }
    free(host);
    return x;
}

static int narrow_rank(struct kcp_comm *over, void *arg)
{
    struct narrow_trial *a = arg;
    const struct memory *m = a->mem;
    const struct kcp_context *x = &a->plan->ctx[over->r];
    const size_t state = (size_t)HEADS * (size_t)a->K * (size_t)a->V;
    const size_t map = state / (size_t)a->V * (size_t)(a->V + a->K);
    const size_t NS = (size_t)x->NS;
    struct kcp_comm *comm = over;
    int status = KCP_OK;
    if (a->wire.bf16)
        status = kcp_wire_over(&comm, over, &a->wire, NULL, 0);
    if (status)
        return status;
    struct kcp_exchange e = { .form = a->form, .backward = a->backward, .HV = HEADS,
        .K = a->K, .V = a->V, .plan = a->plan, .comm = comm, .ops = m->mapops };
    e.maps = random_floats(m, NS * map + 1, 1 / sqrt(a->K), 7 + (uint64_t)over->r);
    e.states = random_floats(m, NS * state + 1, 1, 70 + (uint64_t)over->r);
    const size_t work = kcp_exchange_work(&e);
    e.work = fenced_unwritten(m, work);
    if (!e.maps || !e.states || !e.work)
        status = KCP_NO_MEMORY;
    comm->traffic = (struct kcp_traffic){ 0, 0, 0 };
    if (!status)
        status = kcp_exchange_run(&e);
    a->sent[over->r] = comm->traffic;
    a->formula[over->r] = kcp_exchange_formula(&e);
    if (!status)
        status = comm->barrier(comm, NULL);
    for (size_t s = 0; s < NS && s < SEQUENCES && !status; s++)
        status = m->copy(a->state[over->r][s], (float *)e.states + s * state,
                         sizeof(float) * state);
    a->fence[over->r] = e.work ? fenced_free(m, e.work, work) : NULL;
    if (e.maps) m->free(e.maps);
    if (e.states) m->free(e.states);
    if (comm != over) comm->free(comm);
    return status;
}

/* All trials share one communicator, because NCCL takes long to create it. */
struct narrow_list { struct narrow_trial *t; int n; };

static int narrow_all(struct kcp_comm *over, void *arg)
{
    const struct narrow_list *x = arg;
    int status = KCP_OK;
    for (int i = 0; i < x->n && !status; i++)
        status = narrow_rank(over, &x->t[i]);
    return status;
}

/* Returns 1 if rank r is in this process. */
static int is_here(int r) { return ranks_mine() < 0 || ranks_mine() == r; }

static double states_apart(const struct narrow_trial *x, const struct narrow_trial *y)
{
    double d = 0, s = 0;
    for (int r = 0; r < x->plan->R; r++)
        for (int n = 0; is_here(r) && n < x->plan->ctx[r].NS && n < SEQUENCES; n++)
            for (int i = 0; i < HEADS * x->K * x->V; i++) {
                const double want = (double)y->state[r][n][i];
                const double off = (double)x->state[r][n][i] - want;
                d += off * off;
                s += want * want;
            }
    return d == 0 ? 0 : sqrt(d / s);
}

/* Returns 1 if a rank of this process receives a state from another rank. */
static int receives_state(const struct narrow_trial *t)
{
    int comes = 0;
    for (int r = 0; r < t->plan->R; r++) {
        const struct kcp_context *x = &t->plan->ctx[r];
        for (int s = x->seg0; is_here(r) && s < x->seg0 + x->NS; s++)
            comes |= t->backward ? !t->plan->seg[s].last : !t->plan->seg[s].first;
    }
    return comes;
}

/* Compares an exact run with two bf16 runs: bf16 is close and sends half the bytes;
 * both bf16 runs have the same bits. */
static void narrow_judge(struct kcp_report *rep, const struct narrow_trial *t, int R)
{
    const double off = states_apart(&t[1], &t[0]);
    const double most = tolerance_of(TOLERANCE_GRADIENTS, KCP_BF16);
    const int near = receives_state(t) ? off > 1e-5 && off < most : off == 0;
    EXPECT(rep, near, "form %d backward %d R %d K %d: off by %.1e", t->form,
           t->backward, R, t->K, off);
    EXPECT(rep, !memcmp(t[1].state, t[2].state, sizeof t->state), "form %d R %d: other "
           "bits when run again", t->form, R);
    for (int r = 0; r < R; r++) {
        if (!is_here(r)) continue;
        const struct kcp_traffic was = t[0].sent[r], is = t[1].sent[r];
        EXPECT(rep, 2 * is.bytes == was.bytes && is.messages == was.messages &&
               is.collectives == was.collectives, "form %d R %d rank %d: %lld bytes, "
               "of %lld", t->form, R, r, (long long)is.bytes, (long long)was.bytes);
        EXPECT(rep, is.bytes == t[1].formula[r].bytes, "form %d R %d rank %d: %lld "
               "bytes, by the formula %lld", t->form, R, r, (long long)is.bytes,
               (long long)t[1].formula[r].bytes);
        EXPECT(rep, !t[1].fence[r], "form %d R %d rank %d: work: %s", t->form, R, r,
               t[1].fence[r]);
    }
}

/* The list has three trials per form, pass and size. */
enum { PASSES = 2, SIZES = 2, EACH = 3, LIST = KCP_FORMS * PASSES * SIZES * EACH };

static void narrow_forms(struct kcp_report *rep, struct narrow_trial *t,
                         const struct memory *m, int R, int nccl)
{
    static const int64_t cu[] = { 0, 37, TOKENS };
    static const int sizes[SIZES][2] = { { 64, 64 }, { 5, 7 } };
    struct narrow_list list = { t, LIST };
    struct kcp_plan *plan;
    char why[200] = "";
    if (kcp_plan_make(&plan, SEQUENCES, cu, R, NULL, 0, 16, 0, NULL))
        return;
    for (int i = 0; i < LIST; i++) {
        const int kind = i / EACH;
        memset(&t[i], 0xff, sizeof t[i]);
        t[i].mem = m;
        t[i].plan = plan;
        t[i].wire = (struct kcp_wire){ i % EACH > 0, 0 };
        t[i].backward = kind % PASSES;
        t[i].K = sizes[kind / PASSES % SIZES][0];
        t[i].V = sizes[kind / PASSES % SIZES][1];
        t[i].form = (enum kcp_form)(kind / PASSES / SIZES);
    }
    const int status = nccl ? ranks_over_nccl(R, narrow_all, &list, why, 200)
                            : m->threads_run(R, narrow_all, &list, why, 200);
    EXPECT(rep, !status, "R %d, NCCL %d: status %d, %s", R, nccl, status, why);
    for (int i = 0; i < LIST && !status; i += EACH)
        narrow_judge(rep, &t[i], R);
    kcp_plan_free(plan);
}

/* Compares the kernels' rounding with the host's, at every alignment. */
static void narrow_kernels(struct kcp_report *rep, const struct memory *m)
{
    enum { N = 5000 };
    static float x[N], y[N];
    static uint16_t z[N];
    uint64_t seed = 5;
    for (int i = 0; i < N; i++)
        x[i] = (float)(random_normal(&seed) * exp2(60 * random_uniform(&seed) - 30));
    x[0] = NAN;
    x[1] = 3e38f;
    x[2] = -0.0f;
    x[3] = (float)(1 + 0x1p-8);
    x[4] = INFINITY;
    float *on = m->alloc(sizeof x), *back = m->alloc(sizeof x);
    uint16_t *narrow = m->alloc(sizeof z);
    for (int at = 0; at < 4 && on && back && narrow; at++) {
        const size_t n = N - (size_t)at;
        int bad = m->copy(on, x, sizeof x) || m->fill(narrow, 0xee, sizeof z) ||
                  cuda_narrowing.narrow(narrow + at, on + at, n, NULL) ||
                  cuda_narrowing.widen(back + at, narrow + at, n, NULL) ||
                  m->copy(z, narrow, sizeof z) || m->copy(y, back, sizeof y);
        int wrong = 0;
        for (int i = at; i < N; i++) {
            const uint16_t want = bf16_of((double)x[i]);
            const float wide = (float)bf16_value(want);
            wrong += z[i] != want || (memcmp(&y[i], &wide, sizeof wide) && i);
        }
        EXPECT(rep, !bad && !wrong, "from number %d on: status %d, %d of %zu wrong", at,
               bad, wrong, n);
    }
    if (on) m->free(on);
    if (back) m->free(back);
    if (narrow) m->free(narrow);
}

/* Returns the number of GPUs, at most four. */
static int gpus_here(const struct memory *m)
{
    int gpus = 0;
    while (gpus < 4 && !m->gpu(gpus))
        gpus++;
    m->gpu(0);
    return gpus;
}

static int narrow_gpu(struct kcp_report *rep)
{
    const struct memory *m = device_memory();
    if (!m || !&cuda_narrowing) {
        printf("  (no GPU: not run)\n");
        return KCP_NA;
    }
    struct narrow_trial *t = calloc(LIST, sizeof *t);
    if (!t)
        return KCP_NO_MEMORY;
    narrow_kernels(rep, m);
    const int R = ranks_started() ? ranks_started() : gpus_here(m);
    for (int n = 2; n <= MOST && !ranks_started(); n += 1 + (n > 2))
        narrow_forms(rep, t, m, n, 0);
    if (R > 1 && R <= MOST)
        narrow_forms(rep, t, m, R, 1);
    else
        printf("  (%d ranks over NCCL here: ranks share a GPU)\n", R);
    free(t);
    return KCP_OK;
}
KCP_CHECK(check_20_narrow_gpu) = { "20_clusters", "gpu_narrow",
    "bf16 messages between GPUs take half the bytes in all forms, within limits "
    "and with reproducible bits", narrow_gpu };
