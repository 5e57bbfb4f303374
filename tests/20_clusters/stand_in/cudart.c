/* cudart.c -- CUDA's runtime on host memory, with asynchronous streams.
 *
 * Book: chapter 20.  Checked by: ranks.c.  Next: libnccl.c, whose kernels run here.
 *
 * A stream is a thread that runs tasks in order, each after a short delay. Each device
 * has two streams: NULL and one that is created. A task that waits blocks its stream,
 * cudaFree and every synchronization, as on a GPU. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES = 8 };

struct task { struct task *next; cudaHostFn_t run; void *arg; };
struct CUstream_st { int has_thread, busy; struct task *first, **end; };

/* One lock for all streams. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct CUstream_st streams[DEVICES][2];
static _Thread_local int device_now;

static struct CUstream_st *stream_of(cudaStream_t s)
{
    return s ? s : &streams[device_now][0];
}

static void *run_tasks(void *arg)
{
    const struct timespec lag = { 0, 100000 };
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&mutex);
    for (;;) {
        struct task *t = s->first;
        if (!t) {
            pthread_cond_wait(&change, &mutex);
            continue;
        }
        s->first = t->next;
        s->busy = 1;
        pthread_mutex_unlock(&mutex);
        nanosleep(&lag, NULL);
        t->run(t->arg);
        free(t);
        pthread_mutex_lock(&mutex);
        s->busy = 0;
        pthread_cond_broadcast(&change);
    }
    return NULL;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *arg)
{
    struct CUstream_st *s = stream_of(stream);
    struct task *t = malloc(sizeof *t);
    pthread_t thread;
    if (!t)
        return cudaErrorMemoryAllocation;
    *t = (struct task){ NULL, run, arg };
    pthread_mutex_lock(&mutex);
    if (!s->has_thread && pthread_create(&thread, NULL, run_tasks, s))
        abort();
    s->has_thread = 1;
    if (!s->first)
        s->end = &s->first;
    *s->end = t;
    s->end = &t->next;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&mutex);
    return cudaSuccess;
}

/* One per device: every rank has a separate device. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    *s = &streams[device_now][1];
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    const struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&mutex);
    const int is_idle = !s->busy && !s->first;
    pthread_mutex_unlock(&mutex);
    return is_idle ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&mutex);
    while (s->busy || s->first)
        pthread_cond_wait(&change, &mutex);
    pthread_mutex_unlock(&mutex);
    return cudaSuccess;
}

static cudaError_t wait_for_device(int device)
{
    cudaStreamSynchronize(&streams[device][0]);
    return cudaStreamSynchronize(&streams[device][1]);
}

cudaError_t cudaDeviceSynchronize(void) { return wait_for_device(device_now); }

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *status)
{
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* ---- memory: cudaFree waits for the device that allocated the block */
struct head { _Alignas(16) int device; };

cudaError_t cudaMalloc(void **p, size_t n)
{
    struct head *x = malloc(sizeof *x + n);
    if (!x)
        return cudaErrorMemoryAllocation;
    x->device = device_now;
    *p = x + 1;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    struct head *x = (struct head *)p - 1;
    if (!p)
        return cudaSuccess;
    wait_for_device(x->device);
    free(x);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags)
{
    return cudaMalloc(p, n);
}

cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }

struct copy { void *to; const void *from; size_t n; };

static void run_copy(void *arg)
{
    struct copy *c = arg;
    memcpy(c->to, c->from, c->n);
    free(c);
}

/* A copy to host memory that is not pinned is complete when CUDA returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    struct copy *c = malloc(sizeof *c);
    if (!c)
        return cudaErrorMemoryAllocation;
    *c = (struct copy){ to, from, n };
    const cudaError_t err = cudaLaunchHostFunc(s, run_copy, c);
    return err || kind != cudaMemcpyDeviceToHost ? err : cudaStreamSynchronize(s);
}

cudaError_t cudaMemset(void *p, int value, size_t n)
{
    memset(p, value, n);
    return cudaSuccess;
}

/* ---- devices: without peer access, so there are no windows */
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = DEVICES;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_now;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= DEVICES)
        return cudaErrorInvalidDevice;
    device_now = device;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { return cudaSuccess; }

const char *cudaGetErrorString(cudaError_t e) { return "an error of CUDA's stand-in"; }

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = 0;
    return cudaSuccess;
}

#define NONE(call, args) cudaError_t call args { return cudaErrorNotSupported; }
NONE(cudaDeviceEnablePeerAccess, (int peer, unsigned flags))
NONE(cudaIpcGetMemHandle, (cudaIpcMemHandle_t *h, void *p))
NONE(cudaIpcOpenMemHandle, (void **p, cudaIpcMemHandle_t h, unsigned flags))
NONE(cudaIpcCloseMemHandle, (void *p))
