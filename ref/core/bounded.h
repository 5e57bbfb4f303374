/* bounded.h -- a kernel's pass on a wire with a tolerance: bounds first, then the pass.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/bound_gpu.c, run_device.sh.
 * Next: bounded.c. */
#ifndef KCP_BOUNDED_H
#define KCP_BOUNDED_H

#include "layer.h"

#pragma GCC visibility push(hidden)

/* v->run(args). Of 08 and 13 on a GPU, where the communicator has a tolerance, the
 * bounds of this rank's maps are given to it before: the host waits for them, so such a
 * call cannot be captured (KCP_NA). The references make theirs themselves. */
int kcp_run_bounded(const struct kcp_variant *v, void *args);

#pragma GCC visibility pop

#endif
