/* ranks.c -- the NCCL backend without a GPU: the judge's checks of communicators and
 * its exchanges, ids through a file, a late rank, a lost rank.
 *
 * Book: chapter 20, "What is promised to whom".
 * Checked by: tests/cli/nccl_stand_in.sh, also under the sanitizers.
 * Next: libnccl.c, cudart.c, gpu.c, the stand-ins.
 *
 *   kcp-stand-in [few]    few: lose a rank before every fifth call only (sanitizers) */
#include "stand_in.h"

#include <unistd.h>

/* ---- random exchanges in every form: numbers and traffic equal those of threads */
struct trial {
    const struct memory *mem;
    uint64_t seed;
    long long wrong[MOST];
    struct kcp_traffic sent[MOST];
};

static int exchange(struct kcp_comm *comm, void *arg)
{
    struct trial *t = arg;
    const int status = exchange_on(comm, t->mem, t->seed, &t->wrong[comm->r]);
    t->sent[comm->r] = comm->traffic;
    return status;
}

static int exchanges(int R, uint64_t seed, int is_planted)
{
    struct trial host = { .mem = &host_memory, .seed = seed };
    struct trial gpu = { .mem = device_memory(), .seed = seed };
    char why[200] = "";
    int status = kcp_threads_run(R, exchange, &host, why, sizeof why);
    if (!status)
        status = kcp_nccl_threads_run(R, exchange, &gpu, why, sizeof why);
    int bad = status || memcmp(host.sent, gpu.sent, sizeof host.sent);
    for (int r = 0; r < R; r++)
        bad |= gpu.wrong[r] != 0;
    if (bad && !is_planted)
        printf("  FAIL  exchanges on %d ranks, seed %d: status %d: %s\n", R, (int)seed,
               status, why);
    return bad;
}

/* Checks that exchanges are wrong if one call is left out. */
static int plant(void)
{
    setenv("KCP_STAND_IN_DROPS", "1", 1);
    setenv("KCP_TIMEOUT_S", "1", 1);
    const int seen = exchanges(2, 1, 1);
    unsetenv("KCP_STAND_IN_DROPS");
    unsetenv("KCP_TIMEOUT_S");
    if (!seen)
        printf("  FAIL  a call is left out, and no exchange is wrong\n");
    return !seen;
}

/* ---- ids through a file: all ranks know one path, where no file may exist before */
static int file_rank(struct kcp_comm *host, void *path)
{
    struct kcp_comm *comm, *second;
    long long wrong = 0;
    char why[200] = "";
    cudaSetDevice(host->r);
    int status = kcp_nccl_by_file(&comm, path, host->R, host->r, why, sizeof why);
    if (status)
        return status;
    status = exchange_on(comm, device_memory(), 1, &wrong);
    comm->free(comm);
    const int refused = kcp_nccl_by_file(&second, path, 2, 0, why, sizeof why);
    const int good = !wrong && refused == KCP_BAD && strstr(why, "where no file is");
    return status || good ? status : KCP_MISMATCH;
}

static int by_file(void)
{
    char folder[80] = "/tmp/kcp-stand-in.XXXXXX", path[90], why[200] = "";
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/id", folder);
    const int status = kcp_threads_run(3, file_rank, path, why, sizeof why);
    unlink(path);
    rmdir(folder);
    if (status)
        printf("  FAIL  by a file: status %d: %s\n", status, why);
    return status != KCP_OK;
}

int main(int argc, char **argv)
{
    extern const struct kcp_check check_19_from, check_19_split;       /* ../nccl.c */
    const int few = argc == 2 && !strcmp(argv[1], "few");
    struct kcp_report rep = { .pass = 0 };
    char why[120] = "";
    if ((argc > 1 && !few) || !nccl_open(why, sizeof why)) {
        fprintf(stderr, "kcp-stand-in: %s\n",
                why[0] ? why : "expected nothing, or few");
        return 2;
    }
    int wrong = check_19_from.run(&rep) + check_19_split.run(&rep) + by_file();
    wrong += rep.fail;
    for (int R = 2; R <= MOST; R++)
        for (uint64_t seed = 1; seed <= 4; seed++)
            wrong += exchanges(R, seed, 0);
    for (int R = 2; R <= MOST && !wrong; R++)
        wrong = late_ranks(R, 0);
    if (!wrong)
        wrong = plant() + late_ranks(MOST, 1);
    setenv("KCP_TIMEOUT_S", few ? "5" : "1", 1);             /* few: sanitizers */
    if (!wrong)
        wrong = lose_ranks(few ? 5 : 1);
    if (wrong)
        printf("stand-in for NCCL: %d are not as they should be\n", wrong);
    else
        printf("stand-in for NCCL: every call, the forms bit for bit, a lost rank\n");
    return wrong ? 1 : 0;
}
