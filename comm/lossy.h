/* lossy.h -- inside of comm/: what the forms of the exchange ask of a lossy wire.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c.  Next: comm/wire.c. */
#ifndef KCP_COMM_LOSSY_H
#define KCP_COMM_LOSSY_H

#include "core/narrowing.h"
#include "wire.h"

#pragma GCC visibility push(hidden)

/* What comm was asked to lose; NULL: it is no such communicator. */
const struct kcp_wire *wire_of(const struct kcp_comm *comm);
/* The bounds of the exchange that begins, taken: the next one has none. */
const double *wire_take_bounds(struct kcp_comm *comm);
void wire_tell(struct kcp_comm *comm, struct kcp_wire_told told);

/* For one exchange: what is sent as numbers of so many bytes travels as bfloat16. room:
 * for all that one group moves, narrow_bytes for each message. */
struct narrow {
    struct kcp_comm comm, *over;
    const struct narrowing *by;
    size_t elem;
    char *room, *free;
    struct arrival *arriving;
    struct CUstream_st *stream;        /* of what arrives */
    int grouped;
};
void narrow_open(struct narrow *n, struct kcp_comm *over, size_t elem, void *room);
void narrow_close(struct narrow *n);
size_t narrow_bytes(size_t numbers);
/* Of numbers of so many bytes; NULL: nobody knows such. */
const struct narrowing *narrowing_of(size_t elem);
uint16_t narrow_to_bf16(double x);
double narrow_from_bf16(uint16_t x);

#pragma GCC visibility pop

#endif
