/* kcp_mpi.h -- ranks as MPI processes, for programs that link MPI (libkcp.so does not).
 *
 * Book: chapter 20.  Checked by: tests/cli/mpi.sh.  Next: comm/backend/mpi.c.
 *
 * libkcp_mpi.so is built if mpicc is found. MPI libraries differ in their ABI. For
 * another MPI library compile share/kcp/mpi with its mpicc, -DKCP_WITH_MPI -lkcp. */
#ifndef KCP_MPI_H
#define KCP_MPI_H

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* This process's place under a launcher. Without a launcher R is 1, launcher NULL, and
 * MPI is not initialized. local: the rank on this machine, which selects its GPU. */
struct kcp_mpi { int R, r, local; const char *launcher; };
/* Calls MPI_Init_thread if a launcher's variables are set. KCP_BAD: a launcher started
 * several processes, but this was built without MPI or MPI reports another number. */
int kcp_mpi_start(struct kcp_mpi *mpi, char *why, size_t n);
/* A communicator over MPI_COMM_WORLD on host memory, after kcp_mpi_start. KCP_NA: built
 * without MPI. */
int kcp_mpi_world(struct kcp_comm **comm, char *why, size_t n);
/* Call this last, before every exit of a program. Returns status, or 1 if status is 0
 * although a communicator has failed. If the returned status is 0, it finalizes MPI.
 * Otherwise it does not, because MPI_Finalize waits for all ranks; it waits 0.3 s, in
 * which the other ranks print their errors, and then the launcher ends them. */
int kcp_mpi_end(int status);

#ifdef MPI_VERSION
/* As kcp_mpi_world, over a duplicate of the caller's communicator. Collective, as is
 * comm->free. Needs MPI_THREAD_SERIALIZED, or MPI_THREAD_MULTIPLE if the caller uses
 * MPI in another thread at the same time. A call that makes no progress for `seconds`
 * fails; seconds = 0: KCP_TIMEOUT_S. After a failure MPI may still read the send
 * buffers, so end the program. */
int kcp_mpi_over(struct kcp_comm **comm, MPI_Comm over, double seconds, char *why,
                 size_t n);
#endif

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
