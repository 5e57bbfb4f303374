/* moves.c -- bytes between the ranks of a communicator: calls, groups, kernels.
 *
 * Book: chapter 20.  Checked by: ranks.c, bit for bit against threads.
 * Next: libnccl.c, communicators; cudart.c, on whose streams this runs.
 *
 * As NCCL's documents say: a call is on its stream when it has been polled for a while,
 * or at once where the communicator blocks. What waits for a rank that is gone waits
 * without end, and hangs its stream. */
#include "moves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Thread_local int depth;
static _Thread_local struct op *group;

void misuse(const char *call, const char *what)
{
    fprintf(stderr, "stand-in for NCCL: %s: %s\n", call, what);
    abort();
}

void nap(void)
{
    const struct timespec t = { 0, 50000 };
    nanosleep(&t, NULL);
}

void must_be(ncclComm_t c, const char *call)
{
    if (!c)
        misuse(call, "found no communicator");
    if (c->state == GONE)
        misuse(call, "the communicator is gone");
}

/* ---- moving bytes: as much as its box takes */
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
static int is_next(const struct move *all_moves, int i)
{
    for (int j = 0; j < i; j++)
        if (all_moves[j].bytes && all_moves[j].peer == all_moves[i].peer &&
            all_moves[j].is_send == all_moves[i].is_send)
            return 0;
    return 1;
}

static void run_moves(const struct op *op)
{
    struct move m[MOVES];
    memcpy(m, op->move, sizeof *m * (size_t)op->n);
    for (int left = 1; left && !op->comm->aborted;) {
        int moved = left = 0;
        for (int i = 0; i < op->n; i++) {
            if (m[i].bytes && is_next(m, i))
                moved |= step(op->comm, &m[i]);
            left |= m[i].bytes > 0;
        }
        if (left && !moved)
            nap();
    }
}

void drop(struct op *op)
{
    if (op)
        free(op->gathered);
    free(op);
}

/* A kernel, on its stream. */
static void run_op(void *arg)
{
    struct op *op = arg;
    ncclComm_t c = op->comm;
    pthread_mutex_lock(&c->lock);
    const int goes = !c->aborted && c->at;
    c->running += goes;
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; goes && op->part && i < op->numbers; i++)
        op->gathered[(size_t)c->r * op->numbers + i] = op->part[i];
    if (goes)
        run_moves(op);
    for (size_t i = 0; goes && op->part && i < op->numbers && !c->aborted; i++) {
        int sum = 0;
        for (int r = 0; r < c->R; r++)
            sum += op->gathered[(size_t)r * op->numbers + i];
        op->sum[i] = sum;
    }
    drop(op);
    pthread_mutex_lock(&c->lock);
    c->running -= goes;
    c->on_stream--;
    clear_away(c);
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
}

/* ---- onto the stream: at once, or when the caller has polled */
void launch(ncclComm_t c, struct op *op)
{
    int device;
    cudaGetDevice(&device);
    cudaSetDevice(c->device);
    c->on_stream++;
    cudaLaunchHostFunc(op->stream, run_op, op);
    cudaSetDevice(device);
}

static ncclResult_t submit(struct op *op)
{
    ncclComm_t c = op->comm;
    pthread_mutex_lock(&c->lock);
    if (c->state != THERE || c->waiting)
        misuse("a call", "the one before is still in progress");
    if (c->blocking)
        launch(c, op);
    else {
        c->waiting = op;
        c->polls = POLLS;
    }
    pthread_mutex_unlock(&c->lock);
    return c->blocking ? ncclSuccess : ncclInProgress;
}

static struct op *op_of(ncclComm_t c, cudaStream_t stream, const char *call)
{
    must_be(c, call);
    struct op *op = depth ? group : NULL;
    while (op && op->comm != c)
        op = op->in_group;
    if (op)
        return op;
    if (!(op = calloc(1, sizeof *op)))
        misuse(call, "no memory");
    op->comm = c;
    op->stream = stream;
    if (depth) {
        pthread_mutex_lock(&c->lock);
        c->in_group++;
        pthread_mutex_unlock(&c->lock);
        op->in_group = group;
        group = op;
    }
    return op;
}

