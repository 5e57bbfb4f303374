/* lose.c -- rank 1 is lost before one of its calls: how, and what the others do then.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: itself.
 * Next: uses.c.
 *
 * Ranks are threads, on GPUs of the stand-in. Rank 1 stands still, fails, has an
 * asynchronous error, or its communicator is aborted by its owner. Every other rank
 * gets an error and one line within the timeout; its stream is released, its memory and
 * its threads are given back, and a new communicator has the bits of threads. */
#include "stand_in.h"
#include "tests/entries.h"

#include <poll.h>

enum { LOST = 1, MOST_SECONDS = 15 };
enum way { NOBODY, STANDS, FAILS, ERROR, LENT_STANDS, LENT_ERROR, LENT_ABORTS, IN_GROUP,
           WAYS };
static const char *const way_names[] = { "nobody", "stands still", "fails",
    "has an asynchronous error", "stands still, lent",
    "has an asynchronous error, lent",
    "is aborted by its owner", "is aborted from outside in a group" };

struct seen { int status, lost, wrong; double seconds; char why[320]; };
struct trial {
    int R, form, at, calls;
    enum way way;
    struct meet meet;
    atomic_int ended;                      /* survivors that have returned */
    _Atomic double began;                  /* rank 1 writes it, the others read */
    struct lossy_layer *a[MOST];
    struct seen seen[MOST];
};

/* ---- how it is lost */
static void *abort_outside(void *arg)
{
    const struct striking *s = arg;
    char why[80];
    s->comm->fail(s->comm, KCP_COMM, "its owner aborts it");
    nccl_open(why, sizeof why)->ncclCommAbort(s->lent);
    return NULL;
}

/* fail comes while the group is open, and waits: NCCL takes no abort inside a group. */
static pthread_t outsider;
static struct striking outside;
static void abort_in_group(void *arg)
{
    outside = me;
    me.lent = NULL;                        /* the other thread aborts it */
    if (me.comm->r != LOST || pthread_create(&outsider, NULL, abort_outside, &outside))
        return;
    poll(NULL, 0, 300);
}

/* By a rank that stands still: until the others have ended, and it can know that. */
static int is_awaited(const struct trial *t)
{
    const int knows = t->way == LENT_STANDS || me.comm->lost(me.comm, NULL, NULL, 0);
    return t->ended < t->R - 1 || !knows;
}

static void strike(void *arg)
{
    struct trial *t = arg;
    t->began = monotonic_seconds();
    if (t->way == STANDS || t->way == LENT_STANDS)
        for (int i = 0; i < 2000 && is_awaited(t); i++)
            poll(NULL, 0, 10);
    else if (t->way == ERROR || t->way == LENT_ERROR) {
        stand_in_error();
        for (int i = 0; i < 500 && !me.comm->lost(me.comm, NULL, NULL, 0); i++)
            poll(NULL, 0, 10);
    } else
        me.comm->fail(me.comm, KCP_CUDA, "its device is on fire");
    if (t->way == LENT_ABORTS && !me.in_group)         /* else when it has ended */
        owner_ends();
}

static int is_lent(const struct trial *t) { return t->way >= LENT_STANDS; }

static int lose_rank(struct kcp_comm *host, void *arg)
{
    struct trial *t = arg;
    const int r = host->r;
    struct seen *x = &t->seen[r];
    struct kcp_comm *comm = host;
    ncclComm_t at = NULL;
    if (is_lent(t) && (cudaSetDevice(r) ||
                       !(at = lend(&t->meet, t->R, r, t->at % 2)) ||
                       kcp_nccl_from(&comm, at)))
        return KCP_CUDA;
    calls_wait(comm, at);
    me.arg = t;
    me.stuck = 0.2;
    if (t->way == IN_GROUP && r == LOST)
        me.in_its_group = abort_in_group;
    else if (t->way != NOBODY && r == LOST) {
        me.at = t->at;
        me.strike = strike;
    }
    x->status = pass_on(comm, t->a[r], t->R, (enum kcp_form)t->form);
    x->seconds = monotonic_seconds() - t->began;
    x->lost = -1;
    comm->lost(comm, &x->lost, x->why, sizeof x->why);
    x->wrong = x->status ? 0 : wrong_rows(t->a[r], t->R, r, (enum kcp_form)t->form);
    if (r == LOST)
        t->calls = me.calls;
    else
        t->ended++;
    if (t->way == IN_GROUP && r == LOST)
        pthread_join(outsider, NULL);
    calls_as_before();
    if (!at)
        return KCP_OK;
    comm->free(comm);
    owner_ends();
    return KCP_OK;
}

