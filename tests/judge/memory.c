/* memory.c -- allocates host memory for a trial, with a fence at each end of an array,
 * and keeps the bytes that a run left in its workspace.
 * Book: CONTRIBUTING.md. */
#include "trial.h"
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

/* Makes the process keep freed pages, because all trials allocate similar sizes.
 * Otherwise, returning freed pages to the system causes half of all page faults. */
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
    if (!p) return NULL;
    int status = m->fill_soon(p, 0xff, bare_workspaces ? before : all);
    if (!status && bare_workspaces) status = m->fill_soon(p + before + n, 0xff, before);
    if (!status) return p + before;
    m->free(p);
    return NULL;
}

const char *fenced_free(const struct memory *m, void *p, size_t n)
{
    unsigned char found[2 * 256];
    const char *broken = NULL;
    if (!p) return NULL;
    char *base = (char *)p - fence_bytes;
    if (fence_bytes && m->copy_ends(found, base, fence_bytes, fence_bytes + n))
        broken = "could not read the fences of";
    for (size_t i = 0; i < fence_bytes && !broken; i++) {
        if (found[i] != 0xff) broken = "wrote before";
        if (found[fence_bytes + i] != 0xff) broken = "wrote past";
    }
    m->free(base);
    return broken;
}

/* ---- bytes that a run left in its workspace, copied to later workspaces
 *
 * Copies of two workspaces are kept per rank: the last workspace, and the latest
 * workspace of another size. So a variant that marks its workspace as prepared finds
 * the mark in a workspace of another size, and gives wrong results. */
struct leftover {
    char *bytes;
    size_t n, of_bytes;                    /* bytes copied; workspace's size */
    const struct memory *of;
};
enum { RANKS = 16, MOST_LEFT = 8 << 20 };
static struct { struct leftover last, before; } left[RANKS];

static void drop(struct leftover *x)
{
    if (x->bytes) x->of->free(x->bytes);
    *x = (struct leftover){ .bytes = NULL };
}

void leftovers_keep(const struct rank_args *s, const void *work, size_t bytes)
{
    struct leftover *x = &left[s->call.r % RANKS].last;
    const size_t n = bytes < MOST_LEFT ? bytes : MOST_LEFT;
    if (!work || !n) return;
    if (x->bytes && (x->of_bytes != bytes || x->of != s->mem)) {
        drop(&left[s->call.r % RANKS].before);
        left[s->call.r % RANKS].before = *x;
        *x = (struct leftover){ .bytes = NULL };
    }
    if (!x->bytes) *x = (struct leftover){ s->mem->alloc(n), n, bytes, s->mem };
    if (x->bytes && s->mem->copy_soon(x->bytes, work, n)) drop(x);
}

int leftovers_fill(const struct rank_args *s, void *work, size_t bytes,
                  enum leftovers which)
{
    const struct leftover *x = &left[s->call.r % RANKS].last;
    int status = KCP_OK;
    if (which == LEFT_OTHER_SIZE && left[s->call.r % RANKS].before.bytes)
        x = &left[s->call.r % RANKS].before;
    if (!x->bytes || x->of != s->mem) return status;
    for (size_t at = 0; at < bytes && !status; at += x->n)
        status = s->mem->copy_soon((char *)work + at, x->bytes,
                                   bytes - at < x->n ? bytes - at : x->n);
    return status;
}
