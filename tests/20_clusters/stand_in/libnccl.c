/* libnccl.c -- NCCL's communicators between threads of one process.
 *
 * Book: chapter 20.  Checked by: ranks.c, bit for bit against threads.
 * Next: moves.c, what goes over them.
 *
 * As NCCL's documents say: a communicator that does not block is in progress for a
 * while. An abort ends the calls of this rank alone. A caller who uses a communicator
 * that is gone, or aborts one inside a group, is stopped with one line. */
#include "moves.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct meeting *meetings;
static ncclComm_t all;

/* The ranks with one name share a meeting; the last of them frees it. */
static struct meeting *meet(const char *name)
{
    struct meeting *m = meetings;
    while (m && strcmp(m->name, name))
        m = m->next;
    if (!m && (m = calloc(1, sizeof *m))) {
        snprintf(m->name, sizeof m->name, "%s", name);
        m->next = meetings;
        meetings = m;
    }
    return m;
}

static ncclComm_t begin(const char *name, int R, int r, int blocking)
{
    ncclComm_t c = calloc(1, sizeof *c);
    pthread_mutex_lock(&all_lock);
    if (!c || !(c->at = meet(name)) || R > RANKS || r < 0 || r >= R)
        misuse("init", "no memory, or no such rank");
    c->at->users++;
    c->R = R;
    c->r = r;
    c->blocking = blocking;
    c->polls = POLLS;
    cudaGetDevice(&c->device);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->change, NULL);
    if (atomic_exchange(&c->at->here[r], 1))
        misuse("init", "this rank is there already");
    c->next = all;
    all = c;
    pthread_mutex_unlock(&all_lock);
    return c;
}

/* The communicator itself stays, so that its later use is found. Under its lock. */
void clear_away(ncclComm_t c)
{
    if (c->state != GONE || c->running || !c->at)
        return;
    pthread_mutex_lock(&all_lock);
    if (!--c->at->users)
        for (struct meeting **m = &meetings; *m; m = &(*m)->next)
            if (*m == c->at) {
                *m = c->at->next;
                free(c->at);
                break;
            }
    c->at = NULL;
    pthread_mutex_unlock(&all_lock);
}

/* Of this thread's device: what NCCL says of itself from now on. */
void stand_in_error(void)
{
    int device;
    cudaGetDevice(&device);
    pthread_mutex_lock(&all_lock);
    for (ncclComm_t c = all; c; c = c->next)
        if (c->device == device && c->state != GONE)
            c->is_broken = 1;
    pthread_mutex_unlock(&all_lock);
}

static int have_met(const ncclComm_t c)
{
    for (int r = 0; r < c->R; r++)
        if (!c->at->here[r])
            return 0;
    return 1;
}

/* When all have said their color: those of ours, by key, then by rank. Under lock. */
static int have_split(ncclComm_t c)
{
    struct wish *w = c->at->wish[c->round % SPLITS];
    int R = 0, r = 0;
    char name[sizeof c->at->name];
    for (int i = 0; i < c->R; i++)
        if (w[i].round != c->round)
            return 0;
    for (int i = 0; i < c->R; i++) {
        const int before = w[i].key < c->key || (w[i].key == c->key && i < c->r);
        R += w[i].color == c->color;
        r += w[i].color == c->color && before;
    }
    snprintf(name, sizeof name, "%.32s.%d.%d", c->at->name, c->round, c->color);
    *c->made = c->color < 0 ? NULL : begin(name, R, r, c->blocking);
    return 1;
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
    if (c->is_broken)
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
