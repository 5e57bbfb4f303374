/* ranks.c -- runs a trial's ranks as threads or processes, perhaps with a GPU per rank.
 * Book: chapter 20, and CONTRIBUTING.md.
 *
 * Under a launcher all processes run the same trials from the same seed, one rank per
 * process. Each process uses the worst verdict of all processes, so that all processes
 * continue with the same trial. If a rank is lost, every process prints that rank and
 * exits with status 1. */
#include "judge.h"
#include "comm/backend/kcp_mpi.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct kcp_comm *host, *gpu;        /* host: MPI, gpu: NCCL; NULL: threads */
static int apart;
static const char *launcher = "";

/* ---- GPUs of one process. The threads of the ranks run until R changes or the program
 * ends, because NCCL starts slowly. */
static struct pool {
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t thread;
    int R, running, ended, quit, round, done, status;
    int (*body)(struct kcp_comm *, void *);
    void *arg;
    char why[200];
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

static void wait_a_moment(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 20 * 1000 * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    pthread_cond_timedwait(&pool.change, &pool.lock, &t);
}

static int worker(struct kcp_comm *comm, void *arg)
{
    for (int seen = 0;;) {
        pthread_mutex_lock(&pool.lock);
        while (pool.round == seen && !pool.quit && !comm->lost(comm, NULL, NULL, 0))
            wait_a_moment();
        const int stop = pool.round == seen;
        seen = pool.round;
        pthread_mutex_unlock(&pool.lock);
        if (stop) return comm->lost(comm, NULL, NULL, 0) ? KCP_COMM : KCP_OK;
        const int status = pool.body(comm, pool.arg);
        if (status) return status;
        pthread_mutex_lock(&pool.lock);
        pool.done++;
        pthread_cond_broadcast(&pool.change);
        pthread_mutex_unlock(&pool.lock);
    }
}

static void *pool_thread(void *arg)
{
    const int status = kcp_nccl_threads_run(pool.R, worker, NULL, pool.why,
                                            sizeof pool.why);
    pthread_mutex_lock(&pool.lock);
    pool.status = status;
    pool.ended = 1;
    pthread_cond_broadcast(&pool.change);
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

static void pool_stop(void)
{
    if (!pool.running) return;
    pthread_mutex_lock(&pool.lock);
    pool.quit = 1;
    pthread_cond_broadcast(&pool.change);
    pthread_mutex_unlock(&pool.lock);
    pthread_join(pool.thread, NULL);
    pool.running = pool.ended = pool.quit = pool.round = 0;
}

static int pool_run(int R, int (*body)(struct kcp_comm *, void *), void *arg, char *why,
                    size_t n)
{
    if (pool.running && (pool.R != R || pool.ended)) pool_stop();
    if (!pool.running) {
        pool.R = R;
        pool.why[0] = 0;
        pool.running = !pthread_create(&pool.thread, NULL, pool_thread, NULL);
    }
    if (!pool.running) return KCP_NO_MEMORY;
    pthread_mutex_lock(&pool.lock);
    pool.body = body;
    pool.arg = arg;
    pool.done = 0;
    pool.round++;
    pthread_cond_broadcast(&pool.change);
    while (pool.done < R && !pool.ended) wait_a_moment();
    const int ended = pool.ended, status = pool.status;
    pthread_mutex_unlock(&pool.lock);
    if (!ended) return KCP_OK;
    snprintf(why, n, "%s", pool.why);
    return status ? status : KCP_COMM;
}

/* ---- processes */
static char doing[80] = "startup";

void ranks_doing(const char *what) { snprintf(doing, sizeof doing, "%s", what); }

/* Prints the rank that failed, and what this rank's call returned. */
static void lost(int status)
{
    char why[200] = "a call failed";
    int rank = -1;
    if (gpu) gpu->lost(gpu, &rank, why, sizeof why);
    host->lost(host, &rank, why, sizeof why);
    fprintf(stderr, "kcp-check: rank %d of %d: in %s: error on rank %d: %s (status %d "
            "here%s%s)\n", host->r, host->R, doing, rank, why, status,
            kcp_why()[0] ? ": " : "", kcp_why());
    host->fail(host, KCP_COMM, why);
    _Exit(kcp_mpi_end(1));
}

int ranks_mine(void) { return host ? host->r : -1; }
int ranks_started(void) { return host ? host->R : 0; }
int ranks_apart(void) { return apart; }

void ranks_as_threads(int on)
{
    static struct kcp_comm *kept;
    if (on) kept = host;
    host = on ? NULL : kept;
}
const char *ranks_launcher(void) { return launcher; }

int ranks_open(const char *backend, int device, int *R)
{
    struct kcp_mpi mpi;
    char why[300] = "";
    const int nccl = backend ? !strcmp(backend, "nccl") : 0;
    int status = kcp_mpi_start(&mpi, why, sizeof why);
    if (!status && mpi.R == 1) {
        apart = nccl;
        if (nccl && (!device || !*R))
            snprintf(why, sizeof why, "--backend nccl: needs --device and --ranks");
    } else if (!status && *R && *R != mpi.R)
        snprintf(why, sizeof why, "--ranks: found '%d', but %s started %d ranks", *R,
                 mpi.launcher, mpi.R);
    else if (!status && mpi.R > CASE_RANKS)
        snprintf(why, sizeof why, "%s started %d ranks, expected 1 to %d", mpi.launcher,
                 mpi.R, CASE_RANKS);
    if (status || why[0]) {
        fprintf(stderr, "kcp-check: %s\n", why);
        return 2;
    }
    if (mpi.R == 1) return 0;
    *R = mpi.R;
    launcher = mpi.launcher;
    const struct memory *m = device ? device_memory() : NULL;
    int shares[CASE_RANKS] = { 0 }, shared = 0;
    status = kcp_mpi_world(&host, why, sizeof why);
    if (!status && m) {
        apart = 1;
        shared = m->gpu(mpi.local) != KCP_OK;
        status = shared && m->gpu(0);                  /* all share GPU 0 */
        if (status) snprintf(why, sizeof why, "no GPU for local rank %d", mpi.local);
        else status = host->all_gather(host, &shared, shares, sizeof shared, NULL);
        for (int r = 0; r < mpi.R; r++) shared |= shares[r];
        if (!status) status = kcp_nccl_over(&gpu, host, why, sizeof why);
    }
    const char *way = shared ? "on a shared GPU, NCCL" : "a GPU each, NCCL";
    if (status) fprintf(stderr, "kcp-check: rank %d of %d: %s\n", mpi.r, mpi.R, why);
    else if (mpi.r && !freopen("/dev/null", "w", stdout)) return 1;
    else printf("%d processes of %s, %s\n", mpi.R, mpi.launcher, gpu ? way : "MPI");
    if (status) return status == KCP_BAD ? 2 : 1;
    return 0;
}

void ranks_close(void)
{
    pool_stop();
    if (gpu) gpu->free(gpu);
    if (host) host->free(host);
    gpu = host = NULL;
}

int ranks_run(const struct memory *m, int R, int (*body)(struct kcp_comm *, void *),
              void *arg, char *why, size_t n)
{
    if (!host && apart && m != &host_memory) return pool_run(R, body, arg, why, n);
    if (!host) return ranks_threads(m, R, body, arg, why, n);
    struct kcp_comm *comm = m == &host_memory ? host : gpu;
    int rank, status = comm ? body(comm, arg) : KCP_NA;
    char first[160];
    if (status && comm) {
        snprintf(first, sizeof first, "returned status %d", status);
        comm->fail(comm, status, first);
    }
    if (comm && comm->lost(comm, &rank, first, sizeof first)) {
        snprintf(why, n, "rank %d: %s", rank, first);
        lost(status);
    }
    return status;
}

int ranks_over_nccl(int R, int (*body)(struct kcp_comm *, void *), void *arg, char *why,
                    size_t n)
{
    return host ? ranks_run(device_memory(), R, body, arg, why, n)
                : kcp_nccl_threads_run(R, body, arg, why, n);
}

/* Combines the verdicts of all processes. Processes exchange verdicts as bytes, because
 * a verdict has no pointers and all processes run the same build. */
void ranks_agree(struct verdict *t)
{
    if (!host) return;
    struct verdict *all = malloc(sizeof *all * (size_t)host->R);
    if (!all || host->all_gather(host, t, all, sizeof *t, NULL)) lost(KCP_COMM);
    const struct verdict own = *t;
    *t = all[0];
    t->alive = own.alive;
    for (int r = 1; r < host->R; r++) {
        const struct verdict *o = &all[r];
        const struct worst *x = &o->worst, *y = &t->worst;
        const int worse = x->tol > 0 && (!(y->tol > 0) || (x->nan && !y->nan) ||
                                         x->err / x->tol > y->err / y->tol);
        const struct kcp_traffic sum = { t->traffic.bytes + o->traffic.bytes,
            t->traffic.messages + o->traffic.messages,
            t->traffic.collectives + o->traffic.collectives };
        if (worse) {
            t->worst = o->worst;
            memcpy(t->map, o->map, sizeof t->map);
        }
        if (o->outcome == FAIL && t->outcome != FAIL) {
            t->outcome = FAIL;
            memcpy(t->why, o->why, sizeof t->why);
        } else if (o->outcome == MARGINAL && t->outcome == PASS) t->outcome = MARGINAL;
        else if (o->outcome == NA && t->outcome != FAIL) t->outcome = NA;
        t->traffic = sum;
    }
    free(all);
}
