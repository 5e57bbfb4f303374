/* memory.c -- host memory for a trial's arrays, and fences around arrays.
 *
 * Book: CONTRIBUTING.md.  Checked by: every trial.  Next: trial.c, cuda/host/memory.cu.
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

/* Lets the process keep freed pages, because trials allocate similar sizes again and
 * again. Returning the pages each time caused half of all page faults. */
void memory_settle(void)
{
#ifdef M_TRIM_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

void *fenced_unwritten_soon(const struct memory *m, size_t n)
{
    const size_t before = fence_bytes, all = n + 2 * before;
    char *p = m->alloc(all);
    int status = KCP_OK;
    if (!p) return NULL;
    if (!bare_workspaces) status = m->fill_soon(p, 0xff, all);
    else if (!(status = m->fill_soon(p, 0xff, before)))
        status = m->fill_soon(p + before + n, 0xff, before);
    if (!status) return p + before;
    m->free(p);
    return NULL;
}

void *fenced_unwritten(const struct memory *m, size_t n)
{
    char *p = fenced_unwritten_soon(m, n);
    if (!p || !m->sync()) return p;
    m->free(p - fence_bytes);
    return NULL;
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
