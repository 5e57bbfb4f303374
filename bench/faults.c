/* faults.c -- ranks on GPUs that are lost: killed in each call of each form, out of
 * memory, their communicator aborted from outside.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: bench/gpu_faults.sh.
 * Next: gpu_faults.sh, which starts the ranks and keeps the table.
 *
 *   kcp-faults count | kill FORM CALL | memory     a process a rank: RANK, WORLD_SIZE
 *   kcp-faults lent FORM abort | kill | stop       likewise; a caller's communicator
 *   kcp-faults aborted                             the same, two threads of one process
 *
 * Rank 1 is the one that is lost. Every other rank prints one row: did its call end,
 * with whose name, after how long, what memory is missing, and does a new communicator
 * work. A communicator that is lent is aborted by its owner on rank 1, or rank 1 is
 * killed or stopped; the others must name it. Status 0: all of it. */
#include "comm/backend/nccl.h"
#include "tests/made_call.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* MiB: what a run may keep for the next one. Kernels and NCCL are loaded before. */
enum { T = 512, MOST_HELD = 128, LOST = 1, MOST_MISSING = 32 };
static const char *const call_names[] = { "all_gather", "send", "recv", "group",
                                          "barrier", "show" };

/* ---- calls, counted on the rank that is to be lost */
static struct kcp_comm own;
static int calls, lost_at;
static char last_call[32];

static void count(struct kcp_comm *c, int name)
{
    snprintf(last_call, sizeof last_call, "%s", call_names[name]);
    if (++calls == lost_at && c->r == LOST) raise(SIGKILL);
}

static int all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    count(c, 0);
    return own.all_gather(c, mine, all, bytes, stream);
}

static int send_to(struct kcp_comm *c, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    count(c, 1);
    return own.send(c, data, bytes, to, stream);
}

static int recv_from(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    count(c, 2);
    return own.recv(c, data, bytes, from, stream);
}

static int group(struct kcp_comm *c, int begin)
{
    count(c, 3);
    return own.group(c, begin);
}

static int barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    count(c, 4);
    return own.barrier(c, stream);
}

static int show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                struct CUstream_st *stream)
{
    count(c, 5);
    return own.show(c, mine, all, bytes, stream);
}

static void count_calls(struct kcp_comm *c)
{
    own = *c;
    c->all_gather = all_gather;
    c->send = send_to;
    c->recv = recv_from;
    c->group = group;
    c->barrier = barrier;
    c->show = show;
}

/* ---- one forward and backward on this rank's GPU */
struct held { void *p[MOST_HELD]; int n, out; };

static void *hold(struct held *h, size_t bytes)
{
    void *p = NULL;
    if (h->n == MOST_HELD || cudaMalloc(&p, bytes + 16) || cudaMemset(p, 0, bytes)) {
        cudaGetLastError();
        h->out = 1;
        return NULL;
    }
    h->p[h->n++] = p;
    return p;
}

static void let_go(struct held *h)
{
    while (h->n) cudaFree(h->p[--h->n]);
}

static void arrays(struct held *h, const char *stage, union made_args *a)
{
    const struct kcp_stage *s = kcp_stage_find(stage);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        const int64_t n = made_numbers(&a->call, f->shape, INT64_C(1) << 40);
        *(void **)(a->bytes + f->at) = hold(h, (size_t)n * 4);
    }
}

static void grid(const int32_t *cu, const int32_t *cn,
                 const int32_t *sc, const struct kcp_context *x)
{
    cudaMemcpy((void *)cu, x->cu, sizeof *cu * (x->NS + 1u), cudaMemcpyDefault);
    cudaMemcpy((void *)cn, x->cn, sizeof *cn * (x->NS + 1u), cudaMemcpyDefault);
    cudaMemcpy((void *)sc, x->sc, sizeof *sc * (size_t)x->NC, cudaMemcpyDefault);
}

