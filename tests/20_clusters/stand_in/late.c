/* late.c -- ranks of one process wait for a late rank, which first allocates.
 *
 * Book: chapter 20.  Checked by: itself, with a free that must hang.
 * Next: ../../../cuda/host/blocks.c.
 *
 * Every rank has released a block. Rank 1 is late; before its barrier it allocates
 * memory, for which unused blocks are freed. If a block of another rank's GPU is
 * freed, cudaFree waits for that GPU, whose stream waits for rank 1: a deadlock. */
#include "stand_in.h"

#include "cuda/host/memory.h"

#include <poll.h>

enum { BLOCK = 512, LARGE = 65 << 20 };
struct late_job { int is_planted; void *of_rank_0; };

static int late_rank(struct kcp_comm *comm, void *arg)
{
    struct late_job *j = arg;
    void *large = NULL, *block = blocks_alloc(BLOCK, 1);
    if (comm->r == 0)
        cudaMalloc(&j->of_rank_0, BLOCK);
    blocks_release(block);
    int status = comm->barrier(comm, NULL);
    if (!status && comm->r == 1) {
        poll(NULL, 0, 100);                /* the others wait on their streams */
        if (j->is_planted)
            cudaFree(j->of_rank_0);
        large = blocks_alloc(LARGE, 1);
    }
    status = status ? status : comm->barrier(comm, NULL);
    if (large)
        blocks_release(large);
    return status;
}

/* Returns 0 on success. With is_planted rank 1 frees another rank's memory, and all
 * ranks must hang. */
int late_ranks(int R, int is_planted)
{
    struct late_job j = { .is_planted = is_planted };
    char why[200] = "";
    setenv("KCP_TIMEOUT_S", is_planted ? "1" : "20", 1);
    const int status = kcp_nccl_threads_run(R, late_rank, &j, why, sizeof why);
    const int hung = status && strstr(why, "made no progress");
    unsetenv("KCP_TIMEOUT_S");
    if (!is_planted)
        cudaFree(j.of_rank_0);
    if (is_planted ? hung : !status)
        return 0;
    printf("  FAIL  a late rank of %d%s: status %d: %s\n", R,
           is_planted ? ", another GPU's memory freed" : "", status, why);
    return 1;
}
