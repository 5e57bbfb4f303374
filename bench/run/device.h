/* device.h -- the same stages on a GPU: host doubles up, a variant, doubles back.
 *
 * Book: chapter 08.  Checked by: tests/cli/run_device.sh.  Next: device.c.
 */
#ifndef KCP_RUN_DEVICE_H
#define KCP_RUN_DEVICE_H

#include "kcp.h"

struct device;                         /* whose kernels, in which storage */

/* The kernels that the table of paths names for a call, or variant's: of the layer
 * (stage NULL), or of this stage. NULL: what and why make a line, "what: found ...,
 * expected ...". */
struct device *device_open(enum kcp_storage storage, const char *variant,
                           const struct kcp_stage *stage, const char **what, char *why,
                           size_t n);
void device_close(struct device *d);
/* R threads; a GPU each where there are as many and NCCL is, else they share one. */
int  device_ranks(const struct device *d, int R,
                  int (*body)(struct kcp_comm *, void *), void *arg, char *why,
                  size_t n);
/* As the stage's ref on args, whose arrays are the host's; saved is the GPU's. KCP_NA,
 * and comm knows the reason: no variant takes this shape. */
int  device_go(struct device *d, const struct kcp_stage *s, void *args,
               struct kcp_comm *comm);
/* The saved block, on the calling rank's GPU. */
size_t device_saved(const struct device *d, const struct kcp_call *c);
void *device_room(size_t bytes);
void  device_release(void *p);
const char *device_name(const struct device *d);      /* of the variant, or its stage */

#endif
