/* uses.c -- communicators by a file, on a captured stream, in a group that is opened
 * while its owner fails it.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: itself.  Next: ranks.c. */
#include "stand_in.h"

#include <poll.h>
#include <unistd.h>

#define EXPECT(yes, ...)                                                              \
    do {                                                                              \
        if (!(yes)) { wrong++; printf("  FAIL  " __VA_ARGS__); printf("\n"); }         \
    } while (0)

/* ---- kcp_nccl_by_file: R ranks that have nothing but a path */
struct by_file {
    char path[300];
    int status[MOST], wrong[MOST];
    struct lossy_layer *a[MOST];
};

static int rank_by_file(struct kcp_comm *host, void *arg)
{
    struct by_file *f = arg;
    const int r = host->r;
    struct kcp_comm *comm;
    char why[200] = "";
    cudaSetDevice(r);
    f->status[r] = kcp_nccl_by_file(&comm, f->path, host->R, r, why, sizeof why);
    if (f->status[r])
        return KCP_OK;
    calls_wait(comm, NULL);
    f->status[r] = pass_on(comm, f->a[r], host->R, KCP_CHAIN);
    f->wrong[r] = wrong_rows(f->a[r], host->R, r, KCP_CHAIN);
    calls_as_before();
    comm->free(comm);
    return KCP_OK;
}

int use_by_file(void)
{
    struct by_file f = { .path = "/tmp/kcp-stand-in.XXXXXX" };
    struct kcp_comm *comm;
    char why[200] = "";
    int wrong = 0;
    if (!mkdtemp(f.path))
        return 1;
    strcat(f.path, "/id");
    for (int r = 0; r < MOST; r++) {
        f.a[r] = malloc(sizeof *f.a[r]);
        *f.a[r] = *layer_of_model[0];
    }
    kcp_threads_run(3, rank_by_file, &f, why, sizeof why);
    for (int r = 0; r < 3; r++)
        EXPECT(!f.status[r] && !f.wrong[r], "by a file: rank %d: status %d, %d wrong",
               r, f.status[r], f.wrong[r]);
    int status = kcp_nccl_by_file(&comm, f.path, 2, 0, why, sizeof why);
    EXPECT(status == KCP_BAD && strstr(why, "where no file is"), "a file that is there:"
           " status %d: %s", status, why);
    unlink(f.path);
    setenv("KCP_TIMEOUT_S", "1", 1);
    status = kcp_nccl_by_file(&comm, f.path, 2, 1, why, sizeof why);
    EXPECT(status == KCP_COMM && strstr(why, "no id from rank 0 after 1 s"), "without"
           " rank 0: status %d: %s", status, why);
    setenv("KCP_TIMEOUT_S", "soon", 1);
    status = kcp_nccl_by_file(&comm, f.path, 2, 1, why, sizeof why);
    EXPECT(status == KCP_BAD && strstr(why, "KCP_TIMEOUT_S=soon: expected"), "a wrong "
           "timeout: status %d: %s", status, why);
    unsetenv("KCP_TIMEOUT_S");
    *strrchr(f.path, '/') = 0;
    rmdir(f.path);
    for (int r = 0; r < MOST; r++)
        free(f.a[r]);
    return wrong;
}

/* ---- a stream that a graph captures: nothing is compared, and nothing breaks it */
static int captured_rank(struct kcp_comm *comm, void *arg)
{
    const int64_t mine = 100 + comm->r;
    int64_t all[MOST] = { 0 };
    enum cudaStreamCaptureStatus capture;
    cudaStream_t s;
    int wrong = 0;
    if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking))
        return KCP_CUDA;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    int status = comm->show(comm, &mine, all, sizeof mine, s);
    EXPECT(status == KCP_NA, "captured: show returns %d", status);
    cudaStreamIsCapturing(s, &capture);
    EXPECT(capture == cudaStreamCaptureStatusActive, "the capture is broken");
    cudaStreamEndCapture(s, NULL);
    status = comm->show(comm, &mine, all, sizeof mine, s);
    for (int r = 0; r < comm->R && !status; r++)
        EXPECT(all[r] == 100 + r, "after a capture: row %d is %lld", r,
               (long long)all[r]);
    cudaStreamDestroy(s);
    return wrong ? KCP_MISMATCH : status;
}

int use_captured(void)
{
    char why[200] = "";
    int wrong = 0;
    const int status = kcp_nccl_threads_run(3, captured_rank, NULL, why, sizeof why);
    EXPECT(!status, "captured: status %d: %s", status, why);
    return wrong;
}

/* ---- its owner fails it while a group is being opened: a group whose begin returned
 * KCP_OK is open, and else none is */
static void *fail_soon(void *arg)
{
    struct kcp_comm *comm = arg;
    poll(NULL, 0, 20);
    comm->fail(comm, KCP_COMM, "its owner aborts it");
    return NULL;
}

int use_opened(void)
{
    struct meet m = { 0 };
    struct kcp_comm *comm;
    char why[80];
    pthread_t owner;
    int wrong = 0;
    ncclComm_t at = lend(&m, 1, 0, 0);
    if (!at || kcp_nccl_from(&comm, at))
        return 1;
    setenv("KCP_STAND_IN_OPENS", "1", 1);
    if (pthread_create(&owner, NULL, fail_soon, comm))
        return 1;
    if (!comm->group(comm, 1))
        comm->group(comm, 0);
    pthread_join(owner, NULL);
    unsetenv("KCP_STAND_IN_OPENS");
    EXPECT(!stand_in_groups(), "%d groups stay open", stand_in_groups());
    comm->free(comm);
    nccl_open(why, sizeof why)->ncclCommAbort(at);
    return wrong;
}
