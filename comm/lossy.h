/* lossy.h -- inside of comm/: what the forms of the exchange ask of a lossy wire.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c.  Next: comm/wire.c. */
#ifndef KCP_COMM_LOSSY_H
#define KCP_COMM_LOSSY_H

#include "wire.h"

#pragma GCC visibility push(hidden)

/* What comm was asked to lose; NULL: it is no such communicator. */
const struct kcp_wire *wire_of(const struct kcp_comm *comm);
/* The bounds of the exchange that begins, taken: the next one has none. */
const double *wire_take_bounds(struct kcp_comm *comm);
void wire_tell(struct kcp_comm *comm, struct kcp_wire_told told);

/* For one exchange: what is sent as numbers of 8 bytes travels as bfloat16. */
struct narrow { struct kcp_comm comm, *over; struct arrival *arriving; int grouped; };
void narrow_open(struct narrow *n, struct kcp_comm *over);
void narrow_close(struct narrow *n);
uint16_t narrow_to_bf16(double x);
double narrow_from_bf16(uint16_t x);

#pragma GCC visibility pop

#endif
