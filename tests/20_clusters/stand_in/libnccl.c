/* libnccl.c -- NCCL's calls between threads and processes of one machine, on its CPUs.
 *
 * Book: chapter 20.  Checked by: ranks.c, bit for bit against threads.
 * Next: cudart.c, on whose streams this runs.
 *
 * As NCCL's documents say: a call that does not block is in progress for a while, and
 * on its stream only then. What waits for a rank that is gone waits for ever, and hangs
 * its stream; nobody is told. An abort ends the calls of this rank alone. A caller who
 * uses a communicator that is gone, or aborts one inside a group, is stopped with one
 * line. Ranks meet in a file whose name is the id, in KCP_STAND_IN (/tmp). With
 * KCP_STAND_IN_CONNECTS=1 calls of a communicator that blocks connect, and hang when
 * their peer is gone. */
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, PIECE = 4096, SPLITS = 8, MOVES = 64, POLLS = 3 };

/* ---- what the ranks share: zero at first, and every word is written by one rank */
struct box { _Atomic uint64_t sent, taken; char piece[PIECE]; };
struct wish { atomic_int round, color, key; };
struct meeting {
    atomic_int here[RANKS];
    struct wish wish[SPLITS][RANKS];
    atomic_int called[2][RANKS][RANKS];    /* rank has called of peer; of a gather: 1 */
    struct box box[RANKS][RANKS];          /* from, to */
};

struct move { int is_send, peer; char *at; size_t bytes; };
struct op {
    struct op *next, *in_group;
    ncclComm_t comm;
    cudaStream_t stream;
    int n, captured, is_gather;
    struct move move[MOVES];
    const int *part;                       /* of a sum: this rank's, what is gathered */
    int *gathered, *sum;
    size_t numbers;
};

enum state { MEETS, THERE, SPLITS_NOW, GONE };
struct ncclComm {
    ncclComm_t next;                       /* of this process, the gone ones too */
    int R, r, device, blocking;
    char name[2 * 16 + 24];
    struct meeting *at;
    atomic_int aborted;
    pthread_mutex_t lock;
    pthread_cond_t change;
    /* under lock: */
    atomic_int state;                      /* enum state */
    int polls, on_stream, running, in_group, round, color, key;
    ncclComm_t *made;
    struct op *waiting, *captured;         /* for a poll; a graph's */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t all;
static _Thread_local int depth;
static _Thread_local struct op *group;

static void misuse(const char *call, const char *what)
{
    fprintf(stderr, "stand-in for NCCL: %s: %s\n", call, what);
    abort();
}

static void nap(void)
{
    const struct timespec t = { 0, 50000 };
    nanosleep(&t, NULL);
}

static void must_be(ncclComm_t c, const char *call)
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
    memcpy(m->is_send ? b->piece : m->at, m->is_send ? m->at : b->piece, n);
    m->at += n;
    m->bytes -= n;
    if (m->is_send)
        atomic_store(&b->sent, sent + 1);
    else
        atomic_store(&b->taken, taken + 1);
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

/* Nobody's any more, and nothing of it runs: what it held goes. Under lock. */
static void clear_away(ncclComm_t c)
{
    if (c->state == GONE && !c->running && c->at) {
        munmap(c->at, sizeof *c->at);
        c->at = NULL;
    }
}

static void drop(struct op *op)
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
    const int is_last = !op->captured;
    if (is_last)
        drop(op);
    pthread_mutex_lock(&c->lock);
    c->running -= goes;
    c->on_stream -= is_last;
    clear_away(c);
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
}

/* ---- onto the stream: at once, or when the caller has polled */
static void launch(ncclComm_t c, struct op *op)
{
    enum cudaStreamCaptureStatus capture;
    int device;
    cudaGetDevice(&device);
    cudaSetDevice(c->device);
    cudaStreamIsCapturing(op->stream, &capture);
    op->captured = capture != cudaStreamCaptureStatusNone;
    if (op->captured) {
        op->next = c->captured;
        c->captured = op;
    } else
        c->on_stream++;
    cudaLaunchHostFunc(op->stream, run_op, op);
    cudaSetDevice(device);
}