/* lent: a caller's communicator, which he aborts when a call has failed, before he
 * gives memory back: cudaFree waits for what hangs on a stream. */
struct lent { const struct nccl *nccl; ncclComm_t at; double ended; };

static int pass(struct kcp_comm *comm, int form, struct lent *lent, char *why, size_t n)
{
    const int64_t cu[2] = { 0, T };
    struct kcp_plan *plan = NULL;
    struct kcp_layer layer;
    struct held h = { .n = 0 };
    union made_args f = { 0 }, b = { 0 };
    int status = kcp_layer_gpu(&layer, KCP_BF16, NULL, why, n);
    if (!status) status = kcp_plan_make(&plan, 1, cu, comm->R, NULL, 0, 64, 4, NULL);
    if (status) return status;
    struct kcp_call c = { .H = 1, .HV = 2, .K = 64, .V = 64, .KG = 64, .form = form,
        .model = KCP_KDA, .gate = KCP_GATE_SOFTPLUS, .l2norm = 1, .scale = 0.125,
        .beta_form = KCP_BETA_SIGMOID };
    kcp_layer_call(&layer, &c, plan, comm);
    f.call = b.call = c;
    arrays(&h, "08", &f);
    arrays(&h, "13", &b);
    f.forward.saved_bytes = b.backward.saved_bytes = kcp_layer_saved(&layer, &c);
    b.backward.saved = f.forward.saved = hold(&h, f.forward.saved_bytes);
    f.call.work_bytes = kcp_layer_forward_work(&layer, &f.forward);
    b.call.work_bytes = kcp_layer_backward_work(&layer, &b.backward);
    f.call.work = hold(&h, f.call.work_bytes);
    b.call.work = hold(&h, b.call.work_bytes);
    if (h.out) {
        status = KCP_NO_MEMORY;
        snprintf(why, n, "its GPU is out of memory");
        comm->fail(comm, status, why);
    } else {
        grid(f.forward.cu, f.forward.cn, f.forward.sc, &plan->ctx[comm->r]);
        grid(b.backward.cu, b.backward.cn, b.backward.sc, &plan->ctx[comm->r]);
        status = kcp_layer_forward(&layer, &f.forward);
        if (!status) status = kcp_layer_backward(&layer, &b.backward);
        if (!status) status = comm->barrier(comm, NULL);
        snprintf(why, n, "%s", kcp_why());
    }
    if (lent) lent->ended = monotonic_seconds();
    if (status && lent && lent->at) lent->nccl->ncclCommAbort(lent->at);
    let_go(&h);
    kcp_plan_free(plan);
    return status;
}

/* ---- alone, before all and after a loss: a communicator of one, on the GPU at arg */
static int alone_body(struct kcp_comm *host, void *arg)
{
    struct kcp_comm *comm = NULL;
    char why[200] = "";
    int status = cudaSetDevice(*(const int *)arg) ? KCP_CUDA : KCP_OK;
    if (!status) status = kcp_nccl_over(&comm, host, why, sizeof why);
    if (!status) status = pass(comm, KCP_ALL_GATHER, NULL, why, sizeof why);
    if (!status) status = comm->barrier(comm, NULL);
    if (comm) comm->free(comm);
    if (status) fprintf(stderr, "alone: status %d, %s\n", status, why);
    return status;
}

/* The same with everybody, and nobody lost: what it leaves behind, kernels that are
 * loaded and NCCL's own, is no loss of the fault that follows. Where there are windows
 * messages too, for a lent communicator has none. */
static int rehearse(struct kcp_comm *host, int form, char *why, size_t n)
{
    struct kcp_comm *comm = NULL;
    int status = kcp_nccl_over(&comm, host, why, n);
    if (!status) status = pass(comm, form, NULL, why, n);
    if (!status && comm->window) {
        struct kcp_window *window = comm->window;
        comm->window = NULL;
        status = pass(comm, form, NULL, why, n);
        comm->window = window;
    }
    if (comm) comm->free(comm);
    cudaDeviceSynchronize();
    return status;
}

