/* nccl_left.c -- a window after a failure: kept until nobody can write it any more.
 *
 * Book: chapter 20, "Code: kernels".  Checked by: tests/20_clusters/left.c.
 * Next: comm/backend/nccl_windows.c.
 *
 * When ranks end together a barrier says that no kernel of theirs is on its way. After
 * a failure there is none. So a rank that goes waits for its own kernels, then writes
 * into every window it could reach that it has left. A window is given back when every
 * other rank has left, or its process has ended: the driver has cleared it away before
 * the system calls it a zombie. */
#ifdef KCP_WITH_NCCL
#include "nccl.h"
#include "core/window.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEFT_WAITS = 100, LEFT_WAIT_MS = 20 };     /* two seconds, for those who come */

struct left_window {
    struct left_window *next;
    int device;
    void *at;
    int *lost;
    struct kcp_window w;
    struct window_process process[KCP_WINDOW_RANKS];
};

static struct left_window *kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- processes: a number that is used again began at another time */

/* State and beginning of a process. 0: there is none. */
static int ask_process(int pid, char *state, unsigned long long *began)
{
    char name[40], text[1024];
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    const int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *at = strrchr(text, ')');               /* a name may have any letter */
    return at && sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u "
                        "%*d %*d %*d %*d %*d %*d %llu", state, began) == 2;
}

struct window_process window_process_here(void)
{
    struct window_process me = { 0 };
    struct stat space;
    char state;
    unsigned long long began;
    if (!stat("/proc/self/ns/pid", &space) && ask_process(getpid(), &state, &began)) {
        me.pid = getpid();
        me.began = began;
        me.space = (uint64_t)space.st_ino;
    }
    return me;
}

int window_process_ended(const struct window_process *p)
{
    const struct window_process me = window_process_here();
    char state;
    unsigned long long began;
    if (!p->pid || !me.pid || p->space != me.space)
        return 0;                                      /* nothing is known of it */
    errno = 0;
    if (!ask_process(p->pid, &state, &began))
        return errno == ENOENT || errno == ESRCH;
    return state == 'Z' || state == 'X' || began != p->began;
}

/* ---- windows */

static char *word_of(const struct kcp_window *w, int of, int r)
{
    return (char *)w->at[of] + kcp_window_bytes(w->R, w->blocks) + sizeof(int) * r;
}

static int is_free(const struct left_window *x)
{
    int left[KCP_WINDOW_RANKS] = { 0 };
    if (cudaMemcpy(left, word_of(&x->w, x->w.r, 0), sizeof(int) * (size_t)x->w.R,
                   cudaMemcpyDeviceToHost)) {
        cudaGetLastError();
        return 0;
    }
    for (int r = 0; r < x->w.R; r++)
        if (r != x->w.r && !left[r] && !window_process_ended(&x->process[r]))
            return 0;
    return 1;
}

/* The kept windows of this GPU, off the list. */
static struct left_window *take_kept(int device)
{
    struct left_window *mine = NULL;
    pthread_mutex_lock(&lock);
    for (struct left_window **at = &kept; *at;) {
        struct left_window *x = *at;
        if (x->device != device) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        x->next = mine;
        mine = x;
    }
    pthread_mutex_unlock(&lock);
    return mine;
}

static void keep(struct left_window *x)
{
    pthread_mutex_lock(&lock);
    x->next = kept;
    kept = x;
    pthread_mutex_unlock(&lock);
}

/* Frees the windows of this GPU that no rank writes any more; returns how many others
 * the GPU has. A copy and a free wait for their GPU, which may itself wait for a rank:
 * so each rank does this for its own GPU, and without the lock. */
static int give_back(int device)
{
    int n = 0;
    for (struct left_window *x = take_kept(device), *next; x; x = next) {
        next = x->next;
        if (!is_free(x)) {
            keep(x);
            n++;
            continue;
        }
        cudaFree(x->at);
        cudaFreeHost(x->lost);
        free(x);
    }
    cudaGetLastError();
    return n;
}

void windows_left_before(int device) { give_back(device); }

void window_leave(struct nccl_rank *w)
{
    const struct kcp_window *x = &w->window;
    const int left = 1;
    struct left_window *mine = calloc(1, sizeof *mine);
    if (x->lost)
        *(volatile int *)x->lost = 1;
    cudaDeviceSynchronize();                           /* no kernel of ours writes */
    for (int r = 0; r < x->R; r++)
        if (r != x->r && x->at[r] && !window_process_ended(&w->process[r]))
            cudaMemcpy(word_of(x, r, x->r), &left, sizeof left, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
    cudaGetLastError();
    if (!mine || !x->at[x->r])
        free(mine);
    else {
        *mine = (struct left_window){ .device = w->device, .at = x->at[x->r],
                                      .lost = x->lost, .w = *x };
        memcpy(mine->process, w->process, sizeof mine->process);
        keep(mine);
    }
    for (int i = 0; i < LEFT_WAITS && give_back(w->device); i++)
        poll(NULL, 0, LEFT_WAIT_MS);
}
#endif
typedef int kcp_nccl_left_is_not_empty;
