/* moves.h -- the table of functions by which the references call comm/.
 *
 * Book: chapter 07.  Checked by: every stage over ranks; tests/cli/house.sh.
 * Next: comm/form/exchange.c, which has the table. */
#ifndef KCP_MOVES_H
#define KCP_MOVES_H

#include "kcp.h"

/* comm.h describes each member NAME as kcp_NAME. */
struct moves {
    int (*exchange_run)(const struct kcp_exchange *x);
    size_t (*exchange_work)(const struct kcp_exchange *x);
    size_t (*exchange_kept)(const struct kcp_exchange *x);
    int64_t (*halo_rows)(const struct kcp_halo *h, int r);
    int64_t (*halo_at)(const struct kcp_halo *h, int r, int s);
    int (*halo_run)(const struct kcp_halo *h, const void *x, void *halo);
    int (*halo_states)(const struct kcp_halo *h, void *states);
    int (*parameter_sum)(const struct kcp_call *c, const double *part, int64_t n,
                         double *sum);
};
/* If comm/ is not linked, &comm_moves is NULL, and kcp_begin rejects stages with
 * ranks. */
extern const struct moves comm_moves __attribute__((weak, visibility("hidden")));

#endif
