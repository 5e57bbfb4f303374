/* exchange.h -- a rank's segments in the order in which the fold meets them.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: comm/form/exchange.c.
 * Forward folds segments in token order, backward in reverse with M^T: the forms see
 * positions 0..NS-1 of the fold and are written once. */
#ifndef KCP_EXCHANGE_H
#define KCP_EXCHANGE_H

#include "kcp.h"

#pragma GCC visibility push(hidden)

//> fold
struct fold {
    const struct kcp_exchange *x;
    const struct kcp_context *ctx;
    int r, NS;
    int in;                    /* positions [0,in) belong to a sequence that enters */
    int out;                   /* does the last one's sequence leave? */
    size_t map, state;         /* bytes */
};
//< fold

struct fold fold_of(const struct kcp_exchange *x);
const struct kcp_segment *fold_segment(const struct fold *f, int p);
int   fold_starts(const struct fold *f, const struct kcp_segment *s);
int   fold_ends(const struct fold *f, const struct kcp_segment *s);
char *fold_map(const struct fold *f, int p);
char *fold_state(const struct fold *f, int p);
int   fold_next_rank(const struct fold *f);      /* who continues it */
int   fold_previous_rank(const struct fold *f);  /* empty ranks are skipped */

/* Columns v0..v0+Vb of the states at positions p0+1..p1-1, each from the one before;
 * a position that starts a sequence keeps the state it has. */
int fold_states(const struct fold *f, int p0, int p1, int v0, int Vb);
/* The same columns of the state with which the last position ends, to out [HV,K,Vb]. */
int fold_last_state(const struct fold *f, int v0, int Vb, void *out);

/* One file a form; each counts its own work and what it hands to the wire. */
struct form {
    int (*run)(const struct fold *f);
    size_t (*work_bytes)(const struct fold *f);
    struct kcp_traffic (*formula)(const struct fold *f);
};
extern const struct form form_all_gather, form_chain, form_pipeline, form_scan;
size_t all_gather_kept(const struct fold *f);

#pragma GCC visibility pop

#endif
