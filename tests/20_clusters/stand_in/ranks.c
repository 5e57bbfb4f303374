/* ranks.c -- NCCL's backend without a GPU: ranks lost at any call, and who knows it.
 *
 * Book: chapter 20, "What is promised to whom".
 * Checked by: tests/cli/nccl_stand_in.sh, also under the sanitizers.
 * Next: libnccl.c, cudart.c, what stands in.
 *
 *   kcp-stand-in [full | few]    full: every call of every form, every way to be lost;
 *                                few: one of each, for a build under a sanitizer
 *
 * A rank is a process here. Rank 1 is killed, stopped, or its communicator is aborted,
 * before one of its calls. The others must end, name it, give back what they held, make
 * a communicator among themselves, and get the bits that threads get. */
#include "stand_in.h"
#include "tests/entries.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOST = 1, AT_ONCE = 6, MOST_SECONDS = 60 };
enum way { NOBODY, KILLED, STOPPED, ABORTED, OUTSIDE, IN_GROUP, KNOWN_IN_GROUP, HANGS,
           NOTICED, OURS, EARLY, UNWATCHED, DEAF, DROPPED, FREED, CAPTURED, TWO, WAYS };
static const char *const way_names[] = { "nobody", "killed", "stopped", "aborted",
    "aborted from outside", "aborted from outside in a group",
    "known inside a group", "killed, the others hang in a call",
    "noticed by NCCL first",
    "killed, communicator of ours", "killed before the watch", "killed, KCP_WATCH=0",
    "no descriptors", "a call is left out", "freed early", "captured first",
    "two at once" };

struct seen {
    int done, status, lost, files[2], tasks[2], wrong, again, other;
    double ended;
    char why[320];
};
struct trial {
    int R, form, way, at;
    struct meet meet[IDS];
    _Atomic double struck;
    atomic_int calls;
    struct seen seen[MOST];
    char dir[200];
};

struct shared *shared;
struct lossy_layer *layer_of_model[2];
int wrongs;
static struct trial *now;                  /* of this process */

/* ---- what a process holds */
static void hold(struct seen *x, int i)
{
    x->files[i] = entries("/proc/self/fd");
    x->tasks[i] = entries("/proc/self/task");
}

/* A thread that was joined may be in the list for a moment. */
static void hold_again(struct seen *x)
{
    hold(x, 1);
    for (int i = 0; i < 200 && x->tasks[0] != x->tasks[1]; i++) {
        poll(NULL, 0, 10);
        hold(x, 1);
    }
}

/* ---- how rank 1 is lost */
static void abort_ours(void)
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

/* ---- ranks */
static struct lossy_layer *own_layer(int model)
{
    struct lossy_layer *a = malloc(sizeof *a);
    if (!a)
        exit(2);
    *a = *layer_of_model[model];
    return a;
}

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

static void set_environment(const struct trial *t, int r)
{
    const int is_short = t->way == STOPPED || (t->way >= EARLY && t->way <= DROPPED &&
                                               t->way != DEAF);
    char word[260];
    setenv("KCP_TIMEOUT_S", is_short ? "4" : "30", 1);
    if (t->way == UNWATCHED && r == 2)
        setenv("KCP_WATCH", "0", 1);
    if (t->way == DROPPED)
        setenv("KCP_STAND_IN_DROPS", "1", 1);
    if (t->way == HANGS)
        setenv("KCP_STAND_IN_CONNECTS", "1", 1);
    if (t->way == NOTICED)
        setenv("KCP_STAND_IN_NOTICES", "1", 1);
    setenv("KCP_STAND_IN", t->dir, 1);
    setenv("KCP_KEY_DIR", t->dir, 1);
    snprintf(word, sizeof word, "file:%s/meet", t->dir);
    setenv("KCP_RENDEZVOUS", word, 1);
    snprintf(word, sizeof word, "%d", r);
    setenv("RANK", word, 1);
    setenv("LOCAL_RANK", word, 1);
    snprintf(word, sizeof word, "%d", t->R);
    setenv("WORLD_SIZE", word, 1);
    setenv("LOCAL_WORLD_SIZE", word, 1);
}

