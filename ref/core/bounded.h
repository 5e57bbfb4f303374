/* bounded.h -- runs a variant; over a wire with a tolerance it first computes bounds.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/bound_gpu.c, run_device.sh.
 * Next: bounded.c. */
#ifndef KCP_BOUNDED_H
#define KCP_BOUNDED_H

#include "layer.h"

#pragma GCC visibility push(hidden)

/* Returns v->run(args). For 08 and 13 on a GPU, if the communicator has a tolerance,
 * this function first computes the bounds of this rank's maps. The host waits for the
 * bounds, so a graph cannot capture such a call (KCP_NA). The references compute their
 * bounds themselves. */
int kcp_run_bounded(const struct kcp_variant *v, void *args);

#pragma GCC visibility pop

#endif
