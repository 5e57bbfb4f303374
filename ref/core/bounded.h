/* bounded.h -- a kernel's pass on a wire with a tolerance: bounds first, then the pass.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/bound_gpu.c, run_device.sh.
 * Next: bounded.c. */
#ifndef KCP_BOUNDED_H
#define KCP_BOUNDED_H

#include "layer.h"

#pragma GCC visibility push(hidden)

/* v->run(args). For 08 and 13 on a GPU over a communicator with a tolerance, this first
 * computes the bounds of this rank's maps. The host waits for them, so such a call
 * cannot be captured (KCP_NA). The references compute their own bounds. */
int kcp_run_bounded(const struct kcp_variant *v, void *args);

#pragma GCC visibility pop

#endif
