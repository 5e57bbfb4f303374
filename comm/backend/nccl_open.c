/* nccl_open.c -- libnccl, opened when the first communicator is made.
 *
 * Book: chapter 20.  Checked by: bench/check_gpus.sh.  Next: comm/backend/nccl.c. */
#include "kcp.h"

#ifdef KCP_WITH_NCCL
#include "nccl.h"

#include <dlfcn.h>
#include <stdio.h>

static struct nccl calls;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *missing;

static void load(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!lib)
        missing = "libnccl.so.2 was not found (LD_LIBRARY_PATH=)";
#define FIND(f)                                                                       \
    if (lib && !(*(void **)&calls.f = dlsym(lib, #f))) missing = "no " #f " in libnccl";
    NCCL_CALLS(FIND)
}

const struct nccl *nccl_open(char *why, size_t n)
{
    pthread_once(&once, load);
    if (missing)
        snprintf(why, n, "%s", missing);
    return missing ? NULL : &calls;
}
#endif
