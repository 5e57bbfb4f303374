/* memory.c -- checks that the memory of Spike-KDA's scan does not depend on T.
 *
 * Book: chapter 15.  Checked by: itself, it can fail.  Next: tests/15_scan/mutants.c.
 */
#include "run.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- peak memory, from the system's pages
 * AddressSanitizer delays the release of pages, so malloc calls are counted instead. */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define COUNTED
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined COUNTED
int __sanitizer_install_malloc_and_free_hooks(
    void (*)(const volatile void *, size_t), void (*)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *);
static long held, most;

static void taken(const volatile void *p, size_t n)
{
    held += (long)n;
    if (held > most) most = held;
}

static void freed(const volatile void *p)
{
    if (p) held -= (long)__sanitizer_get_allocated_size(p);
}

static long peak(void)
{
    static int hooked;
    if (!hooked) hooked = __sanitizer_install_malloc_and_free_hooks(taken, freed);
    return most / 1024;
}
#else
static long peak(void)
{
    struct rusage is;
    getrusage(RUSAGE_SELF, &is);
    return is.ru_maxrss;
}
#endif

/* ---- scratch memory of a forward in KiB, measured in a separate process */
static long scratch(int64_t tokens, enum kcp_walk walk)
{
    enum { k_ = 32, v_ = 32, c_ = 64, heads = 2, d_ = 3 };
    struct kcp_plan *p = NULL;
    const int64_t ends[2] = { 0, tokens };
    const size_t n = (size_t)tokens * heads, kv = heads * k_ * v_;
    const size_t all = n * (3 * k_ + 2 * v_ + d_ + 1) + kv +
                       heads * (v_ + d_ + k_ * d_);
    double *x = malloc(sizeof *x * all), *at = x;
    if (!x || kcp_plan_make(&p, 1, ends, 1, NULL, 0, c_, 0, NULL)) return -1;
    for (size_t i = 0; i < all; i++) x[i] = 0.1;           /* touch every page */
    const struct kcp_context *g = p->ctx;
    struct kcp_scan a = { .T = tokens, .N = 1, .NS = 1, .NC = g->NC, .R = 1, .H = heads,
        .HV = heads, .K = k_, .V = v_, .C = c_, .D = d_, .walk = walk, .plan = p,
        .cu = g->cu, .cn = g->cn, .sc = g->sc };
    const struct { void *p; size_t n; } part[] = {
        { &a.q, k_ }, { &a.k, k_ }, { &a.v, v_ }, { &a.o, v_ },
        { &a.spike, d_ }, { &a.alpha_base, k_ }, { &a.beta_base, 1 } };
    for (int j = 0; j < 7; j++) {
        memcpy(part[j].p, &at, sizeof at);
        at += n * part[j].n;
    }
    a.ht = at;
    a.ot = at + kv;
    a.W_alpha = at + kv + heads * v_;
    a.w_beta = (double *)a.W_alpha + heads * k_ * d_;
    /* Allocate until eight blocks in a row need new pages, i.e. until no free heap is
     * left. */
    for (int j = 0, fresh = 0; j < 1024 && fresh < 8; j++) {
        const long was = peak();
        char *full = malloc(1 << 20);
        if (full) memset(full, j + 1, 1 << 20);
        fresh = peak() - was >= 1000 ? fresh + 1 : 0;
    }
    const long was = peak();
    const int status = ref_scan(&a);
    return status ? -1 : peak() - was;
}

static long scratch_apart(int64_t tokens, enum kcp_walk walk)
{
    int ends[2], status;
    long kib = -1;
    if (pipe(ends)) return -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        kib = scratch(tokens, walk);
        _exit(write(ends[1], &kib, sizeof kib) != sizeof kib);
    }
    if (child < 0 || read(ends[0], &kib, sizeof kib) != sizeof kib) kib = -1;
    if (child > 0) waitpid(child, &status, 0);
    close(ends[0]);
    close(ends[1]);
    return kib;
}

static int memory(struct kcp_report *rep)
{
    const double map = 64 * 2 * 32 * 64 * 8 / 1024.;          /* C HV K (K+V), in KiB */
    long few = scratch_apart(256, KCP_BLELLOCH);
    long many = scratch_apart(2048, KCP_BLELLOCH);
    /* Linux counts pages per CPU and adds the counts late, so a process that moved to
     * another CPU can measure hundreds of KiB too many. Measure again, because only a
     * real excess recurs. */
    for (int i = 0; i < 4 && (many > few + 256 || few > 2 * map + 256); i++) {
        few = scratch_apart(256, KCP_BLELLOCH);
        many = scratch_apart(2048, KCP_BLELLOCH);
    }
    printf("  scratch of the scan: %ld KiB at T = 256, %ld at T = 2048; C HV K (V+K): "
           "%.0f\n",
           few, many, map);
    EXPECT(rep, few >= map, "%ld KiB at T = 256: too small", few);
    EXPECT(rep, few <= 2 * map + 256, "%ld KiB at T = 256, maps: %.0f", few, map);
    EXPECT(rep, many <= few + 256, "T = 256: %ld KiB, T = 2048: %ld", few, many);
    return KCP_OK;
}
KCP_CHECK(check_15_memory) = { "15_scan", "memory",
    "errata 25: forward's scratch holds C maps and states, independent of the number "
    "of tokens", memory };
