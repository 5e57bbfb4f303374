/* processes.c -- kcp-run under a launcher: one rank per process; rank 0 writes files.
 * Book: chapter 20.
 * Every process reads all inputs, fills the outputs with a pattern (all bits 1) and
 * computes its shard. Then every rank sends its outputs to rank 0. Rank 0 copies the
 * elements that the sender has written, i.e. those that differ from the pattern. With
 * --device gpu each process has a GPU, or all share GPU 0 (tests/share_gpu.sh). */
#include "run.h"

#include <stdlib.h>
#include <string.h>

int processes_check(struct run *x)
{
    if (x->mpi.R == 1) return 0;
    if (x->mpi.R > MOST_RANKS || (x->o.ranks && x->o.ranks != x->mpi.R))
        return run_error(x, RUN_BAD, x->mpi.launcher, "found %d processes, expected as "
                         "many as --ranks, at most %d", x->mpi.R, MOST_RANKS);
    x->o.ranks = x->mpi.R;
    return 0;
}

int processes_meet(struct run *x, struct kcp_comm **world)
{
    int *all = malloc(sizeof *all * (size_t)x->mpi.R), first = 0;
    char why[300] = "out of memory";
    *world = NULL;
    x->has_met = 1;
    int status = all ? kcp_mpi_world(world, why, sizeof why) : KCP_NO_MEMORY;
    if (!status) status = (*world)->show(*world, &x->exit, all, sizeof *all, NULL);
    if (status && *world) (*world)->lost(*world, NULL, why, sizeof why);
    if (status && !x->exit) run_error(x, RUN_FAILED, "ranks", "%s", why);
    while (!status && first < x->mpi.R && !all[first]) first++;
    if (!status && first < x->mpi.R) {
        x->is_silent = first != x->mpi.r;
        x->exit = all[first];
    }
    free(all);
    if (x->exit && *world) (*world)->free(*world);
    return x->exit ? -1 : 0;
}

/* Copies the elements that a rank has written: those that are not all bits 1. */
static void copy_written(double *to, const double *from, int64_t n)
{
    static const unsigned char untouched[8] = { 0xff, 0xff, 0xff, 0xff,
                                                0xff, 0xff, 0xff, 0xff };
    for (int64_t i = 0; i < n; i++)
        if (memcmp(from + i, untouched, sizeof *from)) to[i] = from[i];
}

static int collect_array(struct run *x, struct kcp_comm *comm, const struct tensor *a,
                         int r)
{
    int64_t first, n;
    array_part(x, a, r, &first, &n);
    double *here = (double *)a->p + first;
    const size_t bytes = sizeof *here * (size_t)n;
    if (comm->r == r) return comm->send(comm, here, bytes, 0, NULL);
    double *received = malloc(bytes + 1);
    const int status = received ? comm->recv(comm, received, bytes, r, NULL)
                                : KCP_NO_MEMORY;
    if (!status) copy_written(here, received, n);
    free(received);
    return status;
}

static int collect(struct run *x, struct kcp_comm *comm)
{
    int status = KCP_OK;
    for (int r = 1; r < comm->R && !status; r++) {
        if (comm->r != 0 && comm->r != r) continue;
        for (int i = 0; i < x->a.n && !status; i++)
            if (x->a.t[i].out) status = collect_array(x, comm, &x->a.t[i], r);
        if (!status && comm->r == r)
            status = comm->send(comm, &x->report[r], sizeof x->report[r], 0, NULL);
        else if (!status)
            status = comm->recv(comm, &x->report[r], sizeof x->report[r], r, NULL);
    }
    return status;
}

/* Runs the rank over NCCL, on this process's GPU. */
static int run_on_gpu(struct run *x, struct kcp_comm *host,
                      int (*body)(struct kcp_comm *, void *), char *why, size_t n)
{
    struct kcp_comm *comm;
    int status = x->gpu->gpu(x->mpi.local) && x->gpu->gpu(0);
    if (status) snprintf(why, n, "found no GPU for local rank %d", x->mpi.local);
    else status = kcp_nccl_over(&comm, host, why, n);
    if (status) return status;
    status = body(comm, x);
    comm->free(comm);
    return status;
}

int processes_run(struct run *x, int (*body)(struct kcp_comm *, void *))
{
    struct kcp_comm *comm;
    char why[300], words[300] = "";
    int rank = x->mpi.r;
    if (processes_meet(x, &comm) != 0) return -1;
    int status = x->gpu ? run_on_gpu(x, comm, body, words, sizeof words)
                        : body(comm, x);
    if (!status) status = collect(x, comm);
    if (status) {
        if (!words[0]) snprintf(words, sizeof words, "returned status %d", status);
        comm->fail(comm, status, words);
    }
    if (comm->lost(comm, &rank, why, sizeof why))
        status = run_error(x, RUN_FAILED, "ranks", "rank %d: %s", rank, why);
    comm->free(comm);
    return status ? -1 : 0;
}
