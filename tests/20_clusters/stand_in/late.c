/* late.c -- ranks of one process wait for one that comes late and allocates first.
 *
 * Book: chapter 20.  Checked by: itself, with a free that must hang.
 * Next: ../../../cuda/host/blocks.c.
 *
 * Every rank has given a block back. Rank 1 comes last, and before it comes it needs
 * memory for which unused blocks are freed. If one of another rank's GPU is among them,
 * cudaFree waits for that GPU, whose stream waits for rank 1. */
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

/* 0: as it should be; planted, rank 1 frees another rank's memory and all hang. */
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
