/* nccl_start.c -- loads libnccl, sends NCCL's id through a file, and runs R ranks as
 * threads.
 * Book: chapter 20. */
#include "kcp.h"

#include <stdio.h>

#ifdef KCP_WITH_NCCL
#include "nccl.h"
#include "base/clock.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static struct nccl calls;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static const char *missing;

static void load(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!lib) missing = "libnccl.so.2 was not found (set LD_LIBRARY_PATH)";
#define FIND(f)                                                                       \
    if (lib) *(void **)&calls.f = dlsym(lib, #f);                                     \
    if (lib && !calls.f) missing = "no " #f " in libnccl";
    NCCL_CALLS(FIND)
}

const struct nccl *nccl_open(char *why, size_t n)
{
    pthread_once(&loaded, load);
    if (missing) snprintf(why, n, "%s", missing);
    return missing ? NULL : &calls;
}

/* ---- NCCL's id through a file, for processes without MPI */
/* Writes the id to a new file PATH.part and then links that file to `path`, so that no
 * rank reads half of an id and no existing file is overwritten. */
static int write_id(const char *path, const ncclUniqueId *id, char *why, size_t n)
{
    char part[4096];
    const int length = snprintf(part, sizeof part, "%s.part", path);
    int ok = 0, fd = -1;
    if (length > 0 && (size_t)length < sizeof part)
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        ok = write(fd, id, sizeof *id) == (ssize_t)sizeof *id && !link(part, path);
        close(fd);
        unlink(part);
    }
    if (!ok)
        snprintf(why, n, "%.120s: cannot write NCCL's id to this file; give a path at "
                 "which no file exists, in a folder that all ranks can read", path);
    return ok ? KCP_OK : KCP_BAD;
}

static int read_id(const char *path, double seconds, ncclUniqueId *id, char *why,
                   size_t n)
{
    const double until = seconds_now() + seconds;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && seconds_now() < until) {
        poll(NULL, 0, 20);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    const int ok = fd >= 0 && read(fd, id, sizeof *id) == (ssize_t)sizeof *id;
    if (fd >= 0) close(fd);
    if (!ok)
        snprintf(why, n, "%.120s: no NCCL id from rank 0 within %.0f s", path, seconds);
    return ok ? KCP_OK : KCP_COMM;
}

int nccl_id_by_file(const struct nccl *nccl, const char *path, int r, double seconds,
                    ncclUniqueId *id, char *why, size_t n)
{
    if (r > 0) return read_id(path, seconds, id, why, n);
    if (nccl->ncclGetUniqueId(id)) return KCP_COMM;
    return write_id(path, id, why, n);
}

/* ---- ranks as threads */
struct gpu_job { int (*body)(struct kcp_comm *, void *); void *arg; };

static int run_on_gpu(struct kcp_comm *host, void *arg)
{
    const struct gpu_job *j = arg;
    struct kcp_comm *comm;
    char why[160] = "";
    if (cudaSetDevice(host->r)) return KCP_CUDA;
    int err = kcp_nccl_over(&comm, host, why, sizeof why);
    if (err) return err;
    err = j->body(comm, j->arg);
    if (err) {
        snprintf(why, sizeof why, "returned status %d", err);
        comm->fail(comm, err, why);
    }
    comm->free(comm);
    return err;
}

int kcp_nccl_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                         char *why, size_t n)
{
    struct gpu_job j = { body, arg };
    char none[160];
    int gpus = 0;
    n = why ? n : sizeof none;
    why = why ? why : none;
    if (!body || R < 1) {
        snprintf(why, n, "'body' is NULL, or R < 1: R = %d", R);
        return KCP_BAD;
    }
    if (!nccl_open(why, n)) return KCP_NA;
    if (cudaGetDeviceCount(&gpus) || R > gpus) {
        snprintf(why, n, "found %d ranks and %d GPUs, but NCCL needs one GPU per rank",
                 R, gpus);
        return KCP_BAD;
    }
    return kcp_threads_run(R, run_on_gpu, &j, why, n);
}

#else
int kcp_nccl_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                         char *why, size_t n)
{
    if (why) snprintf(why, n, "built without NCCL");
    return KCP_NA;
}
#endif
