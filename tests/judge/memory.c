/* memory.c -- where a trial's arrays live: the host, or what device.cu gives.
 *
 * Book: CONTRIBUTING.md.  Checked by: every trial.  Next: trial.c.
 */
#include "judge.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>

static void *host_alloc(size_t n) { return aligned_alloc(256, (n + 255) / 256 * 256); }
static int host_copy(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return KCP_OK;
}
static int host_sync(void) { return KCP_OK; }
static int host_gpu(int i) { return KCP_OK; }
static int host_fill(void *p, int byte, size_t n)
{
    memset(p, byte, n);
    return KCP_OK;
}

static int host_copy_ends(void *to, const void *from, size_t n, size_t apart)
{
    memcpy(to, from, n);
    memcpy((char *)to + n, (const char *)from + apart, n);
    return KCP_OK;
}

const struct memory host_memory = { "host", host_alloc, free, host_copy, host_sync,
                                    kcp_threads_run, &ref_mapops, host_gpu,
                                    host_fill, NULL, NULL, host_fill, host_copy,
                                    host_copy_ends, 0 };

/* A rank is a thread: OpenBLAS, where it is linked, must not start more of its own.
 * Asked of it again, a process that was forked would start them first. */
extern void openblas_set_num_threads(int n) __attribute__((weak));
extern int openblas_get_num_threads(void) __attribute__((weak));

void blas_alone(void)
{
    if (openblas_get_num_threads && openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
}

/* A trial's arrays are like those of the one before. Their pages stay this process's:
 * given back each time and taken anew, they were half of the faults. */
void memory_settle(void)
{
#ifdef M_TRIM_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
    blas_alone();
}

int bare_workspaces;

void *unwritten_soon(const struct memory *m, size_t n)
{
    void *p = m->alloc(n);
    if (!p || bare_workspaces || !m->fill_soon(p, 0xff, n)) return p;
    m->free(p);
    return NULL;
}

size_t fence_bytes = 256;

void *fenced_unwritten_soon(const struct memory *m, size_t n)
{
    char *p = unwritten_soon(m, n + 2 * fence_bytes);
    if (!p) return NULL;
    if (!bare_workspaces ||
        (!m->fill_soon(p, 0xff, fence_bytes) &&
         !m->fill_soon(p + fence_bytes + n, 0xff, fence_bytes))) return p + fence_bytes;
    m->free(p);
    return NULL;
}

static void *awaited(const struct memory *m, void *p, size_t before)
{
    if (!p || !m->sync()) return p;
    m->free((char *)p - before);
    return NULL;
}

void *alloc_unwritten(const struct memory *m, size_t n)
{
    return awaited(m, unwritten_soon(m, n), 0);
}

void *fenced_unwritten(const struct memory *m, size_t n)
{
    return awaited(m, fenced_unwritten_soon(m, n), fence_bytes);
}

const char *fenced_free(const struct memory *m, void *p, size_t n)
{
    unsigned char found[2 * 256];
    const char *broken = NULL;
    if (!p) return NULL;
    char *base = (char *)p - fence_bytes;
    if (fence_bytes && m->copy_ends(found, base, fence_bytes, fence_bytes + n))
        broken = "could not be read";
    for (size_t i = 0; i < fence_bytes && !broken; i++) {
        if (found[i] != 0xff) broken = "before";
        if (found[fence_bytes + i] != 0xff) broken = "past";
    }
    m->free(base);
    return broken;
}

#ifndef KCP_WITH_CUDA
const struct memory *device_memory(void) { return NULL; }
#endif
