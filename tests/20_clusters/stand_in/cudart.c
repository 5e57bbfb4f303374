/* cudart.c -- CUDA's runtime on host memory: streams that run behind their callers.
 *
 * Book: chapter 20.  Checked by: ranks.c, which ends when a stream hangs.
 * Next: libnccl.c, whose kernels run here.
 *
 * A stream is a thread that runs tasks in order. A task that waits hangs its stream,
 * and with it cudaFree and every synchronisation, as on a GPU. A query breaks the
 * capture of a stream. */
#include <cuda_runtime_api.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8 };

struct task { struct task *next; cudaHostFn_t run; void *arg; };
struct CUstream_st {
    struct CUstream_st *next;              /* all of this process */
    int device, busy, stop, capture;       /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t thread;
    struct task *first, **end;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *all, *of_device[DEVICES];
static _Thread_local int device_now;

static void *run_tasks(void *arg)
{
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop || s->first) {
        struct task *t = s->first;
        if (!t) {
            pthread_cond_wait(&s->change, &s->lock);
            continue;
        }
        s->first = t->next;
        s->busy = 1;
        pthread_mutex_unlock(&s->lock);
        t->run(t->arg);
        free(t);
        pthread_mutex_lock(&s->lock);
        s->busy = 0;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- streams */
static struct CUstream_st *make_stream(void)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->device = device_now;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    if (pthread_create(&s->thread, NULL, run_tasks, s)) {
        free(s);
        return NULL;
    }
    s->next = all;
    all = s;
    return s;
}

/* NULL: the device's own, made when it is first asked for. */
static struct CUstream_st *stream_of(cudaStream_t s)
{
    if (s)
        return s;
    pthread_mutex_lock(&all_lock);
    if (!of_device[device_now])
        of_device[device_now] = make_stream();
    s = of_device[device_now];
    pthread_mutex_unlock(&all_lock);
    if (!s)
        abort();
    return s;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&all_lock);
    *s = make_stream();
    pthread_mutex_unlock(&all_lock);
    return *s ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    pthread_mutex_lock(&all_lock);
    for (struct CUstream_st **at = &all; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&all_lock);
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return cudaSuccess;
}

/* What no captured stream may be asked: from then on the capture is none. */
static int breaks_capture(struct CUstream_st *s)
{
    if (s->capture)
        s->capture = cudaStreamCaptureStatusInvalidated;
    return s->capture != cudaStreamCaptureStatusNone;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&s->lock);
    cudaError_t e = s->busy || s->first ? cudaErrorNotReady : cudaSuccess;
    if (breaks_capture(s))
        e = cudaErrorStreamCaptureUnsupported;
    pthread_mutex_unlock(&s->lock);
    return e;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&s->lock);
    const int broken = breaks_capture(s);
    while (!broken && (s->busy || s->first))
        pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return broken ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *arg)
{
    struct CUstream_st *s = stream_of(stream);
    struct task *t = malloc(sizeof *t);
    if (!t)
        return cudaErrorMemoryAllocation;
    *t = (struct task){ NULL, run, arg };
    pthread_mutex_lock(&s->lock);
    if (!s->first)
        s->end = &s->first;
    *s->end = t;
    s->end = &t->next;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

/* One after the other: a stream is not destroyed while its device is waited for. */
static cudaError_t wait_for_device(int device)
{
    struct CUstream_st *s[64];
    int n = 0;
    pthread_mutex_lock(&all_lock);
    for (struct CUstream_st *x = all; x && n < 64; x = x->next)
        if (x->device == device)
            s[n++] = x;
    pthread_mutex_unlock(&all_lock);
    for (int i = 0; i < n; i++)
        cudaStreamSynchronize(s[i]);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) { return wait_for_device(device_now); }

/* ---- capture */
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *status)
{
    struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&s->lock);
    *status = (enum cudaStreamCaptureStatus)s->capture;
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (!s)
        return cudaErrorStreamCaptureUnsupported;
    pthread_mutex_lock(&s->lock);
    s->capture = cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    (void)graph;
    pthread_mutex_lock(&s->lock);
    s->capture = cudaStreamCaptureStatusNone;
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

/* ---- memory: a device's is the host's, and free waits for the device that it is of */
static _Atomic size_t held;
struct head { _Alignas(16) int device; };

cudaError_t cudaMalloc(void **p, size_t n)
{
    struct head *x = malloc(sizeof *x + n);
    *p = x ? x + 1 : NULL;
    if (!x)
        return cudaErrorMemoryAllocation;
    x->device = device_now;
    held += malloc_usable_size(x);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    struct head *x = p ? (struct head *)p - 1 : NULL;
    if (!x)
        return cudaSuccess;
    wait_for_device(x->device);
    held -= malloc_usable_size(x);
    free(x);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags)
{
    (void)flags;
    return cudaMalloc(p, n);
}

cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *total = (size_t)1 << 36;
    *left = *total - held;
    return cudaSuccess;
}

struct copy { void *to; const void *from; size_t n; int value; };

static void run_copy(void *arg)
{
    struct copy *c = arg;
    if (c->from)
        memcpy(c->to, c->from, c->n);
    else
        memset(c->to, c->value, c->n);
    free(c);
}

static cudaError_t copy_on(cudaStream_t s, struct copy how)
{
    struct copy *c = malloc(sizeof *c);
    if (!c)
        return cudaErrorMemoryAllocation;
    *c = how;
    return cudaLaunchHostFunc(s, run_copy, c);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    (void)kind;
    return copy_on(s, (struct copy){ to, from, n, 0 });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    const cudaError_t e = cudaMemcpyAsync(to, from, n, kind, NULL);
    return e ? e : cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemset(void *p, int value, size_t n)
{
    const cudaError_t e = copy_on(NULL, (struct copy){ p, NULL, n, value });
    return e ? e : cudaStreamSynchronize(NULL);
}

/* ---- devices: none reaches another's memory, so there are no windows */
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

const char *cudaGetErrorString(cudaError_t e)
{
    const int is_captured = e == cudaErrorStreamCaptureUnsupported;
    return is_captured ? "a stream that is captured was asked"
                       : "an error of CUDA's stand-in";
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    (void)device;
    (void)peer;
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)peer;
    (void)flags;
    return cudaErrorNotSupported;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    (void)h;
    (void)p;
    return cudaErrorNotSupported;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags)
{
    (void)p;
    (void)h;
    (void)flags;
    return cudaErrorNotSupported;
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    (void)p;
    return cudaErrorNotSupported;
}
