/* bounded.h -- runs a variant; first computes bounds on |M| if comm is lossy.
 *
 * Book: chapter 20.
 * Checked by: tests/20_clusters/bound_gpu.c, tests/cli/run_device.sh.
 * Next: bounded.c. */
#ifndef KCP_BOUNDED_H
#define KCP_BOUNDED_H

#include "layer.h"

#pragma GCC visibility push(hidden)

/* Calls v->run(args) and returns its status. For stages 08 and 13 on a GPU, if the
 * communicator has a tolerance (wire.h), first computes bounds on |M| of this rank's
 * segments. The host waits for the bounds, so a graph cannot capture the call (KCP_NA).
 * The references compute their bounds themselves. */
int kcp_run_bounded(const struct kcp_variant *v, void *args);

#pragma GCC visibility pop

#endif
