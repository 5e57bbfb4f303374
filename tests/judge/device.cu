// device.cu -- the judge's arrays on a GPU, and R thread ranks that share it.
// Book: CONTRIBUTING.md, "How the judge works".
// Checked by: every trial of a device variant.
// Next: trial.c.
//
// NCCL wants a GPU a rank; threads do not, so a kernel for context parallelism can be
// written and judged on one GPU. Each copy waits: this is for development, not speed.
#include "judge.h"
#include "cuda/host/mapops.cuh"
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdlib.h>

static void *alloc_new(size_t n)
{
    void *p = NULL;
    if (cudaMalloc(&p, n ? n : 1) == cudaSuccess) return p;
    cudaGetLastError();                     // said by NULL; no launch shall find it
    return NULL;
}

// ---- blocks that are kept for the next array
//
// cudaMalloc and cudaFree hold a lock of the whole machine, and a dozen judges wait for
// it side by side. So a block comes back and is given again: its bytes are what was
// there last. Not for the sanitizers, which follow each allocation from its first byte
// to its last (--exact, --bare), and not for what is large.
struct block { void *p; size_t bytes; int device, is_used; };
static struct block *blocks;
static int block_count, block_capacity;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static const size_t LARGEST_KEPT = 64 << 20;

static size_t block_size(size_t n)
{
    size_t size = 512;
    while (size < n) size *= 2;
    return size;
}

static struct block *add_block(void)
{
    if (block_count == block_capacity) {
        const int more_blocks = block_capacity ? 2 * block_capacity : 64;
        void *more = realloc(blocks, (size_t)more_blocks * sizeof *blocks);
        if (!more) return NULL;
        blocks = (struct block *)more;
        block_capacity = more_blocks;
    }
    return &blocks[block_count++];
}

static void free_unused_blocks(void)
{
    int kept = 0;
    for (int i = 0; i < block_count; i++) {
        if (blocks[i].is_used) blocks[kept++] = blocks[i];
        else cudaFree(blocks[i].p);
    }
    block_count = kept;
}

static void *take_block(size_t bytes, int device)
{
    for (int i = 0; i < block_count; i++) {
        struct block *b = &blocks[i];
        if (b->is_used || b->bytes != bytes || b->device != device) continue;
        b->is_used = 1;
        return b->p;
    }
    void *p = alloc_new(bytes);
    if (!p) {
        free_unused_blocks();
        p = alloc_new(bytes);
    }
    struct block *b = p ? add_block() : NULL;
    if (b) *b = (struct block){ p, bytes, device, 1 };
    return p;
}

static void *alloc(size_t n)
{
    const size_t bytes = block_size(n);
    const int is_kept = !bare_workspaces && fence_bytes && bytes <= LARGEST_KEPT;
    int device = 0;
    pthread_mutex_lock(&blocks_lock);
    if (!is_kept) free_unused_blocks();
    void *p = NULL;
    if (!is_kept) p = alloc_new(n);
    else if (cudaGetDevice(&device) == cudaSuccess) p = take_block(bytes, device);
    pthread_mutex_unlock(&blocks_lock);
    return p;
}

// Whoever releases has waited for the device: cudaFree did so once more.
static void release(void *p)
{
    int found = 0;
    pthread_mutex_lock(&blocks_lock);
    for (int i = 0; i < block_count && !found; i++) {
        if (blocks[i].p != p) continue;
        blocks[i].is_used = 0;
        found = 1;
    }
    pthread_mutex_unlock(&blocks_lock);
    if (!found) cudaFree(p);
}

// A copy within the device, and a fill, return before they are done, and a stream of
// the variant's own does not wait for the stream that they are on: so the judge waits.
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

// Two pieces, `apart` from each other, side by side; the second dimension has a limit.
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

static const struct memory gpu = { "gpu", alloc, release, copy, sync, threads_run,
                                   &cuda_mapops, choose, fill, own_stream, end_stream,
                                   fill_soon, copy_soon, copy_ends, 1 };

const struct memory *device_memory(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n > 0 ? &gpu : NULL;
}