static size_t free_bytes(void)
{
    size_t now = 0, all = 0;
    cudaMemGetInfo(&now, &all);
    return now;
}

/* NCCL gives memory back in threads of its own, and what a killed process had mapped of
 * ours is free when the driver has cleared that process away: looked at until it stays
 * the same for two seconds, ten at most. */
static double free_mib(void)
{
    size_t was = free_bytes();
    for (int i = 0, same = 0; i < 200 && same < 40; i++) {
        poll(NULL, 0, 50);
        const size_t now = free_bytes();
        same = now == was ? same + 1 : 0;
        was = now;
    }
    return (double)was / (1 << 20);
}

/* Free memory counts where nobody else is on the GPU, or nobody who dies, which
 * KCP_FAULTS_ALONE says. Else it is printed as -, and nothing follows from it. */
static const char *memory_words(double missing, char *words, size_t n)
{
    const char *alone = getenv("KCP_FAULTS_ALONE");
    snprintf(words, n, "-");
    if (alone && *alone) snprintf(words, n, "%.0f", missing);
    return words;
}

static int is_given_back(double missing)
{
    char words[24];
    memory_words(missing, words, sizeof words);
    return words[0] == '-' || missing < MOST_MISSING;
}

/* what form call status lost seconds MiB again ok why */
static int row(const char *what, int form, int status, int lost, double seconds,
               double missing, int again, const char *why)
{
    char words[24];
    const int ok = status == KCP_COMM && lost == LOST && seconds < 12 && !again &&
                   is_given_back(missing);
    printf("%s\t%s\t%d\t%d\t%d\t%.2f\t%s\t%d\t%s\t%s\n", what,
           kcp_form_names[form], lost_at, status, lost, seconds,
           memory_words(missing, words, sizeof words), again, ok ? "ok" : "FAIL", why);
    fflush(stdout);
    return ok ? 0 : 1;
}

static int fill_gpu(void)
{
    for (size_t bytes = (size_t)1 << 34; bytes >= 1 << 20;) {
        void *p;
        if (cudaMalloc(&p, bytes)) bytes /= 2;
    }
    cudaGetLastError();
    return KCP_OK;
}

static int process(const char *what, int form)
{
    struct kcp_comm *host, *comm = NULL;
    struct kcp_who who;
    char why[200] = "", other[200] = "";
    int lost = -1;
    if (kcp_processes(&host, &who, why, sizeof why) || cudaSetDevice(who.local)) {
        fprintf(stderr, "kcp-faults: %s\n", why);
        return 2;
    }
    /* First runs load all that stays: then what is missing later was lost. */
    int status = kcp_threads_run(1, alone_body, &who.local, why, sizeof why);
    if (!status) status = rehearse(host, form, why, sizeof why);
    if (status) {
        fprintf(stderr, "kcp-faults: before: status %d, %s\n", status, why);
        return 2;
    }
    const double before = free_mib();
    status = kcp_nccl_over(&comm, host, why, sizeof why);
    if (status) {
        fprintf(stderr, "kcp-faults: status %d, %s\n", status, why);
        return 2;
    }
    if (!strcmp(what, "memory") && who.r == LOST) fill_gpu();
    count_calls(comm);
    const double began = monotonic_seconds();
    if (!strcmp(what, "count")) {
        for (int f = 0; f < KCP_FORMS && !status; f++) {
            calls = 0;
            status = pass(comm, f, NULL, why, sizeof why);
            if (who.r == LOST) printf("count\t%s\t%d\n", kcp_form_names[f], calls);
        }
        comm->free(comm);
        host->free(host);
        if (status) fprintf(stderr, "kcp-faults: status %d, %s\n", status, why);
        return status ? 1 : 0;
    }
    status = pass(comm, form, NULL, why, sizeof why);
    const double seconds = monotonic_seconds() - began;
    if (!comm->lost(comm, &lost, other, sizeof other)) lost = -1;
    comm->free(comm);
    host->free(host);
    if (who.r == LOST) return status == KCP_NO_MEMORY ? 0 : 1;
    cudaDeviceSynchronize();
    const double missing = before - free_mib();
    const int again = kcp_threads_run(1, alone_body, &who.local, why, sizeof why);
    return row(what, form, status, lost, seconds, missing, again, other);
}