/* The first call of a kind makes a connection to its peers, for which a communicator
 * that blocks waits. 0: it was aborted meanwhile. */
static int connect_peers(const struct op *op)
{
    ncclComm_t c = op->comm;
    atomic_int (*called)[RANKS] = c->at->called[op->is_gather];
    pthread_mutex_lock(&c->lock);
    c->running++;                          /* an abort waits until this has ended */
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < op->n; i++)
        called[c->r][op->move[i].peer] = 1;
    for (int i = 0; i < op->n; i++)
        while (!called[op->move[i].peer][c->r] && !c->aborted)
            nap();
    pthread_mutex_lock(&c->lock);
    c->running--;
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
    return !c->aborted;
}

static ncclResult_t submit(struct op *op)
{
    ncclComm_t c = op->comm;
    if (c->blocking && getenv("KCP_STAND_IN_CONNECTS") && !connect_peers(op)) {
        drop(op);
        return ncclInternalError;
    }
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

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

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
    op->is_gather = 1;
    *own = (struct own_row){ (char *)rows + (size_t)c->r * n, mine, n };
    for (int r = 0; r < c->R; r++) {
        if (r == c->r)
            continue;
        add(op, 1, r, mine, n);
        add(op, 0, r, (char *)rows + (size_t)r * n, n);
    }
    enum cudaStreamCaptureStatus capture;
    cudaStreamIsCapturing(stream, &capture);
    if (capture != cudaStreamCaptureStatusNone)
        misuse("ncclAllGather", "the stand-in captures sends and receives alone");
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
    op->is_gather = 1;
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

/* ---- communicators */
static const char *path_of(const char *name, char *path, size_t n)
{
    const char *dir = getenv("KCP_STAND_IN");
    snprintf(path, n, "%s/nccl.%s", dir && *dir ? dir : "/tmp", name);
    return path;
}

static ncclComm_t begin(const char *name, int R, int r, int blocking)
{
    char path[300];
    ncclComm_t c = calloc(1, sizeof *c);
    const int fd = open(path_of(name, path, sizeof path), O_RDWR | O_CREAT | O_CLOEXEC,
                        0600);
    if (!c || fd < 0 || ftruncate(fd, sizeof *c->at))
        misuse("init", "no memory, or no file");
    c->at = mmap(NULL, sizeof *c->at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->at == MAP_FAILED || R > RANKS || r < 0 || r >= R)
        misuse("init", "no memory, or no such rank");
    c->R = R;
    c->r = r;
    c->blocking = blocking;
    c->polls = POLLS;
    snprintf(c->name, sizeof c->name, "%s", name);
    cudaGetDevice(&c->device);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->change, NULL);
    if (atomic_exchange(&c->at->here[r], 1))
        misuse("init", "this rank is there already");
    pthread_mutex_lock(&all_lock);
    c->next = all;
    all = c;
    pthread_mutex_unlock(&all_lock);
    return c;
}

static void forget_file(const ncclComm_t c)
{
    char path[300];
    unlink(path_of(c->name, path, sizeof path));
}

static int have_met(const ncclComm_t c)
{
    for (int r = 0; r < c->R; r++)
        if (!c->at->here[r])
            return 0;
    forget_file(c);
    return 1;
}

/* When all have said their color: those of ours, by key, then by rank. Under lock. */
static int have_split(ncclComm_t c)
{
    struct wish *w = c->at->wish[c->round % SPLITS];
    int R = 0, r = 0;
    char name[sizeof c->name];
    for (int i = 0; i < c->R; i++)
        if (w[i].round != c->round)
            return 0;
    for (int i = 0; i < c->R; i++) {
        const int before = w[i].key < c->key || (w[i].key == c->key && i < c->r);
        R += w[i].color == c->color;
        r += w[i].color == c->color && before;
    }
    snprintf(name, sizeof name, "%.32s.%d.%d", c->name, c->round, c->color);
    *c->made = c->color < 0 ? NULL : begin(name, R, r, c->blocking);
    return 1;
}

