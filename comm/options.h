/* options.h -- what the environment sets for communicators, and their clock.
 *
 * Book: chapter 20.  Checked by: tests/cli/mpi.sh.  Next: comm/options.c. */
#ifndef KCP_COMM_OPTIONS_H
#define KCP_COMM_OPTIONS_H

#include "kcp.h"

#pragma GCC visibility push(hidden)

/* seconds: KCP_TIMEOUT_S. windows: KCP_WINDOWS, whether ranks may write into each
 * other's GPU memory. KCP_BAD: why names the wrong value. */
struct comm_options { double seconds; int windows; };
int comm_options(struct comm_options *o, char *why, size_t n);
/* The same number in all processes of this machine since it booted; 0: not known. */
uint64_t comm_machine(void);
double monotonic_seconds(void);

#pragma GCC visibility pop

#endif
