/* moves.c -- the table of the functions of comm/ that the references call.
 *
 * Book: chapter 07.  Checked by: every stage over ranks.
 * Next: comm/form/exchange.c. */
#include "moves.h"
#include "wire.h"

const struct moves comm_moves = {
    kcp_exchange_run, kcp_exchange_work, kcp_exchange_kept, kcp_halo_rows, kcp_halo_at,
    kcp_halo_run, kcp_halo_states, kcp_parameter_sum, kcp_wire_tolerance,
    kcp_wire_bounds, kcp_wire_cuts };
