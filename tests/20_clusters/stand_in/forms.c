/* forms.c -- every form over the NCCL backend, on CPUs: the same bits as over
 * threads.
 *
 * Book: chapter 20.  Checked by: ranks.c, with a call that is left out.  Next:
 * calls.c.
 *
 * The exchange as a GPU has it: maps are applied on the stream, and the host waits
 * once, at the end. */
#include "stand_in.h"

#include "base/random.h"
#include "ref.h"

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

/* ---- the exchange */
static void draw(double *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = random_normal(&seed) * 0.3;
}

/* After a failure the stream is released, by the backend's abort or by the owner's:
 * else this rank hangs here. */
static void wait_until_released(struct exchange_job *j, int r, cudaStream_t stream)
{
    char why[80];
    if (j->lent[r])
        nccl_open(why, sizeof why)->ncclCommAbort(j->lent[r]);
    j->lent[r] = NULL;
    cudaStreamSynchronize(stream);
}

int exchange_rank(struct kcp_comm *comm, void *arg)
{
    struct exchange_job *j = arg;
    const int r = comm->r;
    const struct kcp_context *x = &j->plan->ctx[r];
    struct kcp_mapops ops = ref_mapops;
    cudaStream_t stream = NULL;
    ops.apply = apply;
    ops.compose = compose;
    ops.copy = copy;
    ops.diagonal = NULL;
    if (j->on_stream && cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))
        return KCP_CUDA;
    struct kcp_exchange e = { .form = (enum kcp_form)j->form, .backward = j->backward,
        .HV = XHV, .K = XK, .V = XV, .plan = j->plan, .comm = comm, .stream = stream,
        .ops = j->on_stream ? &ops : &ref_mapops, .maps = j->maps[r],
        .states = j->states[r] };
    e.work = malloc(kcp_exchange_work(&e) + 8);
    int status = e.work ? KCP_OK : KCP_NO_MEMORY;
    for (int s = 0; s < x->NS; s++) {
        draw(j->maps[r][s], XMAP, 1000 + (uint64_t)(x->seg0 + s));
        draw(j->states[r][s], XSTATE, 2000 + (uint64_t)(x->seg0 + s));
    }
    status = status ? status : kcp_exchange_run(&e);
    status = status ? status : comm->barrier(comm, stream);
    if (status)
        wait_until_released(j, r, stream);
    j->sent[r] = comm->traffic;
    free(e.work);
    return status;
}

/* L: the length of canonical segments; 0: classic. is_planted: in silence. */
int forms(int R, int64_t L, int form, int is_planted)
{
    static struct exchange_job want, got;
    const int64_t cu[XN + 1] = { 0, 100, 117, XT };
    struct kcp_plan *plan = NULL;
    char why[200] = "";
    int wrong = 0;
    if (kcp_plan_make(&plan, XN, cu, R, NULL, L, 16, 0, NULL))
        return 1;
    for (int backward = 0; backward < 2; backward++) {
        want = got = (struct exchange_job){ .form = form, .backward = backward,
                                            .plan = plan };
        got.on_stream = 1;
        int status = kcp_threads_run(R, exchange_rank, &want, why, sizeof why);
        if (!status)
            status = kcp_nccl_threads_run(R, exchange_rank, &got, why, sizeof why);
        const int bad = status || memcmp(want.states, got.states, sizeof want.states) ||
                        memcmp(want.sent, got.sent, sizeof want.sent);
        if (bad && !is_planted)
            printf("  FAIL  exchange, %d ranks, L %d, %s, backward %d: status %d: %s\n",
                   R, (int)L, kcp_form_names[form], backward, status, why);
        wrong += bad;
    }
    kcp_plan_free(plan);
    return wrong;
}
