/* libnccl.c -- NCCL between threads of one process, with calls that are in progress.
 *
 * Book: chapter 20.  Checked by: ranks.c, bit for bit against threads.
 * Next: cudart.c, on whose streams this runs.
 *
 * As NCCL's documents say: a communicator that does not block is in progress for a few
 * polls, and so is a call, before it is on its stream. A call that waits for a lost
 * rank hangs its stream until this rank aborts. A caller that uses an aborted
 * communicator, or aborts one inside a group, ends the process with one line. Neither
 * communicators nor what their ranks share are freed, so that later use is found. */
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { RANKS = 8, PIECE = 4096, MOVES = 64, POLLS = 3 };

/* What the ranks share: zero at first. */
struct box { _Atomic uint64_t sent, taken; char piece[PIECE]; };
struct meeting {
    struct meeting *next;
    char name[56];
    atomic_int here, splits;
    int color[RANKS], key[RANKS];          /* written before splits counts them */
    struct box box[RANKS][RANKS];          /* from, to */
};

struct move { int is_send, peer; char *at; size_t bytes; };
struct op {
    ncclComm_t comm;
    cudaStream_t stream;
    int n, part[RANKS], *sum;              /* of a sum; else NULL */
    const void *mine;                      /* to own: this rank's row, or its part */
    char *own;
    size_t bytes;
    struct move move[MOVES];
};

struct ncclComm {
    ncclComm_t next;                       /* of all */
    int R, r;
    struct meeting *at;
    ncclComm_t *made;                      /* of a split */
    pthread_mutex_t lock;
    pthread_cond_t change;
    atomic_int aborted, broken;
    int gone, polls, launched, running, in_group;        /* under lock */
    struct op *waiting;                    /* for a poll */
};

void stand_in_error(ncclComm_t c) __attribute__((visibility("default")));
int  stand_in_groups(void) __attribute__((visibility("default")));
int  stand_in_alive(void) __attribute__((visibility("default")));

static pthread_mutex_t meetings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct meeting *meetings;
static ncclComm_t all;
static atomic_int alive;
static _Thread_local int depth;
static _Thread_local struct op *group;

static void misuse(const char *call, const char *what)
{
    fprintf(stderr, "stand-in for NCCL: %s: %s\n", call, what);
    abort();
}

/* Locked: under its lock from then on. */
static void lock(ncclComm_t c, const char *call)
{
    if (!c)
        misuse(call, "found no communicator");
    pthread_mutex_lock(&c->lock);
    if (c->gone)
        misuse(call, "the communicator is gone");
}

static int unlock(ncclComm_t c)
{
    pthread_cond_broadcast(&c->change);
    return pthread_mutex_unlock(&c->lock);
}

/* ---- moving bytes: as many as the box between two ranks takes */
static int step(const ncclComm_t c, struct move *m)
{
    struct box *b = m->is_send ? &c->at->box[c->r][m->peer]
                               : &c->at->box[m->peer][c->r];
    const uint64_t sent = atomic_load(&b->sent), taken = atomic_load(&b->taken);
    const size_t n = m->bytes < PIECE ? m->bytes : PIECE;
    if (m->is_send ? sent != taken : sent == taken)
        return 0;
    if (m->is_send) {
        memcpy(b->piece, m->at, n);
        atomic_store(&b->sent, sent + 1);
    } else {
        memcpy(m->at, b->piece, n);
        atomic_store(&b->taken, taken + 1);
    }
    m->at += n;
    m->bytes -= n;
    return 1;
}

/* A box keeps its order: of two moves through it the first is done first. */
static int is_next(const struct move *m, int i)
{
    for (int j = 0; j < i; j++)
        if (m[j].bytes && m[j].peer == m[i].peer && m[j].is_send == m[i].is_send)
            return 0;
    return 1;
}

