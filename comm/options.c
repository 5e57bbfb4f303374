/* options.c -- environment variables of communicators, and a monotonic clock.
 *
 * Book: chapter 20. */
#include "options.h"
#include "checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Reads environment variable `name`, a whole number in [low,high]. If the variable is
 * not set or is empty, *out is `unless_set`. */
static int read_number(const char *name, long low, long high, long unless_set,
                       long *out, char *why, size_t n)
{
    const char *s = getenv(name);
    char *end = "";
    *out = unless_set;
    if (!s || !*s)
        return KCP_OK;
    errno = 0;
    *out = strtol(s, &end, 10);
    const int is_digit = *s >= '0' && *s <= '9';       /* no sign, no blank */
    if (is_digit && !*end && !errno && *out >= low && *out <= high)
        return KCP_OK;
    if (why)
        snprintf(why, n, "%s=%.40s: expected a whole number from %ld to %ld", name, s,
                 low, high);
    return KCP_BAD;
}

int comm_options(struct comm_options *o, char *why, size_t n)
{
    long seconds, windows;
    int err = read_number("KCP_TIMEOUT_S", 1, 86400, 60, &seconds, why, n);
    if (!err)
        err = read_number("KCP_WINDOWS", 0, 1, 0, &windows, why, n);
    if (!err)
        *o = (struct comm_options){ (double)seconds, (int)windows };
    return err;
}

int kcp_timeout(double *seconds, char *why, size_t n)
{
    struct comm_options o;
    if (!seconds)
        return kcp_refuse(KCP_BAD, "kcp_timeout: 'seconds' is NULL");
    const int err = comm_options(&o, why, n);
    if (!err)
        *seconds = o.seconds;
    return err;
}

/* Hashes the boot id (FNV-1a). Uses `open`: tests/cli/install.sh rejects `fopen`. */
uint64_t comm_machine(void)
{
    char id[80] = "";
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, id, sizeof id - 1);
    close(fd);
    uint64_t h = 14695981039346656037u;
    for (ssize_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)id[i]) * 1099511628211u;
    return n > 0 ? h : 0;
}