static int run(struct trial *t)
{
    char why[200] = "";
    memset(&t->meet, 0, sizeof t->meet);
    t->ended = 0;
    t->began = monotonic_seconds();
    for (int r = 0; r < t->R; r++) {
        *t->a[r] = *layer_of_model[0];
        memset(&t->seen[r], 0, sizeof t->seen[r]);
    }
    const int status = is_lent(t)
        ? kcp_threads_run(t->R, lose_rank, t, why, sizeof why)
        : kcp_nccl_threads_run(t->R, lose_rank, t, why, sizeof why);
    /* A rank that failed is reported by the run too. */
    return status && t->way == NOBODY ? status : KCP_OK;
}

/* ---- what must hold */
/* The others know the lost rank by its number, unless a timeout is all they have. */
static int is_right(const struct trial *t, int r)
{
    const struct seen *x = &t->seen[r];
    const int by_name = t->way == FAILS || t->way == ERROR;
    const char *words = "made no progress for";
    if (t->way == NOBODY)
        return !x->status && x->lost == -1 && !x->wrong;
    if (t->way == FAILS || (r == LOST && t->way == LENT_ABORTS))
        words = "its device is on fire";
    if (t->way == ERROR || (r == LOST && t->way == LENT_ERROR))
        words = "an error of NCCL's stand-in";
    if (r == LOST && t->way == IN_GROUP)
        words = "its owner aborts it";
    if (x->status != KCP_COMM || !strstr(x->why, words))
        return r == LOST && t->way == LENT_STANDS && x->status;
    return x->seconds < MOST_SECONDS && (!by_name || x->lost == LOST);
}

static int judge(const struct trial *t, int status)
{
    int wrong = status != 0;
    if (status)
        printf("  FAIL  anew, %s: status %d\n", kcp_form_names[t->form], status);
    for (int r = 0; r < t->R && !status; r++) {
        const struct seen *x = &t->seen[r];
        if (is_right(t, r))
            continue;
        wrong++;
        printf("  FAIL  rank 1 of %d %s, %s, call %d: rank %d: status %d, lost %d, "
               "%.1f s, %d wrong: %s\n", t->R, way_names[t->way],
               kcp_form_names[t->form], t->at, r, x->status, x->lost, x->seconds,
               x->wrong, x->why);
    }
    return wrong;
}

struct held { int tasks; size_t bytes; };
static struct held held(void)
{
    struct held h;
    size_t total;
    h.tasks = entries("/proc/self/task");
    cudaMemGetInfo(&h.bytes, &total);
    return h;
}

/* A thread that was joined may be listed for a moment. */
static int is_given_back(struct held before)
{
    struct held now = held();
    for (int i = 0; i < 200 && now.tasks != before.tasks; i++) {
        poll(NULL, 0, 10);
        now = held();
    }
    if (now.tasks == before.tasks && now.bytes == before.bytes)
        return 1;
    printf("  FAIL  %d threads, then %d; %zu bytes are missing\n", before.tasks,
           now.tasks, before.bytes - now.bytes);
    return 0;
}

static int lose(struct trial *t, enum way way, int at)
{
    const struct held before = held();
    t->way = way;
    t->at = at;
    int wrong = judge(t, run(t));
    t->way = NOBODY;
    wrong += judge(t, run(t));             /* anew */
    return wrong + !is_given_back(before);
}

int lose_ranks(int how_many)
{
    struct trial t = { .R = 3 };
    int wrong = 0;
    for (int r = 0; r < MOST; r++)
        if (!(t.a[r] = malloc(sizeof *t.a[r])))
            return 1;
    setenv("KCP_TIMEOUT_S", how_many == FEW ? "5" : "1", 1);     /* FEW: sanitizers */
    for (t.form = 0; t.form < FORMS; t.form++) {
        if (how_many == FEW && t.form != KCP_CHAIN)
            continue;
        t.way = NOBODY;
        wrong += judge(&t, run(&t));
        const int calls = t.calls;
        for (int at = 2; at <= calls && how_many == ALL; at++)
            for (int way = STANDS; way < IN_GROUP; way++)
                wrong += lose(&t, way, at);
        for (int way = STANDS; way < IN_GROUP && how_many < ALL; way++)
            wrong += lose(&t, way, 2 + (3 * way + 5 * t.form) % (calls - 1));
        if (t.form != KCP_ALL_GATHER)
            wrong += lose(&t, IN_GROUP, 1);
    }
    unsetenv("KCP_TIMEOUT_S");
    for (int r = 0; r < MOST; r++)
        free(t.a[r]);
    return wrong;
}