/* ---- a communicator of the caller's, aborted by him, or a rank killed, while ranks
 * use it: nothing but what went over it tells the others who that was */
enum way { ABORT, KILL, STOP, WAYS };
static const char *const way_names[] = { "abort", "kill", "stop" };
struct callers {
    const struct nccl *nccl;
    int form, way, local;                  /* local -1: rank r is on GPU r */
    int ok[2];
};

static int wait_for(const struct nccl *n, ncclComm_t at, ncclResult_t result)
{
    while (result == ncclInProgress)
        if (n->ncclCommGetAsyncError(at, &result)) return KCP_COMM;
    return result == ncclSuccess ? KCP_OK : KCP_COMM;
}

static int make(struct kcp_comm *host, const struct nccl *n, ncclComm_t *at)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    int err = host->r == 0 && n->ncclGetUniqueId(&id) ? KCP_COMM : KCP_OK;
    for (int r = 1; r < host->R && !err; r++)
        if (host->r == 0) err = host->send(host, &id, sizeof id, r, NULL);
        else if (host->r == r) err = host->recv(host, &id, sizeof id, 0, NULL);
    config.blocking = 0;
    return err ? err : wait_for(n, *at, n->ncclCommInitRankConfig(at, host->R, id,
                                                                  host->r, &config));
}

struct outside { struct kcp_comm *comm; const struct callers *x; ncclComm_t at; };

/* A process that is stopped for ever: who waits for it ends it at last. */
static void stop_here(void)
{
    const pid_t me = getpid();
    if (fork() == 0) {
        sleep(15);
        kill(me, SIGKILL);
        _exit(0);
    }
    kill(me, SIGSTOP);
}

static void *strike_soon(void *arg)
{
    const struct outside *o = arg;
    poll(NULL, 0, 300);
    if (o->x->way == KILL) raise(SIGKILL);
    if (o->x->way == STOP) stop_here();
    o->comm->fail(o->comm, KCP_COMM, "its owner aborts it");
    o->x->nccl->ncclCommAbort(o->at);
    return NULL;
}

/* After an abort: everybody lends anew. NCCL frees the communicators of a process
 * together, when the last of its ranks has aborted (commReclaim in init.cc): read
 * earlier, all of one is missing. */
static int lend_again(struct kcp_comm *host, const struct callers *x, double before,
                      double *missing)
{
    struct kcp_comm *comm = NULL;
    ncclComm_t at = NULL;
    char why[200] = "";
    int err = host->barrier(host, NULL);
    *missing = before - free_mib();
    if (!err) err = host->barrier(host, NULL);
    if (!err) err = make(host, x->nccl, &at);
    if (!err) err = kcp_nccl_from(&comm, at);
    if (!err) err = pass(comm, x->form, NULL, why, sizeof why);
    if (comm) comm->free(comm);
    if (at) x->nccl->ncclCommAbort(at);
    return err;
}

