/* halt.c -- a shared object that ends a program at its n-th step on disk, or lets that
 * step fail: for tests of what a crash leaves behind.
 *
 * Book: chapter 20, what is promised.  Checked by: tests/cli/results.sh, which needs
 * it. Next: results.sh.
 *
 * LD_PRELOAD=halt.so HALT_AT=n [HALT_BY=KILL|TERM|EIO]. Steps are the calls below, from
 * the first on. HALT_COUNT=FILE: their number goes there at the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int steps;

__attribute__((destructor)) static void count(void)
{
    const char *path = getenv("HALT_COUNT");
    FILE *o = path ? fopen(path, "w") : NULL;
    if (!o)
        return;
    fprintf(o, "%d\n", steps);
    fclose(o);
}

/* Is this step to fail? It may also be the last. */
static int fails(void)
{
    const char *at = getenv("HALT_AT"), *by = getenv("HALT_BY");
    if (++steps != (at ? atoi(at) : 0))
        return 0;
    if (by && strcmp(by, "EIO") == 0) {
        errno = EIO;
        return 1;
    }
    raise(by && strcmp(by, "TERM") == 0 ? SIGTERM : SIGKILL);
    return 0;
}

#define STEP(type, name, parameters, arguments)                                       \
    type name parameters                                                              \
    {                                                                                 \
        type (*real) parameters;                                                      \
        *(void **)&real = dlsym(RTLD_NEXT, #name);                                    \
        return fails() ? -1 : real arguments;                                         \
    }

STEP(int, mkdirat, (int d, const char *p, mode_t m), (d, p, m))
STEP(int, fsync, (int fd), (fd))
STEP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
STEP(int, symlinkat, (const char *to, int d, const char *p), (to, d, p))
STEP(int, linkat, (int a, const char *p, int b, const char *q, int f), (a, p, b, q, f))
STEP(int, unlinkat, (int d, const char *p, int f), (d, p, f))
STEP(int, renameat, (int a, const char *p, int b, const char *q), (a, p, b, q))
STEP(int, renameat2, (int a, const char *p, int b, const char *q, unsigned f),
     (a, p, b, q, f))
