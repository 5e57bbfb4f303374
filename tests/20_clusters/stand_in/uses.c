/* uses.c -- what callers do with what they lend, and nobody is lost by it: freed, left
 * in order, captured first, a message first, two at once.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: ranks.c, which judges it.
 * Next: ranks.c. */
#include "stand_in.h"
#include "tests/entries.h"

#include <poll.h>
#include <unistd.h>

/* A value that is none: said by its name, and no rank is made. */
static int taken_in_spite_of(const char *name, const char *value, ncclComm_t at)
{
    struct kcp_comm *comm = (void *)at;
    char was[40] = "", word[80];
    if (getenv(name))
        snprintf(was, sizeof was, "%s", getenv(name));
    setenv(name, value, 1);
    const int status = kcp_nccl_from(&comm, at);
    if (was[0])
        setenv(name, was, 1);
    else
        unsetenv(name);
    snprintf(word, sizeof word, "kcp_nccl_from: %s=%s: expected", name, value);
    return status != KCP_BAD || comm || strncmp(kcp_why(), word, strlen(word));
}

/* A rank that has done frees what it was lent, or leaves and ends its process; the
 * others go on with what they have. */
void use_and_end(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct kcp_comm *comm = NULL;
    struct lossy_layer *a = own_layer(0);
    hold(x);
    ncclComm_t at = lend(&t->meet[0], t->R, r, 0);
    x->other += taken_in_spite_of("KCP_TIMEOUT_S", "soon", at);
    x->other += taken_in_spite_of("KCP_WATCH", "off", at);
    x->status = at ? kcp_nccl_from(&comm, at) : KCP_CUDA;
    if (x->status)
        _exit(1);
    calls_wait(comm, at);
    x->status = pass_on(comm, a, t->R, (enum kcp_form)t->form);
    x->wrong = wrong_rows(a, t->R, r, (enum kcp_form)t->form);
    if (t->way == LEFT && r == LOST) {
        kcp_nccl_leave(comm);
        _exit(0);
    }
    if (r != LOST)
        poll(NULL, 0, 300);
    x->lost = -1;
    comm->lost(comm, &x->lost, x->why, sizeof x->why);
    calls_as_before();
    comm->free(comm);
    owner_ends();
    free(a);
    hold_again(x);
}

/* The first use is in a graph: it opens nothing, and runs; a later one opens it. */
void capture_first(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct kcp_comm *comm = NULL;
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    const int64_t mine = 100 + r;
    int64_t sent = 100 + r, got = 0, all[MOST] = { 0 };
    const int next = (r + 1) % t->R, before = (r + t->R - 1) % t->R;
    char why[80];
    hold(x);
    ncclComm_t at = lend(&t->meet[0], t->R, r, 0);
    x->status = at ? kcp_nccl_from(&comm, at) : KCP_CUDA;
    if (x->status || cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking))
        _exit(1);
    const int files = entries("/proc/self/fd");
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    x->other += comm->show(comm, &mine, all, sizeof mine, s) != KCP_NA;
    x->status = comm->group(comm, 1);
    if (!x->status) x->status = comm->send(comm, &sent, sizeof sent, next, s);
    if (!x->status) x->status = comm->recv(comm, &got, sizeof got, before, s);
    if (!x->status) x->status = comm->group(comm, 0);
    x->other += cudaStreamEndCapture(s, &graph) != cudaSuccess;
    x->other += entries("/proc/self/fd") != files;
    for (int i = 0; i < 2 && graph && !x->status; i++) {
        if (!i) cudaGraphInstantiate(&exec, graph, 0);
        got = 0;
        cudaGraphLaunch(exec, s);
        cudaStreamSynchronize(s);
        x->wrong += got != 100 + before;
    }
    if (!x->status) x->status = comm->show(comm, &mine, all, sizeof mine, s);
    for (int i = 0; i < t->R; i++)
        x->wrong += all[i] != 100 + i;
    x->other += entries("/proc/self/fd") == files;
    x->other += stand_in_gathers(at) != 3;
    x->lost = -1;
    comm->lost(comm, &x->lost, x->why, sizeof x->why);
    comm->free(comm);
    cudaStreamDestroy(s);
    if (graph) cudaGraphDestroy(graph);
    if (exec) cudaGraphExecDestroy(exec);
    nccl_open(why, sizeof why)->ncclCommDestroy(at);
    hold_again(x);
}

static void *fail_soon(void *arg)
{
    struct kcp_comm *comm = arg;
    poll(NULL, 0, 20);
    comm->fail(comm, KCP_COMM, "its owner aborts it");
    return NULL;
}

