/* options.h -- environment variables of communicators.
 *
 * Book: chapter 20. */
#ifndef KCP_COMM_OPTIONS_H
#define KCP_COMM_OPTIONS_H

#include "kcp.h"

#pragma GCC visibility push(hidden)

/* Values of KCP_TIMEOUT_S and KCP_WINDOWS. If `windows` is 1, ranks may write into each
 * other's GPU memory. On KCP_BAD, `why` names the invalid variable. */
struct comm_options { double seconds; int windows; };
int comm_options(struct comm_options *o, char *why, size_t n);
/* Returns a number that identifies this machine until a reboot, or 0 on failure. */
uint64_t comm_machine(void);

#pragma GCC visibility pop

#endif
