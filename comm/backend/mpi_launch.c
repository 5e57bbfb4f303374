/* mpi_launch.c -- detects an MPI launcher and reads this process's rank from MPI.
 * Book: chapter 20.
 *
 * In a build without MPI, kcp_mpi_start fails if a launcher started R > 1 processes. */
#ifdef KCP_WITH_MPI
#include <mpi.h>
#endif
#include "kcp_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Returns the launcher's name, and sets *R to the number of started processes. With one
 * process, returns NULL and sets *R to 1. Does not read SLURM_NTASKS, because in a
 * batch script without srun this variable does not count this program's processes. */
static const char *find_launcher(int *R)
{
    static const struct { const char *name, *R, *r; } launchers[] = {
        { "mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" },
        { "mpirun", "PMI_SIZE", "PMI_RANK" },              /* MPICH, Intel MPI */
        { "mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK" },
        { "srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID" },
        { "torchrun", "WORLD_SIZE", "RANK" },
    };
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *size = getenv(launchers[i].R);
        if (!size || !getenv(launchers[i].r)) continue;
        *R = atoi(size);
        if (*R > 1) return launchers[i].name;
    }
    *R = 1;
    return NULL;
}

#ifdef KCP_WITH_MPI
static int is_ours;                    /* 1: this library initialized MPI */
extern int kcp_mpi_has_failed;

int kcp_mpi_start(struct kcp_mpi *mpi, char *why, size_t n)
{
    int R, is_init = 0, level = MPI_THREAD_SINGLE;
    double seconds;
    MPI_Comm machine;
    if (!mpi) return KCP_BAD;
    *mpi = (struct kcp_mpi){ 1, 0, 0, NULL };
    if (kcp_timeout(&seconds, why, n)) return KCP_BAD;
    const char *launcher = find_launcher(&R);
    MPI_Initialized(&is_init);
    if (R == 1 && !is_init) return KCP_OK;
    if (!is_init) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level)) return KCP_COMM;
        is_ours = 1;
        /* If MPI_Test fails, MPICH calls the error handler of MPI_COMM_WORLD, not the
         * handler of the request's communicator. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    MPI_Comm_size(MPI_COMM_WORLD, &mpi->R);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi->r);
    if (R > 1 && mpi->R != R) {
        if (why)
            snprintf(why, n, "%s started %d processes, MPI knows of %d: use the mpirun "
                     "of this program's MPI, or srun --mpi=pmix", launcher, R, mpi->R);
        return KCP_BAD;
    }
    mpi->launcher = launcher ? launcher : "MPI";
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &machine);
    MPI_Comm_rank(machine, &mpi->local);
    MPI_Comm_free(&machine);
    return KCP_OK;
}

int kcp_mpi_world(struct kcp_comm **comm, char *why, size_t n)
{
    return kcp_mpi_over(comm, MPI_COMM_WORLD, 0, why, n);
}

int kcp_mpi_end(int status)
{
    const struct timespec moment = { 0, 300 * 1000 * 1000 };
    if (!is_ours) return status;
    fflush(NULL);
    if (!status && kcp_mpi_has_failed) status = 1;
    if (status) nanosleep(&moment, NULL);
    else MPI_Finalize();
    is_ours = 0;
    return status;
}

#else
int kcp_mpi_start(struct kcp_mpi *mpi, char *why, size_t n)
{
    double seconds;
    int R;
    if (!mpi) return KCP_BAD;
    *mpi = (struct kcp_mpi){ 1, 0, 0, NULL };
    if (kcp_timeout(&seconds, why, n)) return KCP_BAD;
    const char *launcher = find_launcher(&R);
    if (R > 1 && why)
        snprintf(why, n, "%s started %d processes: this program was built without MPI; "
                 "install mpicc and run make", launcher, R);
    return R > 1 ? KCP_BAD : KCP_OK;
}

int kcp_mpi_world(struct kcp_comm **comm, char *why, size_t n)
{
    if (!comm) return KCP_BAD;
    *comm = NULL;
    if (why) snprintf(why, n, "built without MPI");
    return KCP_NA;
}

int kcp_mpi_end(int status) { return status; }
#endif
