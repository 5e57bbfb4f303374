/* options.h -- settings of communicators from the environment, and their clock.
 *
 * Book: chapter 20.  Checked by: tests/cli/mpi.sh.  Next: comm/options.c. */
#ifndef KCP_COMM_OPTIONS_H
#define KCP_COMM_OPTIONS_H

#include "kcp.h"

#pragma GCC visibility push(hidden)

/* seconds: the value of KCP_TIMEOUT_S. windows: the value of KCP_WINDOWS, 1 if ranks
 * may write into each other's GPU memory. If comm_options returns KCP_BAD, why names
 * the wrong value. */
struct comm_options { double seconds; int windows; };
int comm_options(struct comm_options *o, char *why, size_t n);
/* Returns a number that is the same in all processes of this machine since it booted;
 * 0: not known. */
uint64_t comm_machine(void);
double monotonic_seconds(void);

#pragma GCC visibility pop

#endif
