/* wire.h -- a lossy exchange, which rounds numbers to bf16 or drops states whose effect
 * is below a tolerance.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c, tests/cli/run_cli.sh.
 * Next: comm/wire.c.
 *
 * Both options belong to a communicator and are off by default. Only the exchange of
 * chapters 07 and 11 is lossy; halos and sums are exact. Numbers are doubles in host
 * memory or floats on a GPU. With a tolerance, the host waits for bounds from the GPU,
 * so a graph cannot capture the call (KCP_NA). */
#ifndef KCP_WIRE_H
#define KCP_WIRE_H

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* If `bf16` is 1, maps and states are sent as bfloat16, rounded to nearest once per
 * message. Then results depend on the cuts, so segments must be classic. If `tolerance`
 * > 0 (it must be < 1), a rank whose shard is inside one sequence sends h_ext without
 * computing M or waiting for the received state S, if gates and keys prove that |M S|
 * <= tolerance |S| (kcp_decay_bound). Otherwise the rank waits, and the result is
 * exact. A tolerance needs the form chain or pipeline, one range per rank and classic
 * segments; otherwise calls return KCP_NA, because in an all-gather or a scan every
 * rank waits for all others. */
struct kcp_wire { int bf16; double tolerance; };

/* Creates *comm, a lossy communicator that uses `over`, which must outlive *comm. If
 * ranks give different values, returns KCP_MISMATCH and sets `why` (may be NULL).
 * Returns KCP_BAD if the tolerance is out of range. */
int kcp_wire_over(struct kcp_comm **comm, struct kcp_comm *over,
                  const struct kcp_wire *wire, char *why, size_t n);

/* Reports what the last exchange on comm dropped. `cut` is 1 if this rank did not wait
 * for the received state S. `bound` is the bound on |M| of this rank's segment inside a
 * sequence, or -1 if there is none. `lost` is `bound` |S|. Returns KCP_BAD if comm is
 * not a lossy communicator. */
struct kcp_wire_told { int cut; double bound, lost; };
int kcp_wire_told(const struct kcp_comm *comm, struct kcp_wire_told *told);

/* ---- for implementations of a pass, before the exchange
 *
 * Returns the tolerance of comm, or 0 if there is none or comm is not lossy. */
double kcp_wire_tolerance(const struct kcp_comm *comm);
/* Passes bound [NS], the bounds on |M| of this rank's segments, to the next exchange.
 * The array must stay valid until the exchange returns. */
void kcp_wire_bounds(struct kcp_comm *comm, const double *bound);
/* Returns 1 if M of segment s is not needed, according to kcp_wire_bounds. */
int kcp_wire_cuts(const struct kcp_comm *comm, const struct kcp_plan *plan, int s);

/* Sets bound [NS] to an upper bound on |M|_2 of each segment, over all heads:
 *   prod_t max_i exp2(g_ti) max(1, |1 - beta_t |k_t|^2|)
 * Inputs: normalized k [T,H,K], G [T,HV,KG] summed within chunks, beta [T,HV], all
 * double, and the grid cu [NS+1]. */
void kcp_decay_bound(const struct kcp_call *c, const int *cu, const double *k,
                     const double *G, const double *beta, double *bound);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
