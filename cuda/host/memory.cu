// memory.cu -- arrays of a trial on a GPU, which R ranks in threads may share.
// Book: CONTRIBUTING.md, "How the judge works".
//
// NCCL needs one GPU per rank. Ranks that are threads can share a GPU, so a kernel for
// context parallelism can be written and judged on one GPU. Except copy_soon, each copy
// function waits for the copy, because this code is for development, not for speed.
#include "mapops.cuh"
#include "memory.h"
#include <cuda_runtime.h>

static void *alloc(size_t n)
{
    return blocks_alloc(n, !bare_workspaces && fence_bytes);
}

// A fill, or a copy within the device, returns before the data is written, and a
// variant on another stream does not wait for the data. So this function waits.
static int done(cudaError_t status)
{
    return status || cudaStreamSynchronize(NULL) ? KCP_CUDA : KCP_OK;
}

static int copy(void *to, const void *from, size_t n)
{
    return done(cudaMemcpy(to, from, n, cudaMemcpyDefault));
}

static int sync(void)
{
    return cudaDeviceSynchronize() == cudaSuccess ? KCP_OK : KCP_CUDA;
}

static int wire(void *to, const void *from, size_t n, struct CUstream_st *stream)
{
    turn_begin();
    int status = cudaStreamSynchronize(stream) ? KCP_CUDA : KCP_OK;
    if (!status && n) status = copy(to, from, n);
    turn_end();
    return status;
}

static int threads_run(int R, int (*body)(struct kcp_comm *, void *), void *arg,
                       char *why, size_t n)
{
    return kcp_threads_run_on(R, body, arg, why, n, wire);
}

static int choose(int i)
{
    int n = 0;
    const int known = cudaGetDeviceCount(&n) == cudaSuccess && i < n;
    return known && cudaSetDevice(i) == cudaSuccess ? KCP_OK : KCP_CUDA;
}

static int fill(void *p, int byte, size_t n)
{
    return done(cudaMemset(p, byte, n));
}

static int fill_soon(void *p, int byte, size_t n)
{
    return cudaMemsetAsync(p, byte, n, NULL) ? KCP_CUDA : KCP_OK;
}

static int copy_soon(void *to, const void *from, size_t n)
{
    return cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, NULL) ? KCP_CUDA : KCP_OK;
}

// Copies two pieces of n bytes, whose starts are `apart` bytes apart, to adjacent
// addresses. If cudaMemcpy2D does not allow this distance, makes two copies.
static int copy_ends(void *to, const void *from, size_t n, size_t apart)
{
    if (apart < (size_t)1 << 30)
        return done(cudaMemcpy2D(to, n, from, apart, n, 2, cudaMemcpyDefault));
    const int status = copy(to, from, n);
    return status ? status : copy((char *)to + n, (const char *)from + apart, n);
}

static struct CUstream_st *own_stream(void)
{
    cudaStream_t s;
    return cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) ? NULL : s;
}

static void end_stream(struct CUstream_st *s) { cudaStreamDestroy(s); }

static const struct memory gpu = { "gpu", alloc, blocks_release, copy, sync,
                                   threads_run, &cuda_mapops, choose, fill,
                                   own_stream, end_stream, fill_soon, copy_soon,
                                   copy_ends, 1 };

const struct memory *device_memory(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n > 0 ? &gpu : NULL;
}
