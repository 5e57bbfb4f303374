/* nccl_threads.c -- R ranks as threads of this process, a GPU each.
 *
 * Book: chapter 20.  Checked by: bench/check_gpus.sh.
 * Next: comm/backend/nccl_calls.c. */
#include "kcp.h"

#include <stdio.h>

#ifdef KCP_WITH_NCCL
#include "nccl.h"

struct gpu_job { int (*body)(struct kcp_comm *, void *); void *arg; };

static int run_on_gpu(struct kcp_comm *host, void *arg)
{
    const struct gpu_job *j = arg;
    struct kcp_comm *comm;
    char why[160] = "";
    if (cudaSetDevice(host->r))
        return KCP_CUDA;
    int err = kcp_nccl_over(&comm, host, why, sizeof why);
    if (err)
        return err;
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
    if (!why) {
        why = none;
        n = sizeof none;
    }
    if (!body || R < 1) {
        snprintf(why, n, "%d ranks, or nothing for them to do", R);
        return KCP_BAD;
    }
    if (!nccl_open(why, n))
        return KCP_NA;
    if (cudaGetDeviceCount(&gpus) || R > gpus) {
        snprintf(why, n, "%d ranks, %d GPUs: NCCL wants one each", R, gpus);
        return KCP_BAD;
    }
    return kcp_threads_run(R, run_on_gpu, &j, why, n);
}

#else
int kcp_nccl_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                         char *why, size_t n)
{
    if (why)
        snprintf(why, n, "built without NCCL");
    return KCP_NA;
}
#endif
