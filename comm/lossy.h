/* lossy.h -- internal to comm/: an exchange that rounds numbers or drops states.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c.  Next: comm/wire.c. */
#ifndef KCP_COMM_LOSSY_H
#define KCP_COMM_LOSSY_H

#include "core/narrowing.h"
#include "wire.h"

#pragma GCC visibility push(hidden)

/* Returns the options of a lossy communicator; NULL: comm is not lossy. */
const struct kcp_wire *wire_of(const struct kcp_comm *comm);
/* Returns and clears the bounds that kcp_wire_bounds has set, because the bounds are
 * valid for only one exchange. */
const double *wire_take_bounds(struct kcp_comm *comm);
void wire_report(struct kcp_comm *comm, struct kcp_wire_told told);

/* A communicator that sends numbers of `elem` bytes as bfloat16, for one exchange.
 * `staging` is memory for all messages of a group, narrow_bytes() per message. */
struct narrow {
    struct kcp_comm comm, *over;
    const struct narrowing *by;
    size_t elem;
    char *staging, *free;
    struct arrival *arriving;
    struct CUstream_st *stream;        /* of the receives */
    int grouped;
};
void narrow_open(struct narrow *n, struct kcp_comm *over, size_t elem, void *staging);
void narrow_close(struct narrow *n);
size_t narrow_bytes(size_t numbers);
/* Returns the functions that convert numbers of `elem` bytes to bf16 and back; NULL:
 * this size is not supported. */
const struct narrowing *narrowing_of(size_t elem);

#pragma GCC visibility pop

#endif
