/* bounded.c -- computes bounds on |M| before a GPU variant runs, if comm is lossy.
 *
 * Book: chapter 20.
 * Checked by: tests/20_clusters/bound_gpu.c, tests/cli/run_device.sh.
 * Next: ../../cuda/host/bound.cu. */
#include "checked.h"
#include "core/narrowing.h"
#include "moves.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

/* Returns 1 for stages 08 and 13. Both args structs begin with the members of
 * stages/layer.def. */
static int is_layer(const struct kcp_variant *v)
{
    return !strncmp(v->stage, "08", 2) || !strncmp(v->stage, "13", 2);
}

int kcp_run_bounded(const struct kcp_variant *v, void *args)
{
    const struct kcp_forward *a = args;
    if (v->where != KCP_DEVICE || !is_layer(v) || !a->plan || !a->plan->crossing ||
        !(comm_moves.wire_tolerance(a->comm) > 0))
        return v->run(args);
    double *bound = malloc(sizeof *bound * ((size_t)a->NS + 1));
    int status = bound ? KCP_OK : KCP_NO_MEMORY;
    if (!status)
        status = &cuda_decay_bound ? cuda_decay_bound(a, v->storage, bound) : KCP_NA;
    if (status == KCP_NA)
        kcp_refuse(status, "%s: a tolerance: the host waits for the bounds of this "
                   "rank's maps, which no graph can capture", v->stage);
    if (!status) {
        comm_moves.wire_bounds(a->comm, bound);
        status = v->run(args);
        comm_moves.wire_bounds(a->comm, NULL);        /* remove unused bounds */
    }
    free(bound);
    return status;
}
