/* exchange.h -- a rank's segments in the order in which the fold meets them.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next:
 * comm/form/exchange.c. Forward folds segments in token order, backward in reverse
 * with M^T: the forms see positions 0..NS-1 of the fold and are written once. A
 * *visit* is a run of positions that follow one another in one sequence: a
 * contiguous plan has one visit a sequence and rank, zigzag two, stripes many. A
 * visit receives a state from another rank, unless its sequence starts there, and
 * sends one, unless its sequence ends there. */
#ifndef KCP_EXCHANGE_H
#define KCP_EXCHANGE_H

#include "kcp.h"

#pragma GCC visibility push(hidden)

//> fold
struct fold {
    const struct kcp_exchange *x;
    const struct kcp_context *ctx;
    int r, NS, wide;           /* wide: columns of a map, V + K, or V + 1 if diagonal */
    size_t map, state;         /* bytes */
    const double *bound;       /* [NS] on |M|; NULL: no message may be dropped */
    double tolerance;
};
//< fold

struct fold fold_of(const struct kcp_exchange *x);
const struct kcp_segment *fold_segment(const struct fold *f, int p);
/* The segment before and after s in the order of the fold, in the same sequence. */
const struct kcp_segment *fold_before(const struct fold *f,
                                      const struct kcp_segment *s);
const struct kcp_segment *fold_after(const struct fold *f, const struct kcp_segment *s);
int   fold_starts(const struct fold *f, const struct kcp_segment *s);
int   fold_ends(const struct fold *f, const struct kcp_segment *s);
/* Visits of s's sequence that the fold makes before the one with s, and after it. */
int   fold_hops(const struct fold *f, const struct kcp_segment *s);
int   fold_hops_left(const struct fold *f, const struct kcp_segment *s);
char *fold_map(const struct fold *f, int p);
char *fold_state(const struct fold *f, int p);

//> visit
/* A visit: positions [p0,p1) of this rank. hops: visits of its sequence before it. */
struct visit { int p0, p1, enters, leaves, hops; };
//< visit
/* The visit that begins at p0. Iterate: p0 = 0, then p1 of the previous visit. */
struct visit fold_visit(const struct fold *f, int p0);
int fold_next_rank(const struct fold *f, const struct visit *v);
int fold_previous_rank(const struct fold *f, const struct visit *v);
/* Is |M| of the visit so small that the received state may be dropped from what the
 * visit sends? Then the visit sends its own h without waiting. */
int fold_cuts(const struct fold *f, const struct visit *v);
/* The hops in which a visit sends and receives; a cut visit sends in hop 0. */
int fold_sends_at(const struct fold *f, const struct visit *v);
int fold_receives_at(const struct fold *f, const struct visit *v);
/* The number of visits of this rank that receive (leaving: that send). */
int fold_crossings(const struct fold *f, int leaving);
/* The first hop after h in which this rank sends or receives; -1: none. Hop h carries
 * the states of visits with h visits before them. */
int fold_next_hop(const struct fold *f, int h);

/* Computes columns v0..v0+Vb of the states at positions p0+1..p1-1, each from the one
 * before; a position that begins a visit keeps its state. */
int fold_states(const struct fold *f, int p0, int p1, int v0, int Vb);
/* Writes those columns of the state after a visit to out [HV,K,Vb]. */
int fold_last_state(const struct fold *f, const struct visit *v, int v0, int Vb,
                    void *out);

/* Ends a group of sends and receives if its begin succeeded (opened == KCP_OK), after a
 * failure too. Returns status, the first failure inside, or else that of the end. */
static inline int group_end(struct kcp_comm *comm, int opened, int status)
{
    const int closed = opened ? opened : comm->group(comm, 0);
    return status ? status : closed;
}

/* What a form is: comm/form/name.c defines one as form_name. */
struct form {
    int (*run)(const struct fold *f);
    /* Bytes of x->work. */
    size_t (*work_bytes)(const struct fold *f);
    /* Bytes and messages that this rank sends; the judge compares them with the
     * count. */
    struct kcp_traffic (*formula)(const struct fold *f);
    /* Bytes of bf16 staging for the largest group (narrow_bytes of comm/lossy.h).
     * NULL: one state per visit that sends or receives. */
    size_t (*narrow_bytes)(const struct fold *f);
    /* Bytes of x->kept, which backward reads with reuse_M. NULL: none. */
    size_t (*kept_bytes)(const struct fold *f);
    /* It folds maps in token order: canonical plans give the same bits for every R. */
    int in_order;
    /* Each rank needs the maps of all others, so no message may be left out. */
    int needs_all;
    /* chain_window.c replaces it where all ranks can write each other's memory. */
    int windows;
};
#define FORM_DECLARED(number, name) extern const struct form form_##name;
KCP_FORM_LIST(FORM_DECLARED)
#undef FORM_DECLARED
/* Bytes for one block of `bytes` per visit that enters or leaves, in bf16. */
size_t narrow_per_visit(const struct fold *f, size_t bytes);
/* The chain over windows: chain_window.c. Every rank gets the same answer. */
int chain_window_fits(const struct fold *f);
int chain_window_run(const struct fold *f);

#pragma GCC visibility pop

#endif
