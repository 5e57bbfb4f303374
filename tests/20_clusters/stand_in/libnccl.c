/* libnccl.c -- NCCL between threads of one process, with asynchronous calls.
 *
 * Book: chapter 20.  Checked by: ranks.c, bit for bit against threads.
 * Next: cudart.c, on whose streams this runs.
 *
 * As in NCCL, a non-blocking communicator, and each call before it is on the stream,
 * is in progress for a few polls. A call that waits for a lost rank blocks its
 * stream until the calling rank aborts. Use of an aborted communicator, or an abort
 * inside a group, ends the process with one line. Communicators are never freed, so
 * that later use is found. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, MOVES = 64, POLLS = 3, SPLITS = 2 };

struct move { struct move *next; int is_send, is_done, peer; char *at; size_t bytes; };
struct op {
    ncclComm_t comm;
    cudaStream_t stream;
    int n, part[RANKS], *sum;              /* sum: NULL if no sum */
    const void *mine;                      /* this rank's row or part, copied to own */
    char *own;
    size_t bytes;
    struct move move[MOVES];
};

struct ncclComm {
    int R, r;
    struct world *in;
    ncclComm_t *made;                      /* of a split in progress */
    int splits, color[SPLITS], key[SPLITS];
    int blocking, aborted, broken, gone, polls, launched, in_group;
    struct op *waiting;                    /* launched by a poll */
};

/* Shared by the ranks of a communicator; the address is the NCCL id. */
struct world {
    struct world *next, *part[SPLITS][RANKS];            /* list; by color */
    int here;
    struct ncclComm rank[RANKS];
    struct move *sent[RANKS][RANKS];       /* from, to: in the sender's memory */
};

/* One lock for all communicators. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct world *worlds;
static int alive;
static _Thread_local int depth;
static _Thread_local struct op *group;

static void misuse(const char *call, const char *what)
{
    fprintf(stderr, "stand-in for NCCL: %s: %s\n", call, what);
    abort();
}

static void lock(ncclComm_t c, const char *call)
{
    pthread_mutex_lock(&mutex);
    if (!c || c->gone)
        misuse(call, "no communicator, or one that is gone");
}

static void unlock(void)
{
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&mutex);
}

/* ---- an operation on a stream: sends are posted, receives copy from the sender */
static void post(ncclComm_t c, struct move *m)
{
    struct move **end = &c->in->sent[c->r][m->peer];
    while (*end)
        end = &(*end)->next;
    *end = m;
    pthread_cond_broadcast(&change);
}

static void receive(ncclComm_t c, struct move *m)
{
    struct move **from = &c->in->sent[m->peer][c->r];
    while (!*from && !c->aborted)
        pthread_cond_wait(&change, &mutex);
    if (c->aborted)
        return;
    memcpy(m->at, (*from)->at, m->bytes);
    (*from)->is_done = 1;
    *from = (*from)->next;
    pthread_cond_broadcast(&change);
}

static void run_moves(struct op *op)
{
    ncclComm_t c = op->comm;
    struct move *m = op->move;
    for (int i = 0; i < op->n && !c->aborted; i++)
        if (m[i].bytes && m[i].is_send)
            post(c, &m[i]);
    for (int i = 0; i < op->n && !c->aborted; i++)
        if (m[i].bytes && !m[i].is_send)
            receive(c, &m[i]);
    for (int i = 0; i < op->n; i++)
        while (m[i].bytes && m[i].is_send && !m[i].is_done && !c->aborted)
            pthread_cond_wait(&change, &mutex);
}

static void run_op(void *arg)
{
    struct op *op = arg;
    ncclComm_t c = op->comm;
    pthread_mutex_lock(&mutex);
    if (!c->aborted && op->own && op->own != op->mine)
        memcpy(op->own, op->mine, op->bytes);
    run_moves(op);
    if (op->sum && !c->aborted)
        *op->sum = 0;
    for (int r = 0; r < c->R && op->sum && !c->aborted; r++)
        *op->sum += op->part[r];
    c->launched--;
    free(op);
    unlock();
}

/* ---- calls: an operation is put on the stream after some polls */
static struct op *op_of(ncclComm_t c, cudaStream_t stream, const char *call)
{
    struct op *op = group ? group : calloc(1, sizeof *op);
    if (!op || (group && group->comm != c))
        misuse(call, "out of memory, or two communicators in a group");
    lock(c, call);
    if (c->waiting)
        misuse(call, "the call before is still in progress");
    c->in_group = depth;
    unlock();
    op->comm = c;
    op->stream = stream;
    group = depth ? op : NULL;
    return op;
}

