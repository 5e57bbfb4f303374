/* exchange.h -- a rank's segments, in the order in which a pass applies their maps.
 * Book: chapter 07.
 *
 * Each segment has a map of the state S. Forward applies S -> M S + h in token order.
 * Backward applies S -> M^T S + h in reverse order. Position p = 0..NS-1 counts a
 * rank's segments in the order of the pass, so the same code serves both passes.
 *
 * A *visit* is a run of adjacent segments of one sequence on one rank. Each sequence
 * has one visit per rank in a contiguous plan, two in a zigzag plan, and many in a
 * striped plan. A visit that does not start a sequence receives a state. A visit that
 * does not end a sequence sends a state. */
#pragma once

#include "kcp.h"

#pragma GCC visibility push(hidden)

//> fold
struct fold {
    const struct kcp_exchange *x;
    const struct kcp_context *ctx;
    int r, NS, wide;           /* wide: columns of a map: V + K or (diagonal M) V + 1 */
    size_t elem, map, state;   /* bytes of a number, of a map and of a state */
};
//< fold

struct fold fold_of(const struct kcp_exchange *x);
const struct kcp_segment *fold_segment(const struct fold *f, int p);
/* Return the segment before s and the segment after s in its sequence, in the order of
 * the pass. NULL: no such segment. */
const struct kcp_segment *fold_before(const struct fold *f,
                                      const struct kcp_segment *s);
const struct kcp_segment *fold_after(const struct fold *f, const struct kcp_segment *s);
int   fold_starts(const struct fold *f, const struct kcp_segment *s);
int   fold_ends(const struct fold *f, const struct kcp_segment *s);
/* fold_hops returns how many visits of the sequence precede the visit of segment s, and
 * fold_hops_left returns how many visits follow. */
int   fold_hops(const struct fold *f, const struct kcp_segment *s);
int   fold_hops_left(const struct fold *f, const struct kcp_segment *s);
char *fold_map(const struct fold *f, int p);
char *fold_state(const struct fold *f, int p);

//> visit
/* A visit covers positions [p0,p1) of this rank. The visit receives a state if `enters`
 * is 1, and sends a state if `leaves` is 1. `hops` counts the earlier visits of the
 * sequence. A visit receives in time step (hop) `hops` - 1 and sends in hop `hops`. */
struct visit { int p0, p1, enters, leaves, hops; };
//< visit
/* Returns the visit that begins at position p0. To iterate, start with p0 = 0, then
 * pass p1 of the previous visit. */
struct visit fold_visit(const struct fold *f, int p0);
int fold_next_rank(const struct fold *f, const struct visit *v);
int fold_previous_rank(const struct fold *f, const struct visit *v);
/* Counts this rank's visits that send (leaving = 1) or receive (leaving = 0) states. */
int fold_crossings(const struct fold *f, int leaving);
/* Returns the first hop (time step) after h in which this rank communicates, or -1. */
int fold_next_hop(const struct fold *f, int h);

/* Computes columns [v0,v0+Vb) of the states at positions p0+1..p1-1, each from the
 * state at the previous position. Skips positions at which a visit begins. */
int fold_states(const struct fold *f, int p0, int p1, int v0, int Vb);
/* Writes columns [v0,v0+Vb) of the state at the end of visit v to out [HV,K,Vb]. */
int fold_last_state(const struct fold *f, const struct visit *v, int v0, int Vb,
                    void *out);

/* Ends a group of sends and receives if the group was opened (opened == KCP_OK), even
 * after a failure. Returns `status`, the first failure inside the group. If `status` is
 * KCP_OK, returns the status of the group's end. */
static inline int group_end(struct kcp_comm *comm, int opened, int status)
{
    const int closed = opened ? opened : comm->group(comm, 0);
    return status ? status : closed;
}

/* A form (algorithm) of the exchange. comm/form/NAME.c defines form_NAME. */
struct form {
    int (*run)(const struct fold *f);
    /* Bytes of x->work. */
    size_t (*work_bytes)(const struct fold *f);
    /* Returns the bytes and messages that this rank must send. The test program
     * kcp-check compares these numbers with the counted traffic. */
    struct kcp_traffic (*formula)(const struct fold *f);
    /* Bytes of x->kept, which backward reads with reuse_M. NULL: x->kept is unused. */
    size_t (*kept_bytes)(const struct fold *f);
    /* 1: the form applies maps in the order of the pass, so that canonical plans
     * (L > 0) give the same bits for every R. */
    int in_order;
};
#define FORM_DECLARED(number, name) extern const struct form form_##name;
KCP_FORM_LIST(FORM_DECLARED)
#undef FORM_DECLARED

/* agree.c: see struct moves (ref/moves.h). */
int kcp_agree(const struct kcp_stage *stage, const void *args);

#pragma GCC visibility pop
