/* bootstrap.h -- who we are, and a proven connection to every other process of the job.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh.  Next: comm/launcher_env.c. */
#ifndef KCP_BOOTSTRAP_H
#define KCP_BOOTSTRAP_H

#include "kcp.h"

#pragma GCC visibility push(hidden)

/* Where rank 0 is found: at a host and one of a few ports, or through a file. */
struct meeting {
    char host[256], file[256];
    int port;                  /* MASTER_PORT, or one that follows from the job */
    int port_is_taken;         /* it is the launcher's own: meet at the next ones */
    int one_host;              /* all ranks are on this machine */
    uint64_t job;              /* tells jobs apart */
    char name[160];            /* of the job, as a file name */
};

/* As kcp_who, and the meeting. */
int launcher_env_read(struct kcp_who *who, struct meeting *at, char *why, size_t n);
/* KCP_TIMEOUT_S; KCP_WATCH: do ranks that lend a communicator connect? KCP_WINDOWS: may
 * ranks on GPUs write to one another? A bad value of any is KCP_BAD. */
struct env_options { long seconds, watch, windows; };
int launcher_env_options(struct env_options *o, char *why, size_t n);
/* FNV-1a, so that a job's names have one short number: no secret is made of it. */
uint64_t launcher_env_hash(uint64_t h, const char *s);
/* One number for all processes of this machine since it started; 0: not known. */
uint64_t launcher_env_machine(void);
double monotonic_seconds(void);

/* fd [R] connected to every other rank, each having proved that it knows the job's key;
 * fd [r] is -1. KCP_COMM within seconds: why names what is missing. KCP_BAD: a file, a
 * folder or a value is in the way. */
int bootstrap_meet(const struct kcp_who *who, const struct meeting *at, double seconds,
                   int *fd, char *why, size_t n);
/* All of the bytes, or KCP_COMM; until: monotonic_seconds() at which patience ends. */
int bootstrap_write(int fd, const void *data, size_t bytes, double until);
int bootstrap_read(int fd, void *data, size_t bytes, double until);

#pragma GCC visibility pop

#endif
