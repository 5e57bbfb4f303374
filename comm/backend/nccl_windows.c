/* nccl_windows.c -- windows: GPU memory that kernels of other ranks can write.
 *
 * Book: chapter 20, "Code: kernels".
 *
 * Ranks exchange the addresses of their windows. Threads of one process exchange
 * pointers, and processes of one machine exchange CUDA IPC handles. If one rank cannot
 * write another rank's window, all ranks use messages. */
#ifdef KCP_WITH_NCCL
#include "nccl.h"
#include "core/window.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { WINDOW_MIB = 64, WINDOW_BLOCKS = 1024 };

/* The data that a rank sends to all other ranks. `process` (a random number) identifies
 * a process, and `machine` identifies a machine. */
struct card {
    int able, device, has_handle;
    uint64_t process, machine;
    void *at;
    cudaIpcMemHandle_t handle;
};

static uint64_t process_number;
static pthread_once_t drawn = PTHREAD_ONCE_INIT;

static void draw(void)
{
    if (getrandom(&process_number, sizeof process_number, 0) !=
        sizeof process_number)
        process_number = 0;
}

/* Returns how many pieces (parts of a state) each rank can write into one window. */
static int blocks_of(int R)
{
    const size_t n = ((size_t)WINDOW_MIB << 20) / ((size_t)R * KCP_PIECE_BYTES);
    return n < WINDOW_BLOCKS ? (int)n : WINDOW_BLOCKS;
}

static int make_own(struct nccl_rank *w, struct card *mine)
{
    struct kcp_window *x = &w->window;
    const size_t bytes = kcp_window_bytes(x->R, x->blocks);
    struct comm_options options;
    char why[120];
    pthread_once(&drawn, draw);
    mine->process = process_number;
    mine->machine = comm_machine();
    mine->device = w->device;
    if (comm_options(&options, why, sizeof why) || !options.windows ||
        !mine->process || !mine->machine)
        return 0;
    if (cudaHostAlloc((void **)&x->lost, sizeof *x->lost, cudaHostAllocPortable) ||
        cudaMalloc(&x->at[x->r], bytes) || cudaMemset(x->at[x->r], 0, bytes) ||
        cudaDeviceSynchronize())
        return 0;
    mine->has_handle = cudaIpcGetMemHandle(&mine->handle, x->at[x->r]) == cudaSuccess;
    *x->lost = 0;
    w->kernels_end = x->lost;
    mine->at = x->at[x->r];
    return 1;
}

static int reach_thread(const struct card *mine, const struct card *other, void **at)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, mine->device, other->device) || !can)
        return 0;
    const cudaError_t e = cudaDeviceEnablePeerAccess(other->device, 0);
    *at = other->at;
    return e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled;
}

static int reach_all(struct nccl_rank *w, const struct card *mine,
                     const struct card *all)
{
    struct kcp_window *x = &w->window;
    for (int r = 0; r < x->R; r++) {
        const struct card *o = &all[r];
        if (!o->able || o->machine != mine->machine)
            return 0;
        if (r == x->r)
            continue;
        if (o->process == mine->process) {
            if (!reach_thread(mine, o, &x->at[r]))
                return 0;
        } else {
            if (!o->has_handle)
                return 0;
            if (cudaIpcOpenMemHandle(&x->at[r], o->handle,
                                     cudaIpcMemLazyEnablePeerAccess))
                return 0;
            w->opened[r] = 1;
        }
    }
    return 1;
}

/* After a failure (is_quiet = 0) this rank's memory is not freed, because a kernel of
 * another rank may still write into this memory. */
void nccl_windows_free(struct nccl_rank *w, int is_quiet)
{
    struct kcp_window *x = &w->window;
    if (x->lost)
        *(volatile int *)x->lost = 1;          /* this rank's kernels stop waiting */
    if (!is_quiet && x->R)
        cudaDeviceSynchronize();
    for (int r = 0; r < x->R; r++)
        if (w->opened[r])
            cudaIpcCloseMemHandle(x->at[r]);
    if (is_quiet && x->R && x->at[x->r])
        cudaFree(x->at[x->r]);
    w->kernels_end = NULL;
    if (is_quiet && x->lost)
        cudaFreeHost(x->lost);
    memset(w->opened, 0, sizeof w->opened);
    *x = (struct kcp_window){ 0 };
    w->comm.window = NULL;
    cudaGetLastError();
}

int kcp_nccl_windows(struct kcp_comm *c)
{
    struct nccl_rank *w = (struct nccl_rank *)c;
    struct card mine, *all;
    if (!c)
        return KCP_BAD;
    if (strcmp(c->backend, "nccl") || c->R > KCP_WINDOW_RANKS)
        return KCP_NA;
    if (c->window || c->R == 1)
        return c->window ? KCP_OK : KCP_NA;
    if (!(all = calloc((size_t)c->R, sizeof *all)))
        return nccl_fail(w, THIS_RANK, KCP_NO_MEMORY, "out of memory for windows",
                         REPORT_NOW);
    w->window = (struct kcp_window){ .R = c->R, .r = c->r, .blocks = blocks_of(c->R) };
    memset(&mine, 0, sizeof mine);
    mine.able = make_own(w, &mine);
    cudaGetLastError();
    int status = c->show(c, &mine, all, sizeof mine, NULL);
    if (!status) {
        mine.able = reach_all(w, &mine, all);
        cudaGetLastError();
        status = c->show(c, &mine, all, sizeof mine, NULL);
    }
    int able = !status;
    for (int r = 0; r < c->R && able; r++)
        able = all[r].able;
    free(all);
    if (able)
        c->window = &w->window;
    else
        nccl_windows_free(w, !status);
    if (status)
        return status;
    return able ? KCP_OK : KCP_NA;
}
#else
#include "kcp.h"

int kcp_nccl_windows(struct kcp_comm *c) { return KCP_NA; }
#endif
