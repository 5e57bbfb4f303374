/* blocks.c -- allocates and reuses memory of the calling thread's GPU.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * cudaMalloc and cudaFree hold a lock that concurrent processes wait for. Therefore
 * this file reuses released blocks of memory, except large blocks. With kcp-check's
 * option --exact (for memcheck) or --bare (for initcheck), no block is reused, because
 * these sanitizers check each allocation's bounds or initialization.
 *
 * Each cudaFree waits for the freed block's GPU. Therefore a rank frees only blocks of
 * the rank's own GPU: on another GPU a NCCL kernel may wait for this rank (a deadlock).
 * During cudaFree, the rank does not hold the list's lock. */
#include "memory.h"

#include <pthread.h>

int bare_workspaces, ranks_in_turn;
size_t fence_bytes = 256;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void turn_begin(void)
{
    if (ranks_in_turn) pthread_mutex_lock(&turn);
}

void turn_end(void)
{
    if (ranks_in_turn) pthread_mutex_unlock(&turn);
}

#if !defined(KCP_WITH_CUDA) && !defined(KCP_WITH_NCCL)
const struct memory *device_memory(void) { return NULL; }
#endif

#if defined(KCP_WITH_CUDA) || defined(KCP_WITH_NCCL)
#include <cuda_runtime_api.h>
#include <stdlib.h>

static const size_t LARGEST_KEPT = 64 << 20;

struct block { void *p; size_t bytes; int device, is_used; };
static struct block *blocks;
static int block_count, block_capacity;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *alloc_new(size_t n)
{
    void *p = NULL;
    if (cudaMalloc(&p, n ? n : 1) == cudaSuccess) return p;
    cudaGetLastError();                 /* clears the error; the caller gets NULL */
    return NULL;
}

static size_t block_size(size_t n)
{
    size_t size = 512;
    while (size < n) size *= 2;
    return size;
}

/* Returns an unused block of this GPU, or NULL. `bytes` is the block's size, or 0 for
 * any size. If `leaves` is set, removes the block from the list, otherwise marks the
 * block as used. */
static void *take_block(size_t bytes, int device, int leaves)
{
    void *p = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < block_count && !p; i++) {
        struct block *b = &blocks[i];
        if (b->is_used || b->device != device || (bytes && b->bytes != bytes)) continue;
        p = b->p;
        b->is_used = 1;
        if (leaves) *b = blocks[--block_count];
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static void free_unused_blocks(int device)
{
    for (void *p; (p = take_block(0, device, 1));) cudaFree(p);
}

/* Adds a used block to the list. If the list cannot grow, the block is not added, and
 * blocks_release frees the block by cudaFree. */
static void keep_block(void *p, size_t bytes, int device)
{
    pthread_mutex_lock(&lock);
    if (block_count == block_capacity) {
        const int more = block_capacity ? 2 * block_capacity : 64;
        struct block *list = realloc(blocks, (size_t)more * sizeof *list);
        block_capacity = list ? more : block_capacity;
        blocks = list ? list : blocks;
    }
    if (block_count < block_capacity)
        blocks[block_count++] = (struct block){ p, bytes, device, 1 };
    pthread_mutex_unlock(&lock);
}

void *blocks_alloc(size_t n, int is_kept)
{
    const size_t bytes = block_size(n);
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return NULL;
    if (!is_kept || bytes > LARGEST_KEPT) {
        free_unused_blocks(device);
        return alloc_new(n);
    }
    void *p = take_block(bytes, device, 0);
    if (p) return p;
    p = alloc_new(bytes);
    if (!p) {
        free_unused_blocks(device);
        p = alloc_new(bytes);
    }
    if (p) keep_block(p, bytes, device);
    return p;
}

void blocks_release(void *p)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < block_count && !found; i++) {
        if (blocks[i].p != p) continue;
        blocks[i].is_used = 0;
        found = 1;
    }
    pthread_mutex_unlock(&lock);
    if (!found) cudaFree(p);
}
#endif