/* Its owner fails it while a group is being opened: who is told that it is open ends
 * it, and who is told otherwise has none. */
static int leaves_a_group_open(struct kcp_comm *comm)
{
    pthread_t owner;
    setenv("KCP_STAND_IN_OPENS", "1", 1);
    if (pthread_create(&owner, NULL, fail_soon, comm))
        return 1;
    if (!comm->group(comm, 1))
        comm->group(comm, 0);
    pthread_join(owner, NULL);
    unsetenv("KCP_STAND_IN_OPENS");
    return stand_in_groups();
}

/* A pair talks first: nothing is asked of the third rank. Then all open the watch, with
 * two gathers, or with the one that says why there is none (at 1: KCP_WATCH=0 on rank
 * 2); and later calls ask for nothing. */
void pair_first(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct kcp_comm *comm = NULL;
    const int64_t mine = 100 + r;
    int64_t one = r, all[MOST] = { 0 };
    char why[80];
    hold(x);
    ncclComm_t at = lend(&t->meet[0], t->R, r, 0);
    x->status = at ? kcp_nccl_from(&comm, at) : KCP_CUDA;
    if (x->status)
        _exit(1);
    if (r == 0) x->status = comm->send(comm, &mine, sizeof mine, 1, NULL);
    if (r == 1) x->status = comm->recv(comm, &one, sizeof one, 0, NULL);
    cudaStreamSynchronize(NULL);
    x->wrong += r == 1 && one != 100;
    x->other += stand_in_gathers(at) != 0;
    for (int i = 0; i < 2 && !x->status; i++) {
        memset(all, 0, sizeof all);
        x->status = comm->show(comm, &mine, all, sizeof mine, NULL);
        for (int j = 0; j < t->R; j++)
            x->wrong += all[j] != 100 + j;
        x->other += stand_in_gathers(at) != (t->at == 1 ? 1 : 2) + 1 + i;
    }
    x->lost = -1;
    comm->lost(comm, &x->lost, x->why, sizeof x->why);
    if (t->at == 1)                        /* nobody is told: there is no watch */
        x->other += leaves_a_group_open(comm);
    comm->free(comm);
    nccl_open(why, sizeof why)->ncclCommDestroy(at);
    hold_again(x);
}

/* Two threads of a process, each with a communicator that is lent, on a GPU of its own.
 * Then rank 1 of one is aborted: the other one works on. */
struct half { struct trial *t; int r, which; struct seen seen; };

static void *use_half(void *arg)
{
    struct half *h = arg;
    struct kcp_comm *comm = NULL;
    struct lossy_layer *a = own_layer(h->which);
    const int R = h->t->R, r = h->r;
    cudaSetDevice(h->which);
    ncclComm_t at = lend(&h->t->meet[h->which], R, r, 0);
    h->seen.status = at ? kcp_nccl_from(&comm, at) : KCP_CUDA;
    if (h->seen.status)
        return NULL;
    calls_wait(comm, at);
    h->seen.status = pass_on(comm, a, R, (enum kcp_form)h->t->form);
    h->seen.wrong = wrong_rows(a, R, r, (enum kcp_form)h->t->form);
    me.calls = 0;
    me.at = h->which ? 0 : 2;
    me.strike = abort_ours;
    for (int i = 0; i < 3 && !h->seen.status; i++)
        h->seen.status = pass_on(comm, a, R, (enum kcp_form)h->t->form);
    if (!comm->lost(comm, &h->seen.lost, h->seen.why, sizeof h->seen.why))
        h->seen.lost = -1;
    calls_as_before();
    comm->free(comm);
    owner_ends();
    free(a);
    return NULL;
}

void use_two(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct half half[2] = { { t, r, 0, { 0 } }, { t, r, 1, { 0 } } };
    pthread_t second;
    cudaSetDevice(1);
    cudaDeviceSynchronize();
    cudaStreamQuery(NULL);
    cudaSetDevice(0);
    hold(x);
    if (pthread_create(&second, NULL, use_half, &half[1]))
        _exit(1);
    use_half(&half[0]);
    pthread_join(second, NULL);
    hold_again(x);
    x->wrong = half[0].seen.wrong + half[1].seen.wrong;
    x->other = half[0].seen.status != KCP_COMM || half[0].seen.lost != LOST;
    x->status = half[1].seen.status;
    x->lost = half[1].seen.lost;
    snprintf(x->why, sizeof x->why, "%d %d %.140s; %d %d %.140s", half[0].seen.status,
             half[0].seen.lost, half[0].seen.why, x->status, x->lost, half[1].seen.why);
}
