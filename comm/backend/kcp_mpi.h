/* kcp_mpi.h -- ranks as MPI processes. libkcp.so does not link MPI; libkcp_mpi.so does.
 * Book: chapter 20.
 *
 * libkcp_mpi.so is built if mpicc is found. MPI libraries have different ABIs. For
 * another MPI library, compile share/kcp/mpi with the mpicc of that library and
 * -DKCP_WITH_MPI -lkcp. */
#ifndef KCP_MPI_H
#define KCP_MPI_H

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* R: number of ranks; r: this rank; local: this rank's number among the processes of
 * this machine, for selecting a GPU; launcher: the launcher's name. If there is no
 * launcher and the program has not initialized MPI, R is 1 and launcher is NULL. */
struct kcp_mpi { int R, r, local; const char *launcher; };
/* If a launcher started several processes and MPI is not initialized, calls
 * MPI_Init_thread. In a build without MPI (make MPICC=none), returns KCP_BAD instead.
 * Also returns KCP_BAD if launcher and MPI report different numbers of processes. */
int kcp_mpi_start(struct kcp_mpi *mpi, char *why, size_t n);
/* Creates a communicator over MPI_COMM_WORLD for host memory. Call kcp_mpi_start first.
 * Returns KCP_NA if built without MPI. */
int kcp_mpi_world(struct kcp_comm **comm, char *why, size_t n);
/* kcp_mpi_end must be the last call before exit. If the program initialized MPI, only
 * returns `status`. Otherwise returns `status`, or 1 if `status` is 0 and a
 * communicator failed. If the result is 0, calls MPI_Finalize, which waits for all
 * ranks. If not, waits 0.3 s, so that other ranks can print errors before they end. */
int kcp_mpi_end(int status);

#ifdef MPI_VERSION
/* As kcp_mpi_world, but uses a duplicate of the communicator `over`. kcp_mpi_over and
 * comm->free are collective. Needs MPI_THREAD_SERIALIZED, or MPI_THREAD_MULTIPLE if
 * another thread uses MPI at the same time. A call that makes no progress for `seconds`
 * (0: KCP_TIMEOUT_S) fails. After a failure MPI may still read the send buffers, so end
 * the program. */
int kcp_mpi_over(struct kcp_comm **comm, MPI_Comm over, double seconds, char *why,
                 size_t n);
#endif

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
