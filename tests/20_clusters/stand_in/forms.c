/* forms.c -- every form over the NCCL backend, on CPUs: the same bits as over threads.
 *
 * Book: chapter 20.  Checked by: ranks.c, with a call that is left out.
 * Next: ranks.c.
 *
 * A layer forward and backward, whose calls are waited for; and the exchange alone as a
 * GPU has it: maps are applied on the stream too, and the host waits once, at last. */
#include "stand_in.h"

#include <poll.h>

/* ---- a layer, on ranks that are threads */
struct layer_job {
    int form, model, lent;
    int fails, misnamed[MOST];             /* of a half: one does, and who says whom */
    struct meet meet;
    struct lossy_layer *a[MOST];
};

static int layer_rank(struct kcp_comm *host, void *arg)
{
    struct layer_job *j = arg;
    struct kcp_comm *comm = host;
    ncclComm_t at = NULL;
    if (j->lent && (cudaSetDevice(host->r) ||
                    !(at = lend(&j->meet, host->R, host->r, j->lent == 2)) ||
                    kcp_nccl_from(&comm, at)))
        return KCP_CUDA;
    calls_wait(comm, NULL);
    const int status = pass_on(comm, j->a[host->r], host->R, (enum kcp_form)j->form);
    calls_as_before();
    if (at) {
        char why[80];
        comm->free(comm);
        nccl_open(why, sizeof why)->ncclCommDestroy(at);
    }
    return status;
}

/* lent: 0, a communicator of ours; 1, the caller's; 2, one that blocks. */
int forms_threads(int lent)
{
    struct layer_job j = { .lent = lent };
    int wrong = 0;
    for (int r = 0; r < MOST; r++)
        if (!(j.a[r] = malloc(sizeof *j.a[r])))
            return 1;
    for (int i = 0; i < MOST * FORMS * 2; i++) {
        const int R = 1 + i / (FORMS * 2), form = i / 2 % FORMS, model = i % 2;
        char why[200] = "";
        if (lent && (R == 1 || model))
            continue;
        j.form = form;
        memset(&j.meet, 0, sizeof j.meet);
        for (int r = 0; r < R; r++)
            *j.a[r] = *layer_of_model[model];
        const int status =
            lent ? kcp_threads_run(R, layer_rank, &j, why, sizeof why)
                 : kcp_nccl_threads_run(R, layer_rank, &j, why, sizeof why);
        int bad = status != KCP_OK;
        for (int r = 0; r < R && !bad; r++)
            bad = wrong_rows(j.a[r], R, r, (enum kcp_form)form);
        if (bad)
            printf("  layer, %d ranks, %s, lent %d: status %d, %d arrays: %s\n", R,
                   kcp_form_names[form], lent, status, bad, why);
        wrong += bad;
    }
    for (int r = 0; r < MOST; r++)
        free(j.a[r]);
    return wrong;
}

/* ---- maps that are applied on a stream */
struct launch {
    int what, HV, K, V, backward, flag, v0, Vb, ld_in, ld_out;
    const void *a, *b;
    void *out;
    size_t pitch, from_pitch, width, rows;
};

static void run_launch(void *arg)
{
    struct launch *l = arg;
    if (l->what == 0)
        ref_mapops.apply(l->HV, l->K, l->V, l->a, l->backward, l->flag, l->v0, l->Vb,
                         l->b, l->ld_in, l->out, l->ld_out, NULL);
    else if (l->what == 1)
        ref_mapops.compose(l->HV, l->K, l->V, l->b, l->a, l->backward, l->flag, l->out,
                           NULL);
    else
        ref_mapops.copy(l->out, l->pitch, l->a, l->from_pitch, l->width, l->rows, NULL);
    free(l);
}

static int launch(struct CUstream_st *stream, struct launch how)
{
    struct launch *l = malloc(sizeof *l);
    if (!l)
        return KCP_NO_MEMORY;
    *l = how;
    return cudaLaunchHostFunc(stream, run_launch, l) ? KCP_CUDA : KCP_OK;
}

static int apply(int HV, int K, int V, const void *map, int backward, int first, int v0,
                 int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *stream)
{
    return launch(stream, (struct launch){ 0, HV, K, V, backward, first, v0, Vb, ld_in,
                                           ld_out, map, S_in, S_out, 0, 0, 0, 0 });
}

static int compose(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *stream)
{
    return launch(stream, (struct launch){ 1, HV, K, V, backward, a_first, 0, 0, 0, 0,
                                           a, b, out, 0, 0, 0, 0 });
}

static int copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t rows, struct CUstream_st *stream)
{
    return launch(stream, (struct launch){ 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, from, NULL, to,
                                           to_pitch, from_pitch, width, rows });
}

/* ---- the exchange alone */
enum { XT = 256, XN = 3, XHV = 2, XK = 8, XV = 12, XMAP = XHV * XK * (XV + XK),
       XSTATE = XHV * XK * XV, XSEGMENTS = 16 };
struct exchange_job {
    int form, backward, on_stream;
    double states[MOST][XSEGMENTS][XSTATE];
    const struct kcp_plan *plan;
};

static void draw(double *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = random_normal(&seed) * 0.3;
}