static void run_moves(struct op *op)
{
    const struct timespec moment = { 0, 50000 };
    struct move *m = op->move;
    if (op->own && op->own != op->mine)
        memcpy(op->own, op->mine, op->bytes);
    for (int left = 1; left && !op->comm->aborted;) {
        int moved = left = 0;
        for (int i = 0; i < op->n; i++) {
            if (m[i].bytes && is_next(m, i))
                moved |= step(op->comm, &m[i]);
            left |= m[i].bytes > 0;
        }
        if (left && !moved)
            nanosleep(&moment, NULL);
    }
    if (!op->sum || op->comm->aborted)
        return;
    *op->sum = 0;
    for (int r = 0; r < op->comm->R; r++)
        *op->sum += op->part[r];
}

/* A kernel, on its stream. */
static void run_op(void *arg)
{
    struct op *op = arg;
    ncclComm_t c = op->comm;
    pthread_mutex_lock(&c->lock);
    const int goes = !c->aborted;
    c->running = goes;
    unlock(c);
    if (goes)
        run_moves(op);
    free(op);
    pthread_mutex_lock(&c->lock);
    c->running = 0;
    c->launched--;
    unlock(c);
}

/* ---- calls: an operation, to its stream when the caller has polled */
static struct op *op_of(ncclComm_t c, cudaStream_t stream, const char *call)
{
    struct op *op = group ? group : calloc(1, sizeof *op);
    if (!op || (group && group->comm != c))
        misuse(call, "no memory, or two communicators in a group");
    lock(c, call);
    if (c->waiting)
        misuse(call, "the call before is still in progress");
    c->in_group = depth;
    unlock(c);
    op->comm = c;
    op->stream = stream;
    group = depth ? op : NULL;
    return op;
}

static void add(struct op *op, int is_send, int peer, const void *at, size_t bytes)
{
    if (op->n == MOVES || peer < 0 || peer >= op->comm->R || peer == op->comm->r)
        misuse("a call", "too many in a group, or no such rank");
    op->move[op->n++] = (struct move){ is_send, peer, (char *)at, bytes };
}

static ncclResult_t submit(struct op *op)
{
    lock(op->comm, "a call");
    op->comm->in_group = 0;
    op->comm->waiting = op;
    op->comm->polls = POLLS;
    unlock(op->comm);
    return ncclInProgress;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

int stand_in_groups(void) { return depth; }

/* KCP_STAND_IN_DROPS: the first call of a group is left out: a mistake, planted. */
ncclResult_t ncclGroupEnd(void)
{
    struct op *op = group;
    if (depth != 1)
        misuse("ncclGroupEnd", "no group has begun, or several");
    depth = 0;
    group = NULL;
    if (op && getenv("KCP_STAND_IN_DROPS"))
        op->move[0].bytes = 0;
    return op ? submit(op) : ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int to,
                      ncclComm_t c, cudaStream_t stream)
{
    struct op *op = op_of(c, stream, "ncclSend");
    add(op, 1, to, data, n);
    return depth ? ncclSuccess : submit(op);
}

ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int from, ncclComm_t c,
                      cudaStream_t stream)
{
    struct op *op = op_of(c, stream, "ncclRecv");
    add(op, 0, from, data, n);
    return depth ? ncclSuccess : submit(op);
}

static ncclResult_t gather(struct op *op, const void *mine, void *rows, size_t n)
{
    const int r = op->comm->r;
    if (depth)
        misuse("a collective", "inside a group: not in the stand-in");
    op->mine = mine;
    op->own = (char *)rows + (size_t)r * n;
    op->bytes = n;
    for (int i = 0; i < op->comm->R; i++)
        if (i != r) {
            add(op, 1, i, mine, n);
            add(op, 0, i, (char *)rows + (size_t)i * n, n);
        }
    return submit(op);
}

ncclResult_t ncclAllGather(const void *mine, void *rows, size_t n, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t stream)
{
    return gather(op_of(c, stream, "ncclAllGather"), mine, rows, n);
}

