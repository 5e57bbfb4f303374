/* no_crypto.c -- a machine without OpenSSL: preloaded, it hides libcrypto.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/job_key.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

void *dlopen(const char *name, int flags)
{
    void *(*real)(const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    return name && strstr(name, "libcrypto") ? NULL : real(name, flags);
}
