/* boot.h -- who we are, and a connection to every other process of the job.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh.  Next: boot.c. */
#ifndef KCP_BOOT_H
#define KCP_BOOT_H

#include "kcp.h"

/* Where rank 0 is found: host and port, or the file that says so. */
struct meeting {
    char host[256], file[256];
    int port;
    uint64_t key;                      /* of the job: a stranger's hello is refused */
};

/* As kcp_who, and the meeting. */
int launcher_env_read(struct kcp_who *who, struct meeting *at, char *why, size_t n);
/* KCP_TIMEOUT_S; a bad value is KCP_BAD. */
int launcher_env_timeout(double *seconds, char *why, size_t n);
double monotonic_seconds(void);                 /* seconds, monotonic */

/* fd [R] connected to every other rank, fd [r] is -1; within the timeout, or KCP_COMM
 * and why names what is missing. */
int bootstrap_meet(const struct kcp_who *who, const struct meeting *at, double seconds,
              int *fd, char *why, size_t n);
/* All of the bytes, or KCP_COMM; until: monotonic_seconds() at which patience ends. */
int bootstrap_write(int fd, const void *data, size_t bytes, double until);
int bootstrap_read(int fd, void *data, size_t bytes, double until);

#endif
