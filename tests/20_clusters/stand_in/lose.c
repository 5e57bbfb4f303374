/* lose.c -- rank 1 is lost before one of its calls: how, and what the others do then.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: ranks.c, which judges it.
 * Next: uses.c, where nobody is lost. */
#include "stand_in.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- how it is lost */
void abort_ours(void)
{
    me.comm->fail(me.comm, KCP_COMM, "its owner aborts it");
    if (!me.in_group)                      /* else when it has ended */
        owner_ends();
}

struct outside { struct kcp_comm *comm; ncclComm_t at; int ms; };
static struct outside outside;
static pthread_t outsider;
static int has_outsider;

/* He may come while a group is open, which is why fail is called first. */
static void *abort_outside(void *arg)
{
    const struct outside *o = arg;
    char why[80];
    poll(NULL, 0, o->ms);
    now->struck = monotonic_seconds();
    o->comm->fail(o->comm, KCP_COMM, "its owner aborts it");
    nccl_open(why, sizeof why)->ncclCommAbort(o->at);
    return NULL;
}

/* He looks who is lost, while another thread hangs in a call. */
static void *abort_when_lost(void *arg)
{
    const struct outside *o = arg;
    char why[80];
    while (!o->comm->lost(o->comm, NULL, NULL, 0))
        poll(NULL, 0, 1);
    o->comm->fail(o->comm, KCP_COMM, "its owner aborts it");
    nccl_open(why, sizeof why)->ncclCommAbort(o->at);
    return NULL;
}

/* Where NCCL has told him, and nobody yet by name. */
static const char *gone_path(char *path, size_t n)
{
    snprintf(path, n, "%s/nccl.%.32s.gone", now->dir, now->meet[0].id.internal);
    return path;
}

static void *abort_when_noticed(void *arg)
{
    char path[300];
    gone_path(path, sizeof path);
    while (access(path, F_OK))
        poll(NULL, 0, 1);
    return abort_outside(arg);
}

static void send_outsider(void *(*does)(void *))
{
    me.lent = NULL;                        /* who ends it is he */
    if (pthread_create(&outsider, NULL, does, &outside))
        _exit(1);
    has_outsider = 1;
}

/* A rank in an open group that has a call: another's loss, or its owner, comes now. */
static void in_group(void)
{
    if (now->way == IN_GROUP && me.comm->r == LOST) {
        send_outsider(abort_outside);
        poll(NULL, 0, 300);                /* he comes while it is open */
    }
    for (int i = 0; now->way == KNOWN_IN_GROUP && me.comm->r != LOST && i < 1000 &&
                    !me.own.lost(me.comm, NULL, NULL, 0); i++)
        poll(NULL, 0, 10);
}

static void strike(void)
{
    char path[300];
    now->struck = monotonic_seconds();
    if (now->way == NOTICED) {
        close(open(gone_path(path, sizeof path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        poll(NULL, 0, 20);                 /* its other connections close later */
    }
    if (now->way == KILLED || now->way == OURS || now->way == EARLY ||
        now->way == UNWATCHED || now->way == KNOWN_IN_GROUP || now->way == HANGS ||
        now->way == NOTICED)
        raise(SIGKILL);
    if (now->way == STOPPED)
        raise(SIGSTOP);
    if (now->way == ABORTED)
        abort_ours();
}

/* ---- what its job does */
/* Those who are left meet anew. */
static void again(struct trial *t, int r, struct seen *x, int which)
{
    const int R = t->R - 1, is = r > LOST ? r - 1 : r;
    struct kcp_comm *comm = NULL;
    struct lossy_layer *a = own_layer(0);
    char why[80];
    ncclComm_t at = lend(&t->meet[which], R, is, 0);
    x->again = at ? kcp_nccl_from(&comm, at) : KCP_COMM;
    if (!x->again) {
        calls_wait(comm, at);
        x->again = pass_on(comm, a, R, (enum kcp_form)t->form);
        calls_as_before();
        comm->lost(comm, NULL, x->why, sizeof x->why);
        x->wrong = wrong_rows(a, R, is, (enum kcp_form)t->form);
        comm->free(comm);
    }
    if (at && me.lent)
        nccl_open(why, sizeof why)->ncclCommDestroy(at);
    free(a);
}

/* A rank whose communicator is lent, or over processes that have met (OURS). */
void lose_one(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct kcp_comm *host = NULL, *comm = NULL;
    struct kcp_who who;
    struct lossy_layer *a = own_layer(0);
    ncclComm_t at = NULL;
    const int ours = t->way == OURS;
    hold(x);
    if (ours)
        x->status = kcp_processes(&host, &who, x->why, sizeof x->why);
    else if (!(at = lend(&t->meet[0], t->R, r, t->way == HANGS || t->at % 2)))
        x->status = KCP_CUDA;
    if (!x->status)
        x->status = ours ? kcp_nccl_over(&comm, host, x->why, sizeof x->why)
                         : kcp_nccl_from(&comm, at);
    if (x->status)
        _exit(1);
    if (t->way == DEAF && r == 2) {
        struct rlimit few;
        getrlimit(RLIMIT_NOFILE, &few);
        few.rlim_cur = 3;
        setrlimit(RLIMIT_NOFILE, &few);
    }
    calls_wait(comm, at);
    if (t->way == OUTSIDE)                 /* else there is no watch yet */
        x->status = pass_on(comm, a, t->R, (enum kcp_form)t->form);
    me.calls = 0;
    me.at = t->at;
    me.strike = strike;
    me.stuck = t->way == UNWATCHED || t->way == DROPPED ? 1 : 60;
    outside = (struct outside){ comm, at, 3 * t->at };
    if (t->way == IN_GROUP || t->way == KNOWN_IN_GROUP)
        me.in_its_group = in_group;
    if (t->way == OUTSIDE && r == LOST)
        send_outsider(abort_outside);
    if (t->way == HANGS && r != LOST)
        send_outsider(abort_when_lost);
    if (t->way == NOTICED && r == 0)
        send_outsider(abort_when_noticed);
    for (int i = 0; !x->status && (!i || t->way == OUTSIDE); i++)
        x->status = pass_on(comm, a, t->R, (enum kcp_form)t->form);
    x->ended = monotonic_seconds();
    if (r == LOST && t->way == NOBODY)
        t->calls = me.calls;
    if (has_outsider)
        pthread_join(outsider, NULL);
    if (!comm->lost(comm, &x->lost, x->why, sizeof x->why))
        x->lost = -1;
    if (!x->status)
        x->wrong = wrong_rows(a, t->R, r, (enum kcp_form)t->form);
    calls_as_before();
    comm->free(comm);
    owner_ends();
    if (host)
        host->free(host);
    free(a);
    if (t->way == DEAF && r == 2) {
        struct rlimit many;
        getrlimit(RLIMIT_NOFILE, &many);
        many.rlim_cur = many.rlim_max;
        setrlimit(RLIMIT_NOFILE, &many);
    }
    hold_again(x);
    if (t->way > NOBODY && t->way <= EARLY && r != LOST)
        again(t, r, x, 1);
}
