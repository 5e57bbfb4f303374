/* far_gpu.c -- simulates the CUDA runtime's memory calls on the host for the judge.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/far.sh.
 * Next: ../../cuda/host/memory.cu, whose calls these are.
 *
 * Asynchronous fills and copies are done as late as a GPU may do them: in the next call
 * that waits. New memory is filled with 0x33, and each fill or copy must be within one
 * allocation. Variants `far` are the references in double. FAR="13 past_work" selects a
 * mistake that stage 13's variant makes. */
#ifdef KCP_WITH_CUDA
#include "layer.h"
#include "ref.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
enum { MOST = 4096 };
static struct { char *p; size_t n; } block[MOST];
static struct later { char *to; const char *from; size_t n; int byte; } later[MOST];
static int blocks, laters;

/* Aborts if the n bytes at `at` begin inside a block of memory but end outside. */
static void in_one(const void *at, size_t n)
{
    for (int i = 0; i < blocks; i++) {
        const char *p = block[i].p, *x = at;
        if (x < p || x >= p + block[i].n) continue;
        if (x + n <= p + block[i].n) return;
        fprintf(stderr, "far_gpu: %zu bytes from %zu of %zu on\n", n, (size_t)(x - p),
                block[i].n);
        abort();
    }
}

static void wait_all(void)
{
    for (int i = 0; i < laters; i++) {
        const struct later *x = &later[i];
        if (x->from) memcpy(x->to, x->from, x->n);
        else memset(x->to, x->byte, x->n);
    }
    laters = 0;
}

static cudaError_t do_later(void *to, const void *from, size_t n, int byte)
{
    pthread_mutex_lock(&lock);
    in_one(to, n);
    if (from) in_one(from, n);
    if (laters == MOST) wait_all();
    later[laters++] = (struct later){ to, from, n, byte };
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t waited(void)
{
    pthread_mutex_lock(&lock);
    wait_all();
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t __wrap_cudaMalloc(void **p, size_t n)
{
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    if (!*p) return cudaErrorMemoryAllocation;
    memset(*p, 0x33, n);
    pthread_mutex_lock(&lock);
    if (blocks == MOST) abort();
    block[blocks].p = *p;
    block[blocks++].n = n;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t __wrap_cudaFree(void *p)
{
    pthread_mutex_lock(&lock);
    wait_all();
    for (int i = 0; i < blocks; i++)
        if (block[i].p == p) block[i--] = block[--blocks];
    pthread_mutex_unlock(&lock);
    free(p);
    return cudaSuccess;
}

cudaError_t __wrap_cudaMemset(void *p, int byte, size_t n)
{
    return do_later(p, NULL, n, byte);
}

cudaError_t __wrap_cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s)
{
    (void)s;
    return do_later(p, NULL, n, byte);
}

cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t n,
                                   enum cudaMemcpyKind kind, cudaStream_t s)
{
    (void)kind; (void)s;
    return do_later(to, from, n, 0);
}

cudaError_t __wrap_cudaMemcpy(void *to, const void *from, size_t n,
                              enum cudaMemcpyKind kind)
{
    (void)kind;
    do_later(to, from, n, 0);
    return waited();
}

cudaError_t __wrap_cudaMemcpy2D(void *to, size_t to_pitch, const void *from,
                                size_t from_pitch, size_t width, size_t height,
                                enum cudaMemcpyKind kind)
{
    (void)kind;
    if (width > to_pitch || width > from_pitch || from_pitch > 0x7fffffff)
        return cudaErrorInvalidPitchValue;
    for (size_t i = 0; i < height; i++)
        do_later((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width,
                 0);
    return waited();
}

cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t s) { (void)s; return waited(); }
cudaError_t __wrap_cudaDeviceSynchronize(void) { return waited(); }
cudaError_t __wrap_cudaGetLastError(void) { return cudaSuccess; }
cudaError_t __wrap_cudaSetDevice(int i) { (void)i; return cudaSuccess; }
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t s) { (void)s; return cudaSuccess; }

cudaError_t __wrap_cudaGetDevice(int *i)
{
    *i = 0;
    return cudaSuccess;
}

/* Simulates a device for which this program has no kernels. */
cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int i)
{
    (void)i;
    *value = what == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    if (what == cudaDevAttrMultiProcessorCount) *value = 132;
    return cudaSuccess;
}

cudaError_t __wrap_cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    static int any;
    (void)flags;
    *s = (cudaStream_t)(void *)&any;
    return cudaSuccess;
}

/* ---- the variants */
static size_t work_of(const void *args)
{
    return 64 + 8 * (size_t)((const struct kcp_call *)args)->T;
}

/* Runs the reference `inner`, then makes the mistake that FAR selects. `first` points
 * to the first number of an output. Every run fills its workspace with 0x5a. */
static int run_far(const char *stage, struct kcp_call *c, int (*inner)(void *),
                   void *args, double *first)
{
    const char *does = getenv("FAR") ? getenv("FAR") : "";
    does = strncmp(does, stage, 2) ? "" : does + 3;
    double *work = c->work;
    const double found = work[7];
    c->ops = &ref_mapops;
    const int status = inner(args);
    if (!strcmp(does, "reads_work") && c->T) *first += 0 * found;
    memset(work, 0x5a, c->work_bytes);
    if (!strcmp(does, "past_work")) ((char *)work)[c->work_bytes] = 0;
    if (!strcmp(does, "before_work")) ((char *)work)[-1] = 0;
    if (!strcmp(does, "before_o") && c->T) first[-1] = 0;
    if (!strcmp(does, "far_before_o") && c->T) first[-100] = 0;
    if (!strcmp(does, "leftover") && found == work[7] && c->T) *first += 1;
    return status;
}

static int ref_08(void *a) { return ref_forward(a); }
static int run_08(void *args)
{
    struct kcp_forward a = *(struct kcp_forward *)args;
    return run_far("08", (struct kcp_call *)&a, ref_08, &a, a.o);
}
KCP_VARIANT(far_08) = { "08_forward", "far", "runs the reference on a simulated GPU",
                        KCP_F64, KCP_DEVICE, "any", run_08, work_of };

static int ref_13(void *a) { return ref_backward(a); }
static int run_13(void *args)
{
    struct kcp_backward a = *(struct kcp_backward *)args;
    return run_far("13", (struct kcp_call *)&a, ref_13, &a, a.dv);
}
KCP_VARIANT(far_13) = { "13_backward", "far", "likewise", KCP_F64, KCP_DEVICE, "any",
                        run_13, work_of };
#endif
typedef int kcp_far_gpu_is_not_empty;