ncclResult_t ncclAllReduce(const void *mine, void *sum, size_t n, ncclDataType_t type,
                           ncclRedOp_t what, ncclComm_t c, cudaStream_t stream)
{
    struct op *op = op_of(c, stream, "ncclAllReduce");
    if (type != ncclInt || what != ncclSum || n != 1)
        misuse("ncclAllReduce", "expected a sum of one int");
    op->sum = sum;
    return gather(op, mine, op->part, sizeof(int));
}

/* ---- communicators. The ranks with one name share a meeting. */
static ncclComm_t begin(const char *name, int R, int r)
{
    ncclComm_t c = calloc(1, sizeof *c);
    pthread_mutex_lock(&meetings_lock);
    struct meeting *m = meetings;
    while (m && strcmp(m->name, name))
        m = m->next;
    if (!c || R > RANKS || r < 0 || r >= R || (!m && !(m = calloc(1, sizeof *m))))
        misuse("init", "no memory, or no such rank");
    if (!m->name[0]) {
        snprintf(m->name, sizeof m->name, "%s", name);
        m->next = meetings;
        meetings = m;
    }
    *c = (struct ncclComm){ .next = all, .R = R, .r = r, .at = m, .polls = POLLS };
    all = c;
    pthread_mutex_unlock(&meetings_lock);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->change, NULL);
    m->here++;
    alive++;
    return c;
}

/* When all ranks have named a color: a communicator of those with ours, by key. */
static int has_split(ncclComm_t c)
{
    const struct meeting *m = c->at;
    const int color = m->color[c->r], key = m->key[c->r];
    int R = 0, r = 0;
    char name[sizeof m->name];
    if (!c->made)
        return 1;
    if (m->splits < c->R)
        return 0;
    for (int i = 0; i < c->R; i++) {
        R += m->color[i] == color;
        r += m->color[i] == color && m->key[i] < key;
    }
    snprintf(name, sizeof name, "%.32s.%d", m->name, color);
    *c->made = begin(name, R, r);
    c->made = NULL;
    return 1;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *result)
{
    lock(c, "ncclCommGetAsyncError");
    const int is_early = c->polls > 0 || c->at->here < c->R || !has_split(c);
    c->polls -= c->polls > 0;
    if (!is_early && c->waiting) {
        c->launched++;
        cudaLaunchHostFunc(c->waiting->stream, run_op, c->waiting);
        c->waiting = NULL;
    }
    *result = is_early ? ncclInProgress : ncclSuccess;
    if (c->broken)
        *result = ncclRemoteError;
    unlock(c);
    return ncclSuccess;
}

void stand_in_error(ncclComm_t c) { c->broken = 1; }

int stand_in_alive(void) { return alive; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%016llx%016llx",
             (unsigned long long)random[0], (unsigned long long)random[1]);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int R, ncclUniqueId id, int r,
                                    ncclConfig_t *config)
{
    *c = begin(id.internal, R, r);
    return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config)
{
    lock(c, "ncclCommSplit");
    if (c->at->splits >= c->R || color < 0)
        misuse("ncclCommSplit", "the second split, or no color: not in the stand-in");
    c->at->color[c->r] = color;
    c->at->key[c->r] = key;
    c->made = made;
    c->polls = POLLS;
    c->at->splits++;
    unlock(c);
    return ncclSuccess;                    /* which is too early, as the real one's */
}

/* Operations that have not begun will not; one that runs ends now. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    lock(c, "ncclCommAbort");
    if (c->in_group)
        misuse("ncclCommAbort", "inside a group");
    c->aborted = 1;
    while (c->running)
        pthread_cond_wait(&c->change, &c->lock);
    free(c->waiting);
    c->waiting = NULL;
    c->gone = 1;
    alive--;
    unlock(c);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    lock(c, "ncclCommFinalize");
    while (c->launched)
        pthread_cond_wait(&c->change, &c->lock);
    c->polls = POLLS;
    unlock(c);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    lock(c, "ncclCommDestroy");
    c->gone = 1;
    alive--;
    unlock(c);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *R)
{
    *R = c->R;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *r)
{
    *r = c->r;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return "an error of NCCL's stand-in";
}
