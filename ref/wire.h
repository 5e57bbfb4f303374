/* wire.h -- what an exchange may lose on request: half of a number's bits, and states
 * that hardly count.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c, tests/cli/run_cli.sh.
 * Next: comm/wire.c.
 *
 * Both are off unless asked for, and belong to the communicator: a call that is given
 * one of these loses what it allows, in the exchange of chapters 07 and 11 alone. Halos
 * and sums pass through it as they are. Doubles of host memory, or floats of a GPU,
 * whose host waits for the bounds of a tolerance: no graph can capture that (KCP_NA).
 */
#ifndef KCP_WIRE_H
#define KCP_WIRE_H

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* bf16: maps and states travel as bfloat16, rounded to nearest once for each message;
 *       not with canonical segments, whose bits would depend on the cuts.
 * tolerance: 0, or below 1. A rank that one sequence enters and leaves does not wait
 *       for what enters before it sends what leaves, nor makes its M, where gates and
 *       keys show that at most tolerance times the norm of what enters is left of it
 *       then (kcp_decay_bound). Elsewhere it waits, and its result is exact. Chain and
 *       pipeline, one range a rank, classic segments; else KCP_NA: in an all-gather and
 *       a scan every rank waits for all of a step. */
struct kcp_wire { int bf16; double tolerance; };

/* A communicator of the same ranks over `over`, which must outlive it. All ranks ask
 * for the same: KCP_MISMATCH otherwise, with a sentence in why (may be NULL). KCP_BAD:
 * the tolerance is none. KCP_NO_MEMORY. */
int kcp_wire_over(struct kcp_comm **comm, struct kcp_comm *over,
                  const struct kcp_wire *wire, char *why, size_t n);

/* What the last exchange on comm left out. cut: did this rank not wait? bound: on |M|,
 * of the segment that enters and leaves, -1: there is none; lost: bound |S|, in numbers
 * of the state, S being what entered. Of another communicator: KCP_BAD. */
struct kcp_wire_told { int cut; double bound, lost; };
int kcp_wire_told(const struct kcp_comm *comm, struct kcp_wire_told *told);

/* ---- for whoever writes a pass, before its exchange
 * The tolerance of comm; 0: none is given, or comm is another. */
double kcp_wire_tolerance(const struct kcp_comm *comm);
/* bound [NS]: of |M| of this rank's segments, for the next exchange on comm. The bounds
 * must outlive it. */
void kcp_wire_bounds(struct kcp_comm *comm, const double *bound);
/* May M of segment s stay unmade? Only if the bounds were given. */
int kcp_wire_cuts(const struct kcp_comm *comm, const struct kcp_plan *plan, int s);

/* bound [NS] <- for each segment a number that |M|_2 does not pass, in any head:
 *   prod_t max_i exp2(g_ti) max(1, |1 - beta_t |k_t|^2|)
 * from k [T,H,K] as normalised, G [T,HV,KG] as summed within chunks, beta [T,HV], all
 * double, and the grid cu [NS+1]. */
void kcp_decay_bound(const struct kcp_call *c, const int *cu, const double *k,
                     const double *G, const double *beta, double *bound);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