static int lent_body(struct kcp_comm *host, void *arg)
{
    struct callers *x = arg;
    struct kcp_comm *comm;
    ncclComm_t at = NULL;
    pthread_t outside;
    char why[200] = "", other[300] = "", words[24];
    const int on = x->local < 0 ? host->r : x->local;
    int gpu = on, lost = -1, status, again;
    double missing = 0;
    if (cudaSetDevice(on)) return KCP_CUDA;
    if (kcp_threads_run(1, alone_body, &gpu, why, sizeof why)) return KCP_CUDA;
    if (rehearse(host, x->form, why, sizeof why)) return KCP_CUDA;
    if (host->barrier(host, NULL)) return KCP_COMM;
    const double before = free_mib();
    if (host->barrier(host, NULL)) return KCP_COMM;     /* nobody else's is in it yet */
    if (make(host, x->nccl, &at)) return KCP_CUDA;
    if ((status = kcp_nccl_from(&comm, at))) return status;
    struct outside o = { comm, x, at };
    const double began = monotonic_seconds();
    if (host->r == LOST && pthread_create(&outside, NULL, strike_soon, &o))
        return KCP_NO_MEMORY;
    struct lent lent = { x->nccl, host->r == LOST ? NULL : at, 0 };
    while (!status) status = pass(comm, x->form, &lent, why, sizeof why);
    const double seconds = lent.ended - began;
    comm->lost(comm, &lost, other, sizeof other);
    if (host->r == LOST) pthread_join(outside, NULL);
    comm->free(comm);
    const int idle = cudaDeviceSynchronize();
    if (x->way != ABORT) {
        missing = before - free_mib();
        again = kcp_threads_run(1, alone_body, &gpu, why, sizeof why);
    } else
        again = lend_again(host, x, before, &missing);
    const double most = x->way == STOP ? 12 : 3;
    const int ok = status == KCP_COMM && lost == LOST && seconds < most && !again &&
                   !idle && is_given_back(missing);
    printf("lent_%s\t%s\trank %d\t%d\t%d\t%.2f\t%s\t%d\t%s\t%s\n",
           way_names[x->way], kcp_form_names[x->form], host->r, status, lost,
           seconds, memory_words(missing, words, sizeof words), again,
           ok ? "ok" : "FAIL", other);
    fflush(stdout);
    x->ok[host->r == LOST] = ok;
    return KCP_OK;
}

static int lent_process(int form, int way)
{
    char why[200] = "";
    struct callers x = { nccl_open(why, sizeof why), form, way, 0, { 0 } };
    struct kcp_comm *host;
    struct kcp_who who;
    if (!x.nccl || kcp_processes(&host, &who, why, sizeof why)) {
        fprintf(stderr, "kcp-faults: %s\n", why);
        return 2;
    }
    x.local = who.local;
    const int status = lent_body(host, &x);
    host->free(host);
    if (status) fprintf(stderr, "kcp-faults: status %d\n", status);
    return !status && x.ok[who.r == LOST] ? 0 : 1;
}

static int aborted(void)
{
    char why[200] = "";
    struct callers x = { nccl_open(why, sizeof why), KCP_CHAIN, ABORT, -1, { 0 } };
    int status = KCP_NA;
    if (x.nccl) status = kcp_threads_run(2, lent_body, &x, why, sizeof why);
    if (status) fprintf(stderr, "kcp-faults: status %d, %s\n", status, why);
    return !status && x.ok[0] && x.ok[1] ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int form = KCP_ALL_GATHER;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-faults %s\n", kcp_version());
        return 0;
    }
    if (!strcmp(what, "aborted")) return aborted();
    if (!strcmp(what, "count") || !strcmp(what, "memory")) return process(what, form);
    for (; argc == 4 && form <= KCP_SCAN; form++)
        if (!strcmp(argv[2], kcp_form_names[form])) break;
    for (int way = 0; way < WAYS && argc == 4 && form <= KCP_SCAN; way++)
        if (!strcmp(what, "lent") && !strcmp(argv[3], way_names[way]))
            return lent_process(form, way);
    lost_at = argc == 4 ? atoi(argv[3]) : 0;
    if (strcmp(what, "kill") || form > KCP_SCAN || lost_at < 1) {
        fprintf(stderr, "kcp-faults: found '%s', expected count, memory, aborted, "
                "kill FORM CALL, or lent FORM abort|kill|stop\n", what);
        return 2;
    }
    return process(what, form);
}
