/* fake_gpu.c -- a libnccl.so.2 for machines without a GPU: host memory, R processes.
 *
 * Book: chapter 20.  Checked by: tests/cli/lent.sh, which builds it.  Next: lent.c.
 *
 * What comm/backend/nccl*.c asks of CUDA and NCCL, and no more: a collective is on its
 * way until all ranks have posted it, so that one whose rank is gone hangs, as a kernel
 * does. Send and recv are counted alone. */
#ifdef KCP_WITH_NCCL
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "fake_gpu.h"

#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

struct ncclComm {
    struct fake_comm *at;
    int R, r, done;
    atomic_int aborted;
    int pending, sum;
    void *to;
    size_t bytes;
    struct ncclComm *next;
};

static _Thread_local struct ncclComm *mine;        /* of this thread, as its stream */
static struct fake_world *world;
static _Thread_local int capturing;

void fake_gpu_world(struct fake_world *w) { world = w; }
void fake_gpu_capture(int on) { capturing = on; }

static void progress(struct ncclComm *c)
{
    const int k = c->done;
    if (!c->pending || c->aborted) {
        c->pending = 0;
        return;
    }
    for (int r = 0; r < c->R; r++)
        if (c->at->posted[r] <= k)
            return;
    for (int r = 0; r < c->R && !c->sum; r++)
        memcpy((char *)c->to + (size_t)r * c->bytes, c->at->row[k % 2][r], c->bytes);
    c->pending = 0;
    c->done++;
}

static ncclResult_t post(struct ncclComm *c, const void *from, void *to, size_t bytes,
                         int sum)
{
    if (bytes > FAKE_ROW || c->aborted)
        return ncclInvalidUsage;
    while (c->pending)
        progress(c);
    memcpy(c->at->row[c->done % 2][c->r], from, bytes);
    c->to = to;
    c->bytes = bytes;
    c->sum = sum;
    c->pending = 1;
    c->at->gathers += c->r == 0 && !sum;
    c->at->posted[c->r] = c->done + 1;
    return ncclSuccess;
}

/* ---- NCCL */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    return ncclSuccess;
}

/* The id's first byte says which of the world's. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int R, ncclUniqueId id, int r,
                                    ncclConfig_t *config)
{
    (void)config;
    *c = calloc(1, sizeof **c);
    if (!*c || !world)
        return ncclSystemError;
    (*c)->at = &world->comm[(unsigned char)id.internal[0]];
    (*c)->R = R;
    (*c)->r = r;
    (*c)->next = mine;
    mine = *c;
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    (void)c; (void)color; (void)key; (void)config;
    *out = NULL;
    return ncclInvalidUsage;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *result)
{
    (void)c;
    *result = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)           /* and never freed: it is a test */
{
    c->aborted = 1;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) { (void)c; return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t c) { return ncclCommAbort(c); }
ncclResult_t ncclGroupStart(void) { return ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }
const char *ncclGetErrorString(ncclResult_t e) { (void)e; return "fake"; }

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

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t stream)
{
    (void)type; (void)stream;
    return post(c, from, to, n, 0);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t stream)
{
    (void)type; (void)op; (void)stream;
    return post(c, from, to, n * sizeof(int), 1);
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int to,
                      ncclComm_t c, cudaStream_t stream)
{
    (void)from; (void)n; (void)type; (void)to; (void)c; (void)stream;
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int from, ncclComm_t c,
                      cudaStream_t stream)
{
    (void)to; (void)n; (void)type; (void)from; (void)c; (void)stream;
    return ncclSuccess;
}

/* ---- CUDA */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    int busy = 0;
    (void)stream;
    for (struct ncclComm *c = mine; c; c = c->next) {
        progress(c);
        busy |= c->pending;
    }
    return busy ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *s)
{
    (void)stream;
    *s = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t n)
{
    *p = calloc(1, n);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind; (void)stream;
    memcpy(to, from, n);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, n, kind, NULL);
}

cudaError_t cudaMemset(void *p, int value, size_t n)
{
    memset(p, value, n);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { (void)device; return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t e) { (void)e; return "fake"; }

/* Windows: there are none. */
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags)
{
    (void)p; (void)n; (void)flags;
    return cudaErrorNotSupported;
}

cudaError_t cudaFreeHost(void *p) { (void)p; return cudaErrorNotSupported; }

cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b)
{
    (void)a; (void)b;
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)peer; (void)flags;
    return cudaErrorNotSupported;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    (void)h; (void)p;
    return cudaErrorNotSupported;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags)
{
    (void)p; (void)h; (void)flags;
    return cudaErrorNotSupported;
}

cudaError_t cudaIpcCloseMemHandle(void *p) { (void)p; return cudaErrorNotSupported; }
#endif
typedef int kcp_fake_gpu_is_not_empty;
