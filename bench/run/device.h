/* device.h -- stages on a GPU, from and to arrays of doubles on the host.
 *
 * Book: chapter 08.  Checked by: tests/cli/run_device.sh.  Next: device.c.
 */
#ifndef KCP_RUN_DEVICE_H
#define KCP_RUN_DEVICE_H

#include "kcp.h"

struct device;                         /* which kernels, in which storage */

/* Opens the kernels of the table of paths, beginning with the rows of `variant` unless
 * NULL. stage: 08, 13 to 16, or NULL for the layer. Returns NULL on failure; `what` and
 * `why` are the parts of the error line. */
struct device *device_open(enum kcp_storage storage, const char *variant,
                           const struct kcp_stage *stage, const char **what, char *why,
                           size_t n);
void device_close(struct device *d);
/* R threads; one GPU per thread if there are R GPUs and NCCL, else a shared GPU. */
int  device_ranks(const struct device *d, int R,
                  int (*body)(struct kcp_comm *, void *), void *arg, char *why,
                  size_t n);
/* Runs the stage on args with host arrays; args->saved is on the GPU. KCP_NA: no
 * variant takes this shape; the reason was given to comm->fail. */
int  device_call(struct device *d, const struct kcp_stage *s, void *args,
               struct kcp_comm *comm);
/* The saved block, on the calling rank's GPU. */
size_t device_saved(const struct device *d, const struct kcp_call *c);
void *device_alloc(size_t bytes);
void  device_release(void *p);
const char *device_name(const struct device *d);      /* of the path or kernel */

#endif