/* A rank whose communicator is lent, or over processes that have met (OURS). */
static void lose_one(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct kcp_comm *host = NULL, *comm = NULL;
    struct kcp_who who;
    struct lossy_layer *a = own_layer(0);
    ncclComm_t at = NULL;
    const int ours = t->way == OURS;
    hold(x, 0);
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

/* A rank that has done frees what it was lent; the others go on with what they have. */
static void free_early(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct kcp_comm *comm = NULL;
    struct lossy_layer *a = own_layer(0);
    hold(x, 0);
    ncclComm_t at = lend(&t->meet[0], t->R, r, 0);
    x->status = at ? kcp_nccl_from(&comm, at) : KCP_CUDA;
    if (x->status)
        _exit(1);
    calls_wait(comm, at);
    x->status = pass_on(comm, a, t->R, (enum kcp_form)t->form);
    x->wrong = wrong_rows(a, t->R, r, (enum kcp_form)t->form);
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
static void capture_first(struct trial *t, int r)
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
    hold(x, 0);
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
    x->lost = -1;
    comm->lost(comm, &x->lost, x->why, sizeof x->why);
    comm->free(comm);
    cudaStreamDestroy(s);
    if (graph) cudaGraphDestroy(graph);
    if (exec) cudaGraphExecDestroy(exec);
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

static void use_two(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    struct half half[2] = { { t, r, 0, { 0 } }, { t, r, 1, { 0 } } };
    pthread_t second;
    cudaSetDevice(1);
    cudaDeviceSynchronize();
    cudaStreamQuery(NULL);
    cudaSetDevice(0);
    hold(x, 0);
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

static void rank(struct trial *t, int r)
{
    struct seen *x = &t->seen[r];
    now = t;
    set_environment(t, r);
    cudaStreamQuery(NULL);                 /* the device's own stream is there */
    if (t->way == FREED)
        free_early(t, r);
    else if (t->way == CAPTURED)
        capture_first(t, r);
    else if (t->way == TWO)
        use_two(t, r);
    else
        lose_one(t, r);
    x->done = 1;
    exit(0);
}

/* ---- what must hold */
static void judge(const struct trial *t)
{
    const int named = t->way >= KILLED && t->way <= OURS;
    const int unnamed = t->way == EARLY || t->way == UNWATCHED || t->way == DROPPED;
    const int fails = named || unnamed;
    char name[120];
    snprintf(name, sizeof name, "%s, %d ranks, %s, call %d", way_names[t->way], t->R,
             kcp_form_names[t->form], t->at);
    for (int r = 0; r < t->R; r++) {
        const struct seen *x = &t->seen[r];
        const int is_late = named && x->ended - t->struck > 12;
        if (r == LOST && fails && t->way != ABORTED && t->way != OUTSIDE &&
            t->way != IN_GROUP && t->way != DROPPED)
            continue;
        EXPECT(x->done, "%s: rank %d did not end: %s", name, r, x->why);
        if (!x->done)
            continue;
        if (t->way == DROPPED) {
            EXPECT(x->status || x->wrong, "%s: rank %d does not see it", name, r);
            continue;
        }
        EXPECT(x->status == (fails ? KCP_COMM : KCP_OK), "%s: rank %d: status %d: %s",
               name, r, x->status, x->why);
        EXPECT(unnamed || x->lost == (named ? LOST : -1), "%s: rank %d: lost %d: %s",
               name, r, x->lost, x->why);
        if (getenv("KCP_STAND_IN_SAYS"))
            printf("%s: rank %d: status %d, lost %d, %.2f s: %s\n", name, r, x->status,
                   x->lost, x->ended - t->struck, x->why);
        EXPECT(t->way != UNWATCHED || x->lost != LOST, "%s: rank %d knows it without a "
               "watch: %s", name, r, x->why);
        EXPECT(t->way != UNWATCHED || strstr(x->why, "no watch: rank 2: KCP_WATCH=0"),
               "%s: rank %d says '%s'", name, r, x->why);
        if (t->way == ABORTED && r != LOST && x->ended - t->struck < shared->soonest)
            shared->soonest = x->ended - t->struck;
        EXPECT(!is_late, "%s: rank %d knew it after %.1f s", name, r,
               x->ended - t->struck);
        EXPECT(x->files[0] == x->files[1] && x->tasks[0] == x->tasks[1], "%s: rank %d: "
               "files %d, then %d; threads %d, then %d", name, r, x->files[0],
               x->files[1], x->tasks[0], x->tasks[1]);
        EXPECT(!x->wrong && !x->again && !x->other, "%s: rank %d: %d arrays wrong, "
               "anew status %d, %d other: %s", name, r, x->wrong, x->again, x->other,
               x->why);
    }
}

/* ---- a trial is a process that starts its ranks and judges them */
static int ended(pid_t *child, int R)
{
    int left = 0;
    for (int r = 0; r < R; r++) {
        int status;
        if (child[r] > 0 && waitpid(child[r], &status, WNOHANG) == child[r]) {
            EXPECT(!WIFEXITED(status) || !WEXITSTATUS(status), "rank %d: status %d", r,
                   WEXITSTATUS(status));
            child[r] = 0;
        }
        left += child[r] > 0 && !(now->way == STOPPED && r == LOST);
    }
    return !left;
}

static int run_trial(struct trial *t)
{
    pid_t child[MOST] = { 0 };
    now = t;
    snprintf(t->dir, sizeof t->dir, "%s", "/tmp/kcp-stand-in.XXXXXX");
    if (!mkdtemp(t->dir))
        return 1;
    for (int r = 0; r < t->R; r++)
        if (!(child[r] = fork()))
            rank(t, r);
    const double until = monotonic_seconds() + MOST_SECONDS;
    while (!ended(child, t->R) && monotonic_seconds() < until)
        poll(NULL, 0, 5);
    for (int r = 0; r < t->R; r++)
        if (child[r] > 0) {
            kill(child[r], SIGKILL);
            waitpid(child[r], NULL, 0);
        }
    judge(t);
    if (t->way == NOBODY)
        shared->calls[t->R][t->form] = t->calls;
    DIR *d = opendir(t->dir);
    char path[500];
    for (const struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", t->dir, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(t->dir);
    fflush(stdout);
    return wrongs > 0;
}

static int running, failed, trials;

static void wait_for_one(void)
{
    int status;
    if (wait(&status) > 0) {
        running--;
        failed += !WIFEXITED(status) || WEXITSTATUS(status);
    }
}

static void start(int R, int form, int way, int at)
{
    while (running >= AT_ONCE)
        wait_for_one();
    struct trial *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED)
        exit(2);
    t->R = R;
    t->form = form;
    t->way = way;
    t->at = at;
    fflush(stdout);
    if (!fork())
        exit(run_trial(t));
    munmap(t, sizeof *t);
    running++;
    trials++;
}

static void wait_for_all(void)
{
    while (running)
        wait_for_one();
}

/* ---- all of it */
static int answers_of_threads(void)
{
    char why[200];
    for (int i = 0; i < MOST * FORMS * 2; i++) {
        const int R = 1 + i / (FORMS * 2), form = i / 2 % FORMS, model = i % 2;
        if (lossy_run(layer_of_model[model], R, (enum kcp_form)form, why, sizeof why))
            return 1;
        shared->want[R][form][model] = layer_of_model[model]->got;
    }
    return 0;
}

static int forms(void)
{
    int wrong = answers_of_threads();
    for (int lent = 0; lent < 3 && !wrong; lent++)
        wrong += forms_threads(lent);
    wrong = wrong ? wrong : forms_exchange() + forms_split();
    return wrong > 0;
}

static void lose_everywhere(int full)
{
    static const int quick[] = { KILLED, ABORTED, OUTSIDE };
    for (int R = 2; R <= MOST; R++)
        for (int form = 0; form < FORMS; form++) {
            const int calls = shared->calls[R][form];
            for (int at = 2; full && at <= calls; at++)
                for (int way = KILLED; way <= OURS; way++)
                    if (way != IN_GROUP && way != KNOWN_IN_GROUP)
                        start(R, form, way, at);
            for (int i = 0; i < 3 && !full; i++)
                start(R, form, quick[i], 2 + (3 * i + 5 * form + 7 * R) % (calls - 1));
        }
    for (int R = 2; R <= MOST; R++)
        for (int form = KCP_CHAIN; form < FORMS; form++) {
            start(R, form, IN_GROUP, 0);
            start(R, form, KNOWN_IN_GROUP, 4);
        }
    for (int form = 0; form < FORMS && !full; form++) {
        start(3, form, HANGS, 2);
        start(3, form, NOTICED, 1 + shared->calls[3][form] / 2);
        start(3, form, STOPPED, 1 + shared->calls[3][form] / 2);
        start(3, form, OURS, 1 + shared->calls[3][form] / 2);
    }
}

static void lose_some(void)
{
    static const int few_at[WAYS] = { [KNOWN_IN_GROUP] = 4, [HANGS] = 2 };
    for (int way = KILLED; way <= OURS; way++)
        if (way != STOPPED)
            start(3, KCP_CHAIN, way, few_at[way] ? few_at[way] : 9);
}

int main(int argc, char **argv)
{
    const int full = argc == 2 && !strcmp(argv[1], "full");
    const int few = argc == 2 && !strcmp(argv[1], "few");
    char why[120] = "";
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int model = 0; model < 2; model++) {
        layer_of_model[model] = malloc(sizeof *layer_of_model[model]);
        if (!layer_of_model[model] || shared == MAP_FAILED)
            return 2;
        lossy_draw(layer_of_model[model], model ? KCP_GDN : KCP_KDA, GATES_LIVE, 20);
    }
    if ((argc > 1 && !full && !few) || !nccl_open(why, sizeof why)) {
        fprintf(stderr, "kcp-stand-in: %s\n",
                why[0] ? why : "expected nothing, full or few");
        return 2;
    }
    shared->soonest = MOST_SECONDS;
    fflush(stdout);
    if (!fork())
        exit(forms());
    running++;
    wait_for_all();
    for (int R = few ? MOST : 2; R <= MOST && !failed; R++)
        for (int form = 0; form < FORMS; form++)
            start(R, form, NOBODY, form);
    wait_for_all();
    if (!failed) {
        if (few)
            lose_some();
        else
            lose_everywhere(full);
        start(3, KCP_CHAIN, EARLY, 1);
        start(3, KCP_CHAIN, UNWATCHED, 8);
        start(3, KCP_SCAN, DEAF, 0);
        start(2, KCP_CHAIN, DROPPED, 0);
        start(3, KCP_PIPELINE, FREED, 0);
        start(3, KCP_CHAIN, CAPTURED, 0);
        start(3, KCP_ALL_GATHER, TWO, 0);
        wait_for_all();
        if (!few && shared->soonest > 0.2) {
            printf("  FAIL  a caller's fail was known after %.2f s at the soonest\n",
                   shared->soonest);
            failed++;
        }
    }
    for (int model = 0; model < 2; model++)
        free(layer_of_model[model]);
    if (failed)
        printf("stand-in for NCCL: %d of %d runs are not as they should be\n", failed,
               trials + 1);
    else
        printf("stand-in for NCCL: the forms bit for bit, %d runs of ranks lost, named "
               "and met anew\n", trials);
    return failed ? 1 : 0;
}