/* KCP_STAND_IN_NOTICES: a file says that another rank is gone, as sockets may. */
static int notices(const ncclComm_t c)
{
    char path[320];
    if (!getenv("KCP_STAND_IN_NOTICES"))
        return 0;
    path_of(c->name, path, sizeof path - sizeof ".gone");
    return !access(strcat(path, ".gone"), F_OK);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *result)
{
    must_be(c, "ncclCommGetAsyncError");
    pthread_mutex_lock(&c->lock);
    const int is_early = c->polls > 0 && c->polls-- > 1;
    if (!is_early && c->state == MEETS && have_met(c))
        c->state = THERE;
    if (!is_early && c->state == SPLITS_NOW && have_split(c))
        c->state = THERE;
    if (!is_early && c->state == THERE && c->waiting) {
        struct op *op = c->waiting;
        c->waiting = NULL;
        launch(c, op);
    }
    *result = is_early || c->state != THERE ? ncclInProgress : ncclSuccess;
    if (notices(c))
        *result = ncclRemoteError;
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;
}

static ncclResult_t until_done(ncclComm_t c)
{
    ncclResult_t result = ncclInProgress;
    while (c->blocking && result == ncclInProgress) {
        ncclCommGetAsyncError(c, &result);
        nap();
    }
    return result;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    unsigned char random[16];
    memset(id, 0, sizeof *id);
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const int ok = fd >= 0 && read(fd, random, sizeof random) == sizeof random;
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(id->internal + 2 * i, 3, "%02x", random[i]);
    return ok ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int R, ncclUniqueId id, int r,
                                    ncclConfig_t *config)
{
    *c = begin(id.internal, R, r, config->blocking);
    return until_done(*c);
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config)
{
    must_be(c, "ncclCommSplit");
    pthread_mutex_lock(&c->lock);
    if (c->state != THERE || c->waiting || c->blocking || config->blocking)
        misuse("ncclCommSplit", "in progress, or blocking: not in the stand-in");
    struct wish *w = &c->at->wish[++c->round % SPLITS][c->r];
    c->state = SPLITS_NOW;
    c->polls = POLLS;
    c->color = color;
    c->key = key;
    c->made = made;
    w->color = color;
    w->key = key;
    w->round = c->round;
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;                    /* which is too early, as the real one's */
}

/* Calls that have not begun will find that they shall not; those that run end now. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    must_be(c, "ncclCommAbort");
    pthread_mutex_lock(&c->lock);
    if (c->in_group)
        misuse("ncclCommAbort", "inside a group");
    c->aborted = 1;
    while (c->running)
        pthread_cond_wait(&c->change, &c->lock);
    drop(c->waiting);
    c->waiting = NULL;
    c->state = GONE;
    forget_file(c);
    clear_away(c);
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    must_be(c, "ncclCommFinalize");
    pthread_mutex_lock(&c->lock);
    while (c->on_stream)
        pthread_cond_wait(&c->change, &c->lock);
    c->polls = POLLS;
    pthread_mutex_unlock(&c->lock);
    return until_done(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    must_be(c, "ncclCommDestroy");
    pthread_mutex_lock(&c->lock);
    while (c->on_stream)
        pthread_cond_wait(&c->change, &c->lock);
    c->state = GONE;
    clear_away(c);
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *R)
{
    must_be(c, "ncclCommCount");
    *R = c->R;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *r)
{
    must_be(c, "ncclCommUserRank");
    *r = c->r;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInvalidUsage ? "invalid usage" : "an error of NCCL's stand-in";
}