static int exchange_rank(struct kcp_comm *comm, void *arg)
{
    struct exchange_job *j = arg;
    const struct kcp_context *x = &j->plan->ctx[comm->r];
    struct kcp_mapops ops = ref_mapops;
    ops.apply = apply;
    ops.compose = compose;
    ops.copy = copy;
    ops.diagonal = NULL;
    struct kcp_exchange e = { .form = (enum kcp_form)j->form, .backward = j->backward,
        .HV = XHV, .K = XK, .V = XV, .plan = j->plan, .comm = comm,
        .ops = j->on_stream ? &ops : &ref_mapops };
    double *maps = malloc(sizeof *maps * XMAP * (size_t)(x->NS + 1));
    double *states = malloc(sizeof *states * XSTATE * (size_t)(x->NS + 1));
    e.maps = maps;
    e.states = states;
    e.work = malloc(kcp_exchange_work(&e) + 8);
    int status = maps && states && e.work ? KCP_OK : KCP_NO_MEMORY;
    for (int s = 0; s < x->NS && !status; s++) {
        draw(maps + s * XMAP, XMAP, 1000 + (uint64_t)(x->seg0 + s));
        draw(states + s * XSTATE, XSTATE, 2000 + (uint64_t)(x->seg0 + s));
    }
    if (!status)
        status = kcp_exchange_run(&e);
    if (!status)
        status = comm->barrier(comm, NULL);
    if (!status)
        memcpy(j->states[comm->r], states, sizeof *states * XSTATE * (size_t)x->NS);
    free(maps);
    free(states);
    free(e.work);
    return status;
}

/* is_planted: of one form, in silence. */
static int exchange_of(int R, int64_t L, int is_planted, struct exchange_job *want,
                       struct exchange_job *got)
{
    const int64_t cu[XN + 1] = { 0, 100, 117, XT };
    struct kcp_plan *plan = NULL;
    char why[200] = "";
    int wrong = 0;
    if (kcp_plan_make(&plan, XN, cu, R, NULL, L, 16, 0, NULL))
        return 1;
    for (int k = is_planted ? 2 * KCP_CHAIN : 0; k < 2 * FORMS; k++) {
        if (is_planted && k > 2 * KCP_CHAIN)
            break;
        memset(want, 0, sizeof *want);
        memset(got, 0, sizeof *got);
        want->plan = got->plan = plan;
        want->form = got->form = k / 2;
        want->backward = got->backward = k % 2;
        got->on_stream = 1;
        int status = kcp_threads_run(R, exchange_rank, want, why, sizeof why);
        if (!status)
            status = kcp_nccl_threads_run(R, exchange_rank, got, why, sizeof why);
        const int bad =
            status || memcmp(want->states, got->states, sizeof want->states);
        if (bad && !is_planted)
            printf("  exchange, %d ranks, %s, backward %d: status %d: %s\n", R,
                   kcp_form_names[k / 2], k % 2, status, why);
        wrong += bad;
    }
    kcp_plan_free(plan);
    return wrong;
}

int forms_exchange(int is_planted)
{
    struct exchange_job *want = malloc(sizeof *want), *got = malloc(sizeof *got);
    int wrong = !want || !got;
    if (is_planted)
        wrong += exchange_of(2, 0, 1, want, got);
    for (int R = 2; R <= MOST && want && got && !is_planted; R++) {
        wrong += exchange_of(R, 0, 0, want, got);
        wrong += exchange_of(R, 64, 0, want, got);
    }
    free(want);
    free(got);
    return wrong;
}

/* ---- halves of four, turned round by their keys */
/* Rank 3 fails on its half: all of the four say so, by its number among them. */
static void fail_half(struct kcp_comm *world, struct kcp_comm *half,
                      struct layer_job *j)
{
    int lost = -1;
    if (world->r == 3)
        half->fail(half, KCP_CUDA, "its device is on fire");
    for (int i = 0; i < 1000 && !half->lost(half, &lost, NULL, 0); i++)
        poll(NULL, 0, 10);
    j->misnamed[world->r] = lost != 3;
}

static int split_rank(struct kcp_comm *world, void *arg)
{
    struct layer_job *j = arg;
    struct kcp_comm *half = NULL;
    const int color = world->r / 2;
    int status = kcp_nccl_split(world, color, -world->r, &half);
    if (!status && (!half || half->R != 2 || half->r != 1 - world->r % 2))
        status = KCP_MISMATCH;
    if (!status) {
        calls_wait(half, NULL);
        status = pass_on(half, j->a[world->r], 2, (enum kcp_form)j->form);
        calls_as_before();
        if (!status && wrong_rows(j->a[world->r], 2, half->r, (enum kcp_form)j->form))
            status = KCP_MISMATCH;
    }
    if (!status && j->fails) {             /* some may hear of rank 3 in the barrier */
        status = world->barrier(world, NULL);
        fail_half(world, half, j);
    }
    if (half)
        half->free(half);
    return status;
}

int forms_split(void)
{
    struct layer_job j = { 0 };
    char why[200] = "";
    int wrong = 0;
    for (int r = 0; r < MOST; r++)
        if (!(j.a[r] = malloc(sizeof *j.a[r])))
            return 1;
    for (j.form = 0; j.form < FORMS; j.form++) {
        for (int r = 0; r < MOST; r++)
            *j.a[r] = *layer_of_model[0];
        const int status = kcp_nccl_threads_run(MOST, split_rank, &j, why, sizeof why);
        if (status)
            printf("  halves, %s: status %d: %s\n", kcp_form_names[j.form], status,
                   why);
        wrong += status != KCP_OK;
    }
    j.fails = 1;
    j.form = KCP_CHAIN;
    for (int r = 0; r < MOST; r++) {
        *j.a[r] = *layer_of_model[0];
        j.misnamed[r] = 1;
    }
    kcp_nccl_threads_run(MOST, split_rank, &j, why, sizeof why);
    for (int r = 0; r < MOST; r++) {
        if (j.misnamed[r])
            printf("  halves: rank %d does not say that 3 has failed\n", r);
        wrong += j.misnamed[r];
    }
    for (int r = 0; r < MOST; r++)
        free(j.a[r]);
    return wrong;
}