static void add(struct op *op, int is_send, int peer, const void *at, size_t bytes)
{
    if (op->n == MOVES || peer < 0 || peer >= op->comm->R || peer == op->comm->r)
        misuse("a call", "too many in a group, or no such rank");
    op->move[op->n++] = (struct move){ NULL, is_send, 0, peer, (char *)at, bytes };
}

static void launch(ncclComm_t c)
{
    c->launched++;
    cudaLaunchHostFunc(c->waiting->stream, run_op, c->waiting);
    c->waiting = NULL;
}

static ncclResult_t submit(struct op *op)
{
    ncclComm_t c = op->comm;
    lock(c, "a call");
    c->in_group = 0;
    c->waiting = op;
    c->polls = POLLS;
    if (c->blocking)
        launch(c);
    unlock();
    return c->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

int stand_in_groups(void) { return depth; }

/* KCP_STAND_IN_DROPS plants a mistake: the first call of a group is left out. */
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

/* ---- communicators */
static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        misuse("init", "out of memory");
    w->next = worlds;
    worlds = w;
    return w;
}

static ncclComm_t begin(struct world *w, int R, int r)
{
    if (R > RANKS || r < 0 || r >= R || w->rank[r].in)
        misuse("init", "no such rank, or a second one");
    w->rank[r] = (struct ncclComm){ .R = R, .r = r, .in = w, .polls = POLLS };
    w->here++;
    alive++;
    return &w->rank[r];
}

/* Returns 1 when all ranks have given a color, and makes the communicator of the ranks
 * with this rank's color, in the order of keys. */
static int has_split(ncclComm_t c)
{
    const int n = c->splits - 1, color = c->made ? c->color[n] : 0;
    struct world *w = c->in;
    int R = 0, r = 0;
    for (const struct ncclComm *x = w->rank; c->made && x < w->rank + c->R; x++) {
        if (x->splits <= n)
            return 0;
        R += x->color[n] == color;
        r += x->color[n] == color && x->key[n] * c->R + x->r < c->key[n] * c->R + c->r;
    }
    if (c->made && color >= 0) {
        if (!w->part[n][color])
            w->part[n][color] = world_new();
        *c->made = begin(w->part[n][color], R, r);
    }
    c->made = NULL;
    return 1;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *result)
{
    lock(c, "ncclCommGetAsyncError");
    const int is_early = c->polls > 0 || c->in->here < c->R || !has_split(c);
    c->polls -= c->polls > 0;
    if (!is_early && c->waiting)
        launch(c);
    *result = is_early ? ncclInProgress : ncclSuccess;
    if (c->broken)
        *result = ncclRemoteError;
    unlock();
    return ncclSuccess;
}

void stand_in_error(ncclComm_t c)
{
    lock(c, "stand_in_error");
    c->broken = 1;
    unlock();
}

int stand_in_alive(void) { return alive; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    pthread_mutex_lock(&mutex);
    const struct world *w = world_new();
    unlock();
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &w, sizeof w);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int R, ncclUniqueId id, int r,
                                    ncclConfig_t *config)
{
    struct world *w;
    memcpy(&w, id.internal, sizeof w);
    pthread_mutex_lock(&mutex);
    *c = begin(w, R, r);
    (*c)->blocking = config->blocking;
    pthread_cond_broadcast(&change);
    while (config->blocking && w->here < R)
        pthread_cond_wait(&change, &mutex);
    unlock();
    return config->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config)
{
    lock(c, "ncclCommSplit");
    if (c->splits == SPLITS || color >= RANKS)
        misuse("ncclCommSplit", "a third split, or another color: not in the stand-in");
    c->color[c->splits] = color;
    c->key[c->splits++] = key;
    c->made = made;
    *made = NULL;
    c->polls = POLLS;
    unlock();
    return ncclSuccess;                    /* the split is not complete yet */
}

static ncclResult_t end(ncclComm_t c)
{
    c->gone = 1;
    alive--;
    unlock();
    return ncclSuccess;
}

/* Cancels operations that have not begun. A running operation ends and no longer
 * accesses memory; operations of other ranks no longer access this rank's memory. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    lock(c, "ncclCommAbort");
    if (c->in_group)
        misuse("ncclCommAbort", "inside a group");
    c->aborted = 1;
    memset(c->in->sent[c->r], 0, sizeof c->in->sent[c->r]);
    free(c->waiting);
    c->waiting = NULL;
    return end(c);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    lock(c, "ncclCommFinalize");
    while (c->launched)
        pthread_cond_wait(&change, &mutex);
    c->polls = POLLS;
    unlock();
    return c->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    lock(c, "ncclCommDestroy");
    return end(c);
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