static void add(struct op *op, int is_send, int peer, const void *at, size_t bytes)
{
    if (op->n == MOVES)
        misuse("a group", "more calls than the stand-in takes");
    op->move[op->n++] = (struct move){ is_send, peer, (char *)at, bytes };
}

/* KCP_STAND_IN_OPENS: others have time to do something while it opens. */
ncclResult_t ncclGroupStart(void)
{
    const struct timespec moment = { 0, 200000000 };
    depth++;
    if (getenv("KCP_STAND_IN_OPENS"))
        nanosleep(&moment, NULL);
    return ncclSuccess;
}

int stand_in_groups(void) { return depth; }

/* KCP_STAND_IN_DROPS: the first call of a group is left out: a mistake, planted. */
ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = ncclSuccess;
    if (!depth)
        misuse("ncclGroupEnd", "no group has begun");
    if (--depth)
        return ncclSuccess;
    while (group) {
        struct op *op = group;
        group = op->in_group;
        must_be(op->comm, "ncclGroupEnd");
        pthread_mutex_lock(&op->comm->lock);
        op->comm->in_group--;
        pthread_mutex_unlock(&op->comm->lock);
        if (getenv("KCP_STAND_IN_DROPS"))
            op->move[0].bytes = 0;
        const ncclResult_t one = submit(op);
        result = one ? one : result;
    }
    return result;
}

/* ---- calls */
ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int to,
                      ncclComm_t c, cudaStream_t stream)
{
    struct op *op = op_of(c, stream, "ncclSend");
    if (type != ncclChar || to < 0 || to >= c->R || to == c->r)
        misuse("ncclSend", "no such type or rank");
    add(op, 1, to, data, n);
    return depth ? ncclSuccess : submit(op);
}

ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int from, ncclComm_t c,
                      cudaStream_t stream)
{
    struct op *op = op_of(c, stream, "ncclRecv");
    if (type != ncclChar || from < 0 || from >= c->R || from == c->r)
        misuse("ncclRecv", "no such type or rank");
    add(op, 0, from, data, n);
    return depth ? ncclSuccess : submit(op);
}

struct own_row { void *to; const void *from; size_t n; };

static void put_own_row(void *arg)
{
    struct own_row *x = arg;
    if (x->to != x->from)
        memmove(x->to, x->from, x->n);
    free(x);
}

ncclResult_t ncclAllGather(const void *mine, void *rows, size_t n, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t stream)
{
    struct op *op = op_of(c, stream, "ncclAllGather");
    struct own_row *own = malloc(sizeof *own);
    if (type != ncclChar || !own || depth)
        misuse("ncclAllGather", "of characters, and in no group");
    *own = (struct own_row){ (char *)rows + (size_t)c->r * n, mine, n };
    for (int r = 0; r < c->R; r++) {
        if (r == c->r)
            continue;
        add(op, 1, r, mine, n);
        add(op, 0, r, (char *)rows + (size_t)r * n, n);
    }
    int device;
    cudaGetDevice(&device);
    cudaSetDevice(c->device);
    cudaLaunchHostFunc(stream, put_own_row, own);
    cudaSetDevice(device);
    return submit(op);
}

ncclResult_t ncclAllReduce(const void *mine, void *sum, size_t n, ncclDataType_t type,
                           ncclRedOp_t what, ncclComm_t c, cudaStream_t stream)
{
    struct op *op = op_of(c, stream, "ncclAllReduce");
    if (type != ncclInt || what != ncclSum || depth)
        misuse("ncclAllReduce", "of int, a sum, and in no group");
    op->part = mine;
    op->sum = sum;
    op->numbers = n;
    op->gathered = calloc((size_t)c->R * n + 1, sizeof(int));
    for (int r = 0; r < c->R && op->gathered; r++) {
        if (r == c->r)
            continue;
        add(op, 1, r, mine, n * sizeof(int));
        add(op, 0, r, op->gathered + (size_t)r * n, n * sizeof(int));
    }
    return op->gathered ? submit(op) : ncclSystemError;
}
