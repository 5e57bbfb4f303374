/* halt.c -- a shared object that ends a program at its n-th step on disk, or lets that
 * step fail: for tests of what a crash leaves behind.
 *
 * Book: chapter 20, what is promised.  Checked by: tests/cli/results.sh, which needs
 * it. Next: results.sh.
 *
 * LD_PRELOAD=halt.so HALT_AT=n [HALT_BY=KILL|TERM|EIO]. Steps are the calls below, from
 * the first on. HALT_COUNT=FILE: their number goes there at the end; HALT_LOG=FILE: of
 * each one its name and what it was done to, a line.
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
static char said[1 << 16];

static void leave(const char *where, const char *words)
{
    FILE *o = where ? fopen(where, "w") : NULL;
    if (!o)
        return;
    fputs(words, o);
    fclose(o);
}

__attribute__((destructor)) static void count(void)
{
    char number[24];
    snprintf(number, sizeof number, "%d\n", steps);
    leave(getenv("HALT_COUNT"), number);
    leave(getenv("HALT_LOG"), said);
}

/* The file or folder that is open at fd, by its name. */
static void say(const char *step, int fd)
{
    char where[40], name[1000] = "";
    const size_t n = strlen(said);
    snprintf(where, sizeof where, "/proc/self/fd/%d", fd);
    if (readlink(where, name, sizeof name - 1) < 0)
        return;
    snprintf(said + n, sizeof said - n, "%s %s\n", step, name);
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
        say(#name, fd);                                                               \
        return fails() ? -1 : real arguments;                                         \
    }

STEP(int, mkdirat, (int fd, const char *p, mode_t m), (fd, p, m))
STEP(int, fsync, (int fd), (fd))
STEP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
STEP(int, symlinkat, (const char *to, int fd, const char *p), (to, fd, p))
STEP(int, linkat, (int fd, const char *p, int b, const char *q, int f),
     (fd, p, b, q, f))
STEP(int, unlinkat, (int fd, const char *p, int f), (fd, p, f))
STEP(int, renameat, (int fd, const char *p, int b, const char *q), (fd, p, b, q))
STEP(int, renameat2, (int fd, const char *p, int b, const char *q, unsigned f),
     (fd, p, b, q, f))
